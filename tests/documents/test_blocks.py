"""The reader of fenced blocks."""

import pytest
from documents.blocks import (
    PYTHON,
    SHELL,
    DocumentError,
    commands_of,
    promised_lines,
    read_blocks,
    ready_line,
    reason_left_out,
    with_url,
)

PAGE = """\
# Title

A class, `model.py`:

```python
import this

x = 1
```

```
first
```
"""


def test_blocks_with_their_language_line_and_lead():
    program, shell = read_blocks("page.md", PAGE)
    assert (program.language, program.line, program.text) == (PYTHON, 5, "import this\n\nx = 1\n")
    assert program.file_name == "model.py"
    assert (shell.language, str(shell), shell.text) == (SHELL, "page.md:11", "first\n")
    assert shell.file_name is None


def test_a_block_that_does_not_end_is_told():
    with pytest.raises(DocumentError, match=r"page\.md:3"):
        read_blocks("page.md", "a\n\n```\nfirst\n")


def test_only_a_block_with_test_functions_is_a_test():
    is_test = [
        block.is_test
        for block in read_blocks("p", "```python\ndef test_x(): ...\n```\n```python\ntest_x()\n```")
    ]
    assert is_test == [True, False]


def test_commands_are_lines_but_those_that_go_on():
    text = "first  # why\n\n# a remark\nsecond \\\n  --more\n    # deeper\n"
    assert commands_of(text) == ["first  # why", "second    --more"]


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        ("make demo    # all", True),
        ("pip install '.[all]'", True),
        ("python3 -m venv .venv && . .venv/bin/activate", True),
        ("makefile", False),
        ("batchfleet models list", False),
    ],
)
def test_what_is_left_out(command, left_out):
    assert (reason_left_out(command) is not None) is left_out


@pytest.mark.parametrize(
    ("command", "shown", "url"),
    [
        ("batchfleet up", "The fleet 'bf' is ready on redis://127.0.0.1:1/0", "127.0.0.1:1"),
        ("batchfleet up --workers 2", "The fleet is ready on redis://h:2/0", "h:2"),
        ("batchfleet dev model.py", "  export BATCHFLEET_REDIS_URL=redis://h:3/0", "h:3"),
    ],
)
def test_commands_that_stay_tell_their_url(command, shown, url):
    assert ready_line(command).search(shown).group(1) == f"redis://{url}/0"


@pytest.mark.parametrize("command", ["batchfleet update", "batchfleet infer up", "upset"])
def test_other_commands_end_by_themselves(command):
    assert ready_line(command) is None


def test_the_url_of_the_fleet_takes_the_place_of_the_example():
    example = "export BATCHFLEET_REDIS_URL=redis://127.0.0.1:41233/0     # as `up` printed it"
    assert with_url(example, "redis://h:1/0") == "export BATCHFLEET_REDIS_URL=redis://h:1/0"
    assert with_url("batchfleet status", "redis://h:1/0") == "batchfleet status"
    assert with_url(example, None) == example


def test_what_a_program_promises_to_print():
    program = 'print(x.shape)  # (2, 384)\nfor y in z:\n    print(y, "(")  # 1\nf()  # no'
    assert promised_lines(program) == ["(2, 384)", "1"]
