"""What callers give beside the inputs: within its range, or refused by name before it is sent."""

import math
from decimal import Decimal

import numpy as np
import pytest

from batchfleet import AsyncClient, Client
from batchfleet.producer.errors import ClientClosedError
from batchfleet.producer.options import Options
from batchfleet.producer.result import Handle
from batchfleet.wire.errors import CallerError, SettingsError
from batchfleet.wire.request import FIELD_RANGES

URL = "redis://127.0.0.1:1"
NO_NUMBERS = [math.nan, math.inf, -math.inf, True, "5", Decimal(5), 10**400, np.float32("nan"),
              np.array([1, 2]), object, [1]]  # fmt: skip
NUMBERS = ("timeout_ms", "delay_ms", "retries", "result_ttl_ms", "length")
CHOICES = ("priority", "truncate", "accept")
TEXTS = ("id", "version", "meta", "traceparent")


@pytest.fixture
def client():
    with Client(URL) as client:
        yield client


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [*NO_NUMBERS, -1, 1.5, 0.0], ids=repr)
def test_numbers_out_of_their_range(client, name, value):
    words = f"bad_request .*{name} must be {FIELD_RANGES[name].words}, not"
    for give in (
        lambda: Options(**{name: value}),
        lambda: Client(URL, defaults={name: value}),
        lambda: AsyncClient(URL, defaults={name: value}),
        lambda: client.submit("m", "x", **{name: value}),
        lambda: client.infer("m", "x", **{name: value}),
        lambda: list(client.map("m", ["x"], **{name: value})),
    ):
        with pytest.raises(CallerError, match=words):
            give()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_at_both_ends_of_their_range(name):
    for value in (FIELD_RANGES[name].lowest, FIELD_RANGES[name].highest):
        given = getattr(Options(**{name: np.int64(value)}), name)
        assert (given, type(given)) == (value, int)
        for outside in (FIELD_RANGES[name].lowest - 1, FIELD_RANGES[name].highest + 1):
            with pytest.raises(CallerError):
                Options(**{name: outside})


@pytest.mark.parametrize("name", [*CHOICES, *TEXTS, "outputs", "parameters"])
@pytest.mark.parametrize("value", [*NO_NUMBERS[:4], *NO_NUMBERS[5:], b"x", "\ud800"], ids=repr)
def test_what_is_no_text_or_no_choice(client, name, value):
    with pytest.raises(CallerError, match=name):
        client.submit("m", "x", **{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, {"deep": [math.nan]}, 2**64], ids=repr)
def test_parameters_that_json_does_not_have(client, value):
    with pytest.raises(CallerError, match=r"bad_request .*parameters"):
        client.submit("m", "x", parameters={"t": value})


@pytest.mark.parametrize("seconds", [*NO_NUMBERS, -1, 100_001], ids=repr)
def test_how_long_to_wait(client, seconds):
    for wait in (client.result, client.cancel):
        with pytest.raises(CallerError, match="timeout_s must be a number from 0 to 100000"):
            wait(("m", "i"), seconds)


@pytest.mark.parametrize("count", [*NO_NUMBERS, 0, -1, 10_001, 1.0], ids=repr)
def test_how_many_at_a_time(client, count):
    with pytest.raises(CallerError, match="concurrency must be a whole number from 1 to 10000"):
        list(client.map("m", ["x"], concurrency=count))


@pytest.mark.parametrize("name", [5, None, b"m", ["m"], np.array(["m"]), "a:b", math.nan], ids=repr)
def test_names(client, name):
    for call in (
        lambda: client.infer(name, "x"),
        lambda: client.poll((name, "i")),
        lambda: client.poll(("m", name)),
        lambda: client.status(Handle("m", name)),
        lambda: Client(URL, namespace=name) if name is not None else client.infer(None, "x"),
    ):
        with pytest.raises(CallerError, match="not a name"):
            call()


@pytest.mark.parametrize("handle", ["ab", b"ab", 5, ("m",), ("m", "i", b"1-0"), {"m": 1, "i": 2}])
def test_what_is_no_handle(client, handle):
    with pytest.raises(CallerError, match="the handle that `submit` returned"):
        client.poll(handle)


@pytest.mark.parametrize("timeout_ms", [math.nan, -1, "5", 10**12])
def test_a_handle_that_somebody_made_up(client, timeout_ms):
    with pytest.raises(CallerError, match="timeout_ms of the handle"):
        client.result(Handle("m", "i", None, timeout_ms))


@pytest.mark.parametrize(
    "url",
    ["localhost", "redis://h:99999", "redis://h:0", "redis://h:abc", "redis://h/abc", 5, b"redis://h",
     "redis://h/99999999999", "redis://[::1", "redis://h?socket_timeout=nan", "redis://h?db=x",
     "redis://h?max_connections=0", "unix:///x?db=zz"],
)  # fmt: skip
def test_urls_of_no_server(url):
    with pytest.raises(SettingsError, match=r"URL|redis_url"):
        Client(url).poll(("m", "i"))


def test_a_client_that_was_refused_its_defaults_is_no_client():
    with pytest.raises(CallerError):
        Client(URL, defaults={"timeout_ms": 0})
    closed = Client(URL)
    closed.close()
    with pytest.raises(ClientClosedError):
        closed.poll(("m", "i"))
