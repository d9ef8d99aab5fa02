"""Texts from outside (exceptions, names, outputs of somebody's code) made safe to hand on.

A `str` need not be text: lone surrogates fit no codec, a `str()` may raise, hang on to a hundred
megabytes or be of a class with a will of its own, and a control character moves a terminal's
cursor. All text that enters our code goes through here once.
"""

import re
import unicodedata

from .limits import ERROR_MESSAGE_CHARACTERS_MAX

# Control characters but tab and line end, and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def safe_text(text: str, most: int = ERROR_MESSAGE_CHARACTERS_MAX) -> str:
    r"""Plain text of at most `most` characters that every codec and every terminal takes.

    What they would not take is written as an escape, such as `\ud800`.
    """
    head = str.__getitem__(text, slice(most))  # a plain `str`, in case a derived class overrides it
    return _UNSAFE.sub(_escape, head)[:most]


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def text_of(value: object, most: int = ERROR_MESSAGE_CHARACTERS_MAX) -> str:
    """What `str` makes of any value, safe; says so where its own code keeps it from being shown."""
    try:
        return safe_text(str(value), most)
    except BaseException as error:  # noqa: BLE001  `__str__` is somebody's code and may raise anything
        return f"(its text cannot be shown: {kind_name(error)})"


def kind_name(value: object) -> str:
    """The name of a value's class; its metaclass and `__class__` are not asked."""
    return safe_text(type.__dict__["__name__"].__get__(type(value)))


# Controls, formats (bidirectional marks, zero-width characters, tags), halves of characters, and
# separators of lines that are no line ends.
_MOVING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def terminal_text(text: str, kept: str = "") -> str:
    """Text as a terminal may show it: what moves its cursor, reorders or hides text is an escape.

    One line, but for the characters in `kept`.
    """
    if text.isprintable():
        return text
    return "".join(
        one
        if one in kept or unicodedata.category(one) not in _MOVING
        else one.encode("unicode_escape").decode()
        for one in text
    )
