"""X8: what a command prints goes through one place, which makes foreign texts safe to show."""

import re
from pathlib import Path

COMMANDS = Path(__file__).parents[2] / "ops" / "cli"
_PRINTS = re.compile(r"click\.s?echo\(|^\s*print\(|sys\.std(?:out|err)\.write|Table\(|markup=True")
# The place itself, and how errors and broken streams are told.
_OWNERS = {"output.py", "failures.py", "streams.py"}


def test_commands_print_through_one_place():
    """X8: `say`, `warn`, `complain`, `print_json`, `make_table`."""
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(COMMANDS.glob("*.py"))
        if path.name not in _OWNERS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _PRINTS.search(line)
    ]
    assert not found, "\n".join(found)
