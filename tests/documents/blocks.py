"""The fenced blocks of a document, and what they hold. Nothing here runs anything."""

import re
from dataclasses import dataclass

SHELL = ""  # a block without a language shows commands
PYTHON = "python"

# Lines that no check runs, by how they begin, and why: the only place that says so.
LEFT_OUT = {
    "make ": "the tests are part of what it runs",
    "pip install ": "the environment of the tests is installed already",
    "python3 -m venv ": "as pip install",
}
# Commands that stay until they are stopped → the line that tells that they are ready, with the URL.
LASTING = {
    "batchfleet up ": re.compile(r"is ready on (\w+://\S+)"),
    "batchfleet dev ": re.compile(r"export BATCHFLEET_REDIS_URL=(\w+://\S+)"),
}
EXPORT = "export BATCHFLEET_REDIS_URL="

_FENCE = re.compile(r"^```(\w*)$")
_FILE = re.compile(r"`([\w/-]+\.py)`:$")
_COMMENT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
_TEST = re.compile(r"^def test_", re.MULTILINE)


class DocumentError(ValueError):
    """A document whose fences do not match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: where it begins (a line, from 1), and the text line right before it."""

    document: str
    line: int
    language: str
    lead: str
    text: str

    def __str__(self):
        return f"{self.document}:{self.line}"

    @property
    def file_name(self):
        """The file that the text before the block says it is, or None."""
        found = _FILE.search(self.lead)
        return found.group(1) if found else None

    @property
    def is_test(self):
        return _TEST.search(self.text) is not None


def read_blocks(document, text):
    """All fenced blocks of a document, in order.

    Raises:
        DocumentError: the last block does not end.
    """
    blocks, lead, opened, body = [], "", None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, body = (number, fence.group(1)), []
        elif opened is not None and line == "```":
            start, language = opened
            text = "".join(f"{one}\n" for one in body)
            blocks.append(
                Block(document=document, line=start, language=language, lead=lead, text=text)
            )
            opened, lead = None, ""
        elif opened is not None:
            body.append(line)
        elif line.strip():
            lead = line.strip()
    if opened is not None:
        raise DocumentError(f"{document}:{opened[0]}: the block does not end")
    return blocks


def commands_of(text):
    """The commands of a shell block; one that goes on after a backslash is one command."""
    joined = text.replace("\\\n", " ")
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def reason_left_out(command):
    """Why a command is not run, or None."""
    return next((why for start, why in LEFT_OUT.items() if f"{command} ".startswith(start)), None)


def ready_line(command):
    """What a command that stays shows when it is ready, or None for one that ends by itself."""
    found = (ready for start, ready in LASTING.items() if f"{command} ".startswith(start))
    return next(found, None)


def with_url(command, url):
    """The command with the URL of a running fleet in place of the example's."""
    return EXPORT + url if command.startswith(EXPORT) and url else command


def promised_lines(program):
    """What a program's comments say its `print` shows."""
    return _COMMENT.findall(program)
