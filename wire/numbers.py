"""Numbers from outside: each has a range, and one reader for all of them.

Flags, variables, files, records, keyword arguments and fields of a request are held against a
`Range`; it describes what it refuses, and the caller raises the error.
"""

import re
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from .names import shown

_WHOLE = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `lowest` to `highest`, both included; whole ones alone unless said otherwise."""

    lowest: float
    highest: float
    whole: bool = True

    @property
    def words(self) -> str:
        """The range as it stands in a message."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {_plain(self.lowest)} to {_plain(self.highest)}"

    def fault(self, value: Any) -> str:
        """What is wrong with a value, such as `must be …`; empty where nothing is."""
        return "" if self._holds(value) else f"must be {self.words}"

    def _holds(self, value: Any) -> bool:
        # numpy's numbers count among these, `Decimal` does not.
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        number: Any = value
        return bool(self.lowest <= number <= self.highest)  # of NaN neither holds

    def plain(self, value: Any) -> Any:
        """A number within the range in Python's own type: `int` where whole, else `float`."""
        return int(value) if self.whole else float(value)

    def read(self, text: str) -> Any:
        """The number that `text` spells; None where it spells none, or one out of the range."""
        value = number_in(text)
        return value if self._holds(value) else None


def number_in(text: str) -> int | float | None:
    """The number that `text` spells in plain digits; None where it spells none.

    No words (`nan`, `inf`), no underscores, no digits of other scripts.
    """
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else f"{bound:g}"


def shown_value(value: Any) -> str:
    """The start of a value that may be hostile: of any length, and with a `repr` that fails."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "a number of too many digits"
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001 - a foreign class may do anything when it is shown
        return f"a {type(value).__name__}"
    if isinstance(value, str):
        return shown(text)
    return ascii(text[:_SHOWN_CHARACTERS])[1:-1] + ("…" if len(text) > _SHOWN_CHARACTERS else "")


_SHOWN_BITS = 256
_SHOWN_CHARACTERS = 60
