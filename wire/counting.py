"""How much a body makes of its bytes, told before it is decoded.

A byte or two of a body can stand for an object of a hundred bytes that takes a microsecond to make.
Numbers are cheap, and bounded by `ELEMENTS_MAX`; lists and maps are counted here, and texts, byte
strings and nulls, which no tensor has so many of.
"""

import re
from itertools import islice

from .limits import LISTS_MAX, TEXTS_MAX

# JSON. What stands in a text is no list; one that is not closed goes on to the end.
_JSON_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_JSON_MARKS = bytes({*range(0x100)} - {*b'",[{'})

# msgpack. A run of numbers, true and false, with what belongs to them.
_NUMBERS = re.compile(
    rb"(?:[\x00-\x7f\xc2\xc3\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1]..|[\xca\xce\xd2].{4}"
    rb"|[\xcb\xcf\xd3].{8})*+",
    re.DOTALL,
)
_NO_MARKERS = bytes({*range(0x80), 0xC1, 0xC2, 0xC3, *range(0xC7, 0xD9), *range(0xE0, 0x100)})
_NIL = 0xC0
_LISTS_AND_MAPS = {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5}
_TEXTS_AND_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def check_json(raw: bytes) -> None:
    """Pass where a body, if it is JSON, holds no more lists and texts than allowed.

    Raises:
        ValueError: it holds more.
    """
    if len(raw) <= min(LISTS_MAX, TEXTS_MAX):
        return
    marks = raw.translate(None, _NO_JSON_MARKS)
    if marks.count(b'"') > 2 * TEXTS_MAX:
        texts = islice(_JSON_TEXT.finditer(raw), TEXTS_MAX, None)
        _check(0, TEXTS_MAX + (next(texts, None) is not None))
    many_nulls = marks.count(b",") >= TEXTS_MAX and raw.count(b"null") > TEXTS_MAX
    if many_nulls or marks.count(b"[") + marks.count(b"{") > LISTS_MAX:
        bare = _JSON_TEXT.sub(b"", raw)
        _check(bare.count(b"[") + bare.count(b"{"), bare.count(b"null"))


def check_msgpack(raw: bytes) -> None:
    """The same for a body that is msgpack."""
    if len(raw.translate(None, _NO_MARKERS)) <= min(LISTS_MAX, TEXTS_MAX):
        return
    lists = texts = at = 0
    while at < len(raw):
        if lists > LISTS_MAX or texts > TEXTS_MAX:
            break
        marker = raw[at]
        if 0x80 <= marker < 0xA0:
            lists, at = lists + 1, at + 1
        elif 0xA0 <= marker < 0xC0:
            texts, at = texts + 1, at + 1 + (marker & 31)
        elif marker == _NIL:
            texts, at = texts + 1, at + 1
        elif marker in _TEXTS_AND_BYTES:
            end = at + 1 + _TEXTS_AND_BYTES[marker]
            texts, at = texts + 1, end + int.from_bytes(raw[at + 1 : end])
        elif marker in _LISTS_AND_MAPS:
            lists, at = lists + 1, at + _LISTS_AND_MAPS[marker]
        else:
            before, at = at, _end_of_numbers(raw, at)
            if at == before:
                return  # no marker that the contract knows, or one that is cut off: refused later
    _check(lists, texts)


def _end_of_numbers(raw: bytes, at: int) -> int:
    found = _NUMBERS.match(raw, at)
    return at if found is None else found.end()


def _check(lists: int, texts: int) -> None:
    if lists > LISTS_MAX:
        raise ValueError(f"more than {LISTS_MAX} lists and maps")
    if texts > TEXTS_MAX:
        raise ValueError(f"more than {TEXTS_MAX} texts and nulls")
