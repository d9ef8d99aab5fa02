"""The rules of style as pure functions: a parsed file in, findings out.

Which files they apply to and what is let pass, with reasons, is in `tests/tidy/test_style.py`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 450
FILE_LINES_WITH_REASON_MAX = 600
PARAMETERS_MAX = 6
REASON_WORDS_MIN = 3

UNSAFE_MODULES = frozenset({"pickle", "marshal", "dill", "cloudpickle", "shelve", "joblib"})
UNSAFE_CALLS = frozenset(
    {"eval", "exec", "os.system", "torch.load", "asyncio.create_subprocess_shell"}
)
# A seeded generator of one's own is chance as an argument; all else of `random` is shared state.
OWN_GENERATOR = "random.Random"
_NOQA = re.compile(r"^\s*noqa: [A-Z0-9, ]+[-#\s]*")
_MACHINE_PATH = re.compile(r"(?<![\w.~}:])/(work|home|root|Users)/\w")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One breach of a rule. `what` is stable, so that an allow-list can name it."""

    path: str
    what: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: its path below the root, its text, its tree."""

    path: str
    text: str
    tree: ast.Module


def read_source(root: Path, path: Path) -> Source:
    """Parse a file."""
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(root).as_posix(), text, ast.parse(text))


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def find_sizes(source: Source) -> Iterator[Finding]:
    """Files, functions and parameter lists that are too long."""
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        kind = "long" if lines <= FILE_LINES_WITH_REASON_MAX else "far too long"
        yield Finding(source.path, f"{kind} file", lines)
    for function in functions_of(source.tree):
        end = function.end_lineno or function.lineno
        if end - function.lineno + 1 > FUNCTION_LINES_MAX:
            yield Finding(source.path, f"{function.name} is too long", function.lineno)
        if count_parameters(function) > PARAMETERS_MAX and not function.name.startswith("test_"):
            yield Finding(source.path, f"{function.name} has too many parameters", function.lineno)


def count_parameters(function: Function) -> int:
    """Parameters that a caller has to think of.

    Without `self` and `cls`; none for a constructor that takes all of them by keyword, which is a
    value object.
    """
    parameters = function.args
    positional = [*parameters.posonlyargs, *parameters.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    if function.name == "__init__" and not positional:
        return 0
    return len(positional) + len(parameters.kwonlyargs)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name → dotted name for every import of a file, relative ones left out."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                names[local] = alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted_uses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every use of something imported, as its dotted name, however it was imported."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            yield names[node.id], node.lineno
        elif isinstance(node, ast.Attribute):
            base = _dotted(node.value, names)
            if base:
                yield f"{base}.{node.attr}", node.lineno


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, names)
        return f"{base}.{node.attr}" if base else ""
    return ""


def find_uses(source: Source, banned: frozenset[str]) -> Iterator[Finding]:
    """Uses of banned names; one that ends in a dot bans everything below."""
    for used, line in dotted_uses(source.tree):
        hit = used in banned or any(used.startswith(ban) for ban in banned if ban.endswith("."))
        if hit and used != OWN_GENERATOR and not used.startswith(OWN_GENERATOR + "."):
            yield Finding(source.path, used, line)


def find_handlers(source: Source) -> Iterator[Finding]:
    """Bare handlers, and broad ones that neither raise nor say on their line why not."""
    lines = source.text.splitlines()
    owners = {
        handler: function.name
        for function in functions_of(source.tree)
        for handler in ast.walk(function)
        if isinstance(handler, ast.ExceptHandler)
    }
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        owner = owners.get(node, "the file")
        if node.type is None:
            yield Finding(source.path, f"bare except in {owner}", node.lineno)
        elif _is_broad(node.type) and not _raises(node) and not _has_reason(lines, node):
            yield Finding(source.path, f"broad except in {owner}", node.lineno)


def _is_broad(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(k, ast.Name) and k.id in ("Exception", "BaseException") for k in kinds)


def _has_reason(lines: list[str], handler: ast.ExceptHandler) -> bool:
    _, _, comment = lines[handler.lineno - 1].partition("#")
    return len(_NOQA.sub("", comment).split()) >= REASON_WORDS_MIN


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def find_unsafe(source: Source) -> Iterator[Finding]:
    """Code that runs what it is given: pickle and its kin, eval, exec, a shell."""
    names = imported_names(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            for module in modules:
                if module.partition(".")[0] in UNSAFE_MODULES:
                    yield Finding(source.path, f"import of {module}", node.lineno)
        elif isinstance(node, ast.Call):
            called = _dotted(node.func, names) or _plain_name(node.func)
            if called in UNSAFE_CALLS:
                yield Finding(source.path, f"call of {called}", node.lineno)
            if any(k.arg == "shell" and not _is_false(k.value) for k in node.keywords):
                yield Finding(source.path, "shell=True", node.lineno)


def _plain_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def find_package_imports(source: Source) -> Iterator[Finding]:
    """Imports of the package by its own name, which would load a module twice."""
    for node in ast.walk(source.tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        if any(module.partition(".")[0] == "batchfleet" for module in modules):
            yield Finding(source.path, "absolute import of the package", node.lineno)


def find_empty_tests(source: Source) -> Iterator[Finding]:
    """Test files without a test, and tests that cannot fail by themselves."""
    tests = [f for f in functions_of(source.tree) if f.name.startswith("test_")]
    if not tests:
        yield Finding(source.path, "no test in a test file", 1)
    for test in tests:
        if not any(_asserts(node) for node in ast.walk(test)):
            yield Finding(source.path, f"{test.name} asserts nothing", test.lineno)


def _asserts(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else _plain_name(node.func)
    return called in ("raises", "warns") or called.startswith(("check_", "assert_"))


def find_machine_paths(path: str, text: str) -> Iterator[Finding]:
    """Absolute paths of somebody's machine."""
    for number, line in enumerate(text.splitlines(), start=1):
        if _MACHINE_PATH.search(line):
            yield Finding(path, "absolute path of a machine", number)
