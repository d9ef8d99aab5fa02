"""The demo's texts: docstrings of Python's standard library, which every machine has."""

import ast
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

WORDS_MIN, WORDS_MAX = 3, 500
SAMPLE_COUNT = 2000
# Of a few tried, one whose sample holds texts about each of the demo's questions.
SAMPLE_SEED = 7
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class DemoText:
    """One docstring and the module that it stands in."""

    module: str
    text: str


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def read_docstrings(root: Path) -> list[DemoText]:
    """Docstrings of 3 to 500 words of all modules under `root`, each text once, in a fixed order.

    Files that are not Python of this version (templates, old syntax) are passed over.
    """
    found: dict[str, DemoText] = {}
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if _LEFT_OUT.isdisjoint(place.parts):
            for text in _docstrings_in(path.read_bytes()):
                found.setdefault(text, DemoText(module_name(place), text))
    return list(found.values())


def module_name(place: Path) -> str:
    """The dotted name of the module in a file, relative to the folder of the library."""
    parts = place.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _docstrings_in(source: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            text = ast.get_docstring(node)
            if text and WORDS_MIN <= len(text.split()) <= WORDS_MAX:
                yield text


def sample(texts: Iterable[DemoText], count: int | None, seed: int) -> list[DemoText]:
    """`count` of the texts in an order that looks random; all of them for None.

    By digest and not by a generator, so that two releases of Python, whose libraries differ in a
    few docstrings, give nearly the same sample.
    """

    def digest(text: DemoText) -> bytes:
        return sha256(f"{seed}:{text.module}:{text.text}".encode(errors="replace")).digest()

    return sorted(texts, key=digest)[:count]
