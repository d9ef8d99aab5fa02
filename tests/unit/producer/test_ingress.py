import hiredis
import msgpack
import numpy as np
import pytest

from batchfleet.broker import requests
from batchfleet.broker.packing import pack
from batchfleet.producer.ingress import Ingress
from batchfleet.producer.options import NO_OPTIONS, Options
from batchfleet.wire.errors import CallerError
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.limits import INPUTS_BYTES_MAX, TIMEOUT_MS_MAX
from batchfleet.wire.request import Request

KEYS = ModelKeys("n", "m")


def parts_of(packed):
    """The command as the server reads it."""
    reader = hiredis.Reader()
    reader.feed(packed if isinstance(packed, bytes) else packed.add)
    parts = reader.gets()
    assert not reader.has_data()
    return parts


@pytest.mark.parametrize("text", ["x", "<id>", "$8\r\n<inputs>", "é" * 5000])
def test_what_is_packed_in_advance_is_the_same_command(text):
    body = msgpack.packb({"text": [text]})
    request = Request("some-id", body, "application/msgpack")
    entry = Ingress(KEYS, "t").pack(NO_OPTIONS, "some-id", text)
    assert entry.add == pack(requests.submit(KEYS, "t", request).parts)
    assert (entry.keys, entry.request_id, entry.store) == (KEYS, "some-id", None)


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


@pytest.mark.parametrize(
    ("timeout_ms", "ttl_ms"), [(5000, 25_000), (None, TIMEOUT_MS_MAX + 20_000)]
)
def test_large_inputs_go_under_a_blob_key_first(timeout_ms, ttl_ms):
    text = "x" * 70_000
    body = msgpack.packb({"text": [text]})
    options = Options(timeout_ms=timeout_ms, id="some-id")
    entry = Ingress(KEYS, "t").pack(options, "some-id", text)
    assert parts_of(entry.store) == [
        b"SET", b"n:{m}:blob:t:some-id", body, b"PX", str(ttl_ms).encode()
    ]  # fmt: skip
    added = parts_of(entry)[4:]
    fields = dict(zip(added[::2], added[1::2], strict=True))
    assert fields[b"inputs_at"] == b"blob"
    assert fields[b"inputs_bytes"] == str(len(body)).encode()
    assert b"inputs" not in fields


@pytest.mark.parametrize("inputs", [7, [], [1, "a"], np.array([1j]), {"x": [[1], [1, 2]]}])
def test_inputs_that_have_no_wire_form_are_refused(inputs):
    with pytest.raises(CallerError, match="bad_inputs"):
        Ingress(KEYS, "t").pack(NO_OPTIONS, "new-id", inputs)


def test_inputs_over_the_ceiling_of_the_contract_are_refused_before_they_are_sent():
    ingress = Ingress(KEYS, "t")
    fitting = np.zeros((1, INPUTS_BYTES_MAX - 100), np.uint8)
    assert ingress.pack(NO_OPTIONS, "new-id", fitting).store is not None
    with pytest.raises(CallerError, match=f"too_large.*{INPUTS_BYTES_MAX} are allowed"):
        ingress.pack(NO_OPTIONS, "new-id", np.zeros((1, INPUTS_BYTES_MAX), np.uint8))
