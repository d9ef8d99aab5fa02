"""Which commands each program may send, read from the source: what `broker/rights.py` must list."""

import ast
import re
from pathlib import Path

from batchfleet.broker.commands import script

ROOT = Path(__file__).parents[2]
# Modules of `broker/` whose functions are no commands.
_NO_COMMANDS = ("commands", "connections", "embedded", "errors", "interface", "looping", "rights")
CONTAINERS = {"MEMORY", "XGROUP", "XINFO"}
_COMMAND = re.compile(r"[A-Z]{3,}")
# `in_portions` of `lua/parts` runs the command that it is given.
_IN_LUA = re.compile(r"(?:redis\.p?call|in_portions)\('([A-Z]+)'(?:, '([A-Z]+)')?")
# Words that stand in commands without being one.
_ARGUMENTS = {
    *(
        "BLOCK",
        "COUNT",
        "GROUP",
        "JUSTID",
        "MAXLEN",
        "MINID",
        "NOMKSTREAM",
        "PX",
        "STREAMS",
        "WITHSCORES",
    ),
}
# Programs that speak to a server have these from the executors.
_ALWAYS = {"EVALSHA", "SCRIPT LOAD"}


def rights_in(document):
    """The rules of each block of rights in a document, in order."""
    text = (ROOT / "docs" / document).read_text()
    found = []
    for block in re.findall(r"```acl\n(.*?)```", text, re.DOTALL):
        rules = re.findall(r"\([^)]*\)|\S+", block)
        start = rules.index("resetkeys")
        found.append(rules[start:])
    return found


def commands_of(folder: str) -> set[str]:
    """Commands that the code of a folder can send, as `XGROUP CREATE`."""
    used = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        used |= _attributes_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("broker."):
                used |= {(node.module.removeprefix("broker."), one.name) for one in node.names}
    functions = _functions()
    return _ALWAYS.union(*(functions.get(name, set()) for name in used))


def _attributes_in(tree: ast.AST) -> set[tuple[str, str]]:
    return {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def _functions() -> dict[tuple[str, str], set[str]]:
    """The commands of each function of `broker/`, and of the functions of others that it runs."""
    found, nodes = {}, {}
    for path in (ROOT / "broker").glob("*.py"):
        if path.stem in _NO_COMMANDS:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found[path.stem, node.name] = _commands_in(node)
                nodes[path.stem, node.name] = node
    return {
        name: commands.union(*(found.get(used, set()) for used in _attributes_in(nodes[name])))
        for name, commands in found.items()
    }


def _commands_in(function: ast.FunctionDef) -> set[str]:
    commands = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "call":
            commands |= _commands_of_script(node.args[0].value)
        elif isinstance(node, ast.Constant) and _COMMAND.fullmatch(str(node.value)):
            commands.add(node.value)
    return commands - _ARGUMENTS


def _commands_of_script(name: str) -> set[str]:
    return {
        f"{first} {second}" if first in CONTAINERS else first
        for first, second in _IN_LUA.findall(script(name).source)
    }
