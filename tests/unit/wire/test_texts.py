import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.wire.texts import kind_name, safe_text, text_of


class Word(str):
    __slots__ = ()

    def __getitem__(self, key):
        raise KeyError

    __len__ = __str__ = encode = __getitem__


class Panic(BaseException):
    def __str__(self):
        raise Panic


class OddClass(type):
    @property
    def __name__(cls):
        raise Panic


class Odd(metaclass=OddClass):
    @property
    def __class__(self):
        raise Panic


@given(st.text(st.characters(), max_size=700))
def test_safe_text_fits_every_codec_and_its_bound(text):
    safe = safe_text(text, 500)
    assert len(safe) <= 500
    assert safe.encode().decode() == safe
    assert safe_text(safe, 500) == safe
    assert not any(ord(character) < 32 and character not in "\t\n" for character in safe)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain é 日本 👩‍👩‍👧\n\t", "plain é 日本 👩‍👩‍👧\n\t"),
        ("\ud800\x00\x1b[2J\r\x9b", "\\ud800\\x00\\x1b[2J\\x0d\\x9b"),
        (KeyError("x"), "'x'"),
        (Panic(), "(its text cannot be shown: Panic)"),
        pytest.param(10**5000, "(its text cannot be shown: ValueError)", id="digits"),
        (None, "None"),
    ],
)
def test_any_value_has_a_text(value, shown):
    assert text_of(value) == shown.replace("\\x0d", "\\r")


def test_a_text_is_plain_whatever_its_class():
    assert type(safe_text(Word("odd"))) is str
    assert json.dumps(safe_text(Word("odd"))) == '"odd"'
    assert safe_text("x" * 10_000_000, 3) == "xxx"


def test_a_class_has_a_name_whatever_it_says():
    assert kind_name(Odd()) == "Odd"
    assert kind_name(Panic()) == "Panic"
