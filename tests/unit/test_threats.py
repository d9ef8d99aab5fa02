"""Threats of `docs/security.md` that no other test names: each as somebody would try it."""

import gzip
import pickle
import socket
import sys
import tracemalloc

import orjson
import pytest

from batchfleet.consumer.device.fetching import Fetcher
from batchfleet.consumer.link.protocol import decode
from batchfleet.models.files import is_file_name
from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import Manifest
from batchfleet.models.store import Store
from batchfleet.service.clock import SystemClock
from batchfleet.wire.codec import CONTENT_TYPES, decode_body
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import ErrorKind, RequestError, StoreError
from batchfleet.wire.names import is_name, require_name
from batchfleet.wire.reply import decode_reply
from batchfleet.wire.request import parse_request


class Canary:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return open, (self._path, "w")


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "something ran what it was given"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_unpickles_what_it_is_given(canary, protocol):
    """T1: bodies, frames of the device process, and replies."""
    raw = pickle.dumps(Canary(canary), protocol)
    for content_type in CONTENT_TYPES:
        with pytest.raises(RequestError):
            decode_body(raw, content_type)
    with pytest.raises(Exception, match=r"."):
        decode(raw)
    with pytest.raises(ValueError, match=r"."):
        decode_reply(raw)


def test_weights_are_read_by_a_loader_that_runs_nothing(canary, tmp_path):
    """T2: a pickle under the name of weights is refused, with no other loader to fall back to."""
    loader = pytest.importorskip("batchfleet.models.runtimes.torch_encoder")
    path = tmp_path / "model.safetensors"
    path.write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(Exception, match=r"(?i)header|safetensor"):
        loader.load_file(path)


OUT_OF_THE_STORE = (
    "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "..", ".", "", "a\\..\\b", "a/../b",
    "manifest.json", "a\x00b", "~/x", "-x", ".hidden", "a b", "a\n", "x" * 600,
)  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_THE_STORE, ids=ascii)
def test_a_file_of_a_version_lies_in_its_folder(name):
    """T3: no name of a manifest leads elsewhere."""
    assert not is_file_name(name)
    wire = orjson.loads(builtin_draft("echo").to_json())
    wire["files"] = {name: {"sha256": "0" * 64, "size_bytes": 1}}
    with pytest.raises(StoreError):
        Manifest.from_json(orjson.dumps(wire))


HOSTILE_NAMES = (
    "", ".", "..", "../x", "..%2f", "a/b", "a\\b", "/etc", "~", "a..b", "a{b", "a}b", "{a}", "a:b",
    "a b", " a", "a ", "a\n", "a\r", "a\r\nX: y", "a\x00", "\x1b[2J", "a\tb", "-a", "_a", ".a",
    "a*", "a?", "a[b]", "a|b", "a;b", "a'b", 'a"b', "a`b`", "$(a)", "a&b", "a#b", "a@b", "a%00b",
    "é", "\u0430dmin", "a\u202eb", "a\u200bb", "\uff41", "a" * 129, "a" * 10_000, "\ud800", "🙂",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_a_name_is_of_one_alphabet_wherever_it_becomes_a_key_or_a_path(name, tmp_path):
    """T4: over 40 hostile names; the message shows them as an escape."""
    assert not is_name(name)
    store = Store(str(tmp_path))
    for act in (
        lambda: require_name("model", name),
        lambda: store.has(name, "1"),
        lambda: store.manifest("m", name),
        lambda: store.versions(name),
    ):
        with pytest.raises(RequestError) as caught:
            act()
        assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_over_forty_hostile_names_are_tried():
    """T4: the number that was asked for."""
    assert len(set(HOSTILE_NAMES)) >= 40


URLS = (
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "file:///etc/passwd",
    "http://127.0.0.1:{port}/", "http://localhost:{port}/x", "ftp://127.0.0.1:{port}/x",
    "https://data.example@127.0.0.1:{port}/", "https://data.example.127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/", "simplecache::http://127.0.0.1:{port}/",
)  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_no_request_makes_us_ask_another_server(url):
    """T5: with and without prefixes that are allowed, nothing is connected to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        aimed = url.format(port=listener.getsockname()[1])
        for prefixes in ((), ("https://data.example/",)):
            with pytest.raises(RequestError) as caught:
                Fetcher(SystemClock()).fetch(aimed, Limits(input_prefixes=prefixes), "t")
            assert caught.value.kind is ErrorKind.FORBIDDEN_REFERENCE
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("layers", [1, 2])
def test_no_body_is_unpacked(layers):
    """T8: a gzip bomb is no JSON and no msgpack, and is not made larger to find out."""
    raw = gzip.compress(bytes(20_000_000))
    if layers == 2:
        raw = gzip.compress(raw)
    tracemalloc.start()
    try:
        for content_type in CONTENT_TYPES:
            with pytest.raises(RequestError):
                decode_body(raw, content_type)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["content_encoding", "content-encoding", "encoding"])
def test_a_field_that_asks_for_unpacking_changes_nothing(name):
    """T8: there is no such option."""
    body = gzip.compress(b'{"text": ["x"]}')
    flat = [b"id", b"a", name.encode(), b"gzip", b"inputs", body]
    assert parse_request(flat, 1_000_000).inputs == body


@pytest.mark.parametrize("name", ["os.system", "antigravity", "builtins.eval", "this:x", "a.b.C"])
def test_what_an_error_is_called_imports_and_builds_nothing(name):
    """T17: an error's class is told by its code alone, and its words stay words."""
    error = {"code": 130, "name": name, "source": name, "message": name, "type": name}
    raw = orjson.dumps({"id": "a", "tenant": "t", "status": "error", "error": error})
    before = set(sys.modules)
    found = decode_reply(raw).to_error()
    assert type(found) in (RequestError, *RequestError.__subclasses__(), *_kinds())
    assert found.message == name
    assert set(sys.modules) == before


def _kinds():
    waiting, found = [RequestError], []
    while waiting:
        kinds = waiting.pop().__subclasses__()
        found += kinds
        waiting += kinds
    return found
