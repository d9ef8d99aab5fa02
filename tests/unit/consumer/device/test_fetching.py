"""Inputs at a URL: bounded in size and time, and never led elsewhere."""

import socket
import threading
from http.server import BaseHTTPRequestHandler
from time import monotonic

import pytest
from support.fleet import until
from support.pages import served_pages

from batchfleet.consumer.device.fetching import Fetcher, host_of
from batchfleet.service.clock import SystemClock
from batchfleet.wire.deployment import Limits
from batchfleet.wire.errors import ErrorKind, RequestError

TRICKLE_MS = 400


class Pages(BaseHTTPRequestHandler):
    """`/in/good`, one that trickles, one that redirects, one that is not there."""

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append(self.path)
        if name == "moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere/secret")
            self.end_headers()
        elif name == "missing":
            self.send_error(404)
        elif name == "slow_head":
            while not self.server.over.wait(TRICKLE_MS / 8000):
                self.wfile.write(b"H")
                self.wfile.flush()
        elif name == "trickle":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            while not self.server.over.wait(TRICKLE_MS / 8000):
                self.wfile.write(b"x")
                self.wfile.flush()
        else:
            body = b"{}" if name == "empty_body" else b'{"text": ["hello"]}'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"" if name == "empty" else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def pages():
    with served_pages(Pages) as server:
        yield server


def limits(*prefixes, **values):
    return Limits(input_prefixes=prefixes, **values)


def fetch(url, of):
    return Fetcher(SystemClock()).fetch(url, of, "default")


def failure(url, of):
    with pytest.raises(RequestError) as caught:
        fetch(url, of)
    return caught.value.kind


def test_a_page_under_the_prefix_is_read(pages):
    found = fetch(pages.root + "good", limits(pages.root))
    assert found == b'{"text": ["hello"]}'


def test_a_redirect_is_not_followed(pages):
    assert failure(pages.root + "moved", limits(pages.root)) is ErrorKind.FORBIDDEN_REFERENCE
    assert pages.asked == ["/in/moved"]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_what_is_not_there_is_a_missing_payload(pages, name):
    assert failure(pages.root + name, limits(pages.root)) is ErrorKind.PAYLOAD_MISSING


def test_a_server_that_is_not_there_is_a_missing_payload():
    root = "http://127.0.0.1:9/in/"
    assert failure(root + "x", limits(root)) is ErrorKind.PAYLOAD_MISSING


def test_a_body_that_trickles_in_is_given_up(pages):
    slow = limits(pages.root, preprocess_ms=TRICKLE_MS)
    assert failure(pages.root + "trickle", slow) is ErrorKind.PAYLOAD_MISSING


def test_a_head_that_trickles_in_is_given_up_as_soon(pages):
    """X6, T5: one deadline over all of it, and the connection is shut."""
    slow = limits(pages.root, preprocess_ms=TRICKLE_MS)
    threads = threading.active_count()
    began = monotonic()
    assert failure(pages.root + "slow_head", slow) is ErrorKind.PAYLOAD_MISSING
    assert monotonic() - began < 3 * TRICKLE_MS / 2000
    until(lambda: threading.active_count() <= threads, "its thread has ended")


def test_a_server_that_says_nothing_is_given_up():
    """X6: neither to the handshake of TLS nor to the request."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        root = f"https://127.0.0.1:{silent.getsockname()[1]}/in/"
        began = monotonic()
        slow = limits(root, preprocess_ms=TRICKLE_MS)
        assert failure(root + "x", slow) is ErrorKind.PAYLOAD_MISSING
        assert monotonic() - began < 3 * TRICKLE_MS / 2000


def test_a_name_server_that_does_not_answer_is_given_up(monkeypatch):
    """X6: nothing ends a look-up; it is left behind, and the number of a tenant's is bounded."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: over.wait(20) and [])
    fetcher = Fetcher(SystemClock())
    of = limits("http://slow.example/", preprocess_ms=20)

    def failed(tenant="a"):
        with pytest.raises(RequestError) as caught:
            fetcher.fetch("http://slow.example/x", of, tenant)
        return caught.value.message

    threads = threading.active_count()
    said = [failed() for _ in range(40)]
    assert {*said[:32]} == {"reading inputs_at took too long"}
    assert {*said[32:]} == {"too many servers of inputs_at do not respond"}
    assert threading.active_count() - threads <= 32
    assert failed("b") == "reading inputs_at took too long"
    over.set()
    until(lambda: threading.active_count() <= threads, "they end")
    assert "cannot be read" in failed()


def test_hosts_are_told_apart():
    assert host_of("https://A.example:443/x/y") == host_of("https://a.example:443/z")
    assert host_of("https://a.example/x") != host_of("https://b.example/x")
    assert host_of("s3://bucket/x") != host_of("s3://other/x")


def test_a_body_over_the_bound_is_too_large(pages):
    small = limits(pages.root, max_request_bytes=5)
    assert failure(pages.root + "good", small) is ErrorKind.TOO_LARGE


def test_a_url_under_no_prefix_is_not_even_asked(pages):
    other = limits("https://data.example/")
    assert failure(pages.root + "good", other) is ErrorKind.FORBIDDEN_REFERENCE
    assert pages.asked == []


def test_files_are_read_through_fsspec(tmp_path):
    (tmp_path / "x.json").write_bytes(b"{}")
    root = f"file://{tmp_path}/"
    assert fetch(root + "x.json", limits(root)) == b"{}"
    assert failure(root + "y.json", limits(root)) is ErrorKind.PAYLOAD_MISSING
    assert failure(root + "x.json", limits(root, max_request_bytes=1)) is ErrorKind.TOO_LARGE


def test_a_scheme_without_a_backend_is_a_missing_payload():
    root = "nosuch://h/"
    assert failure(root + "x", limits(root)) is ErrorKind.PAYLOAD_MISSING
