import hiredis
import msgpack
import numpy as np
import pytest

from batchfleet.broker import requests
from batchfleet.broker.looping import pack
from batchfleet.producer.ingress import Ingress
from batchfleet.producer.options import NO_OPTIONS, Options
from batchfleet.wire.errors import CallerError
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request

KEYS = ModelKeys("n", "m")


def parts_of(packed):
    """The command as the server reads it."""
    reader = hiredis.Reader()
    reader.feed(packed)
    parts = reader.gets()
    assert not reader.has_data()
    return parts


@pytest.mark.parametrize("text", ["x", "<id>", "$8\r\n<inputs>", "é" * 5000])
def test_what_is_packed_in_advance_is_the_same_command(text):
    body = msgpack.packb({"text": [text]})
    request = Request("some-id", body, "application/msgpack")
    packed = Ingress(KEYS, "t").pack(NO_OPTIONS, "some-id", text)
    assert packed == pack(requests.submit(KEYS, "t", request).parts)


def test_options_and_rows_are_added():
    array = np.zeros((3, 2), np.float32)
    ingress = Ingress(KEYS, "t")
    plain = parts_of(ingress.pack(NO_OPTIONS, "some-id", array))
    assert plain[:7] == [b"XADD", b"n:{m}:in:t", b"NOMKSTREAM", b"*", b"id", b"some-id", b"inputs"]
    assert dict(zip(plain[8::2], plain[9::2], strict=True)) == {
        b"content_type": b"application/msgpack",
        b"rows": b"3",
    }
    chosen = parts_of(ingress.pack(Options(version="2", priority="low"), "some-id", array))
    assert chosen[:8] == plain[:8]
    assert dict(zip(chosen[8::2], chosen[9::2], strict=True)) == {
        b"content_type": b"application/msgpack",
        b"version": b"2",
        b"priority": b"low",
        b"rows": b"3",
    }


@pytest.mark.parametrize("inputs", [7, [], [1, "a"], np.array([1j]), {"x": [[1], [1, 2]]}])
def test_inputs_that_have_no_wire_form_are_refused(inputs):
    with pytest.raises(CallerError, match="bad_inputs"):
        Ingress(KEYS, "t").pack(NO_OPTIONS, "new-id", inputs)
