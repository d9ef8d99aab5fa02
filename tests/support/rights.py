"""Which commands each program may send, read from the source: what `broker/rights.py` must list."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = ("claiming", "dead", "fleet", "later", "listing", "requests")
CONTAINERS = {"MEMORY", "XGROUP", "XINFO"}
_COMMAND = re.compile(r"[A-Z]{3,}")
_IN_LUA = re.compile(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?")
# Words that stand in commands without being one.
_ARGUMENTS = {"BLOCK", "COUNT", "GROUP", "MINID", "NOMKSTREAM", "STREAMS", "WITHSCORES"}
# Programs that speak to a server have these from the executors.
_ALWAYS = {"EVALSHA", "SCRIPT LOAD"}


def commands_of(folder: str) -> set[str]:
    """Commands that the code of a folder can send, as `XGROUP CREATE`."""
    used = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add((node.value.id, node.attr))
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("broker."):
                used |= {(node.module.removeprefix("broker."), one.name) for one in node.names}
    functions = _functions()
    return _ALWAYS.union(*(functions.get(name, set()) for name in used))


def _functions() -> dict[tuple[str, str], set[str]]:
    found = {}
    for module in MODULES:
        for node in ast.parse((ROOT / "broker" / f"{module}.py").read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found[module, node.name] = _commands_in(node)
    return found


def _commands_in(function: ast.FunctionDef) -> set[str]:
    commands = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "call":
            commands |= _commands_of_script(node.args[0].value)
        elif isinstance(node, ast.Constant) and _COMMAND.fullmatch(str(node.value)):
            commands.add(node.value)
    return commands - _ARGUMENTS


def _commands_of_script(name: str) -> set[str]:
    source = (ROOT / "broker" / "lua" / f"{name}.lua").read_text()
    return {
        f"{first} {second}" if first in CONTAINERS else first
        for first, second in _IN_LUA.findall(source)
    }
