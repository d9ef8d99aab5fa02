"""Inputs at a URL: bounded in size and time, and never led elsewhere."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from batchfleet.consumer.device.fetching import fetch
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
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.asked, server.over = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.root = f"http://127.0.0.1:{server.server_port}/in/"
    yield server
    server.over.set()
    server.shutdown()
    thread.join(10)
    server.server_close()


def limits(*prefixes, **values):
    return Limits(input_prefixes=prefixes, **values)


def failure(url, of):
    with pytest.raises(RequestError) as caught:
        fetch(url, of, SystemClock())
    return caught.value.kind


def test_a_page_under_the_prefix_is_read(pages):
    found = fetch(pages.root + "good", limits(pages.root), SystemClock())
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
    assert fetch(root + "x.json", limits(root), SystemClock()) == b"{}"
    assert failure(root + "y.json", limits(root)) is ErrorKind.PAYLOAD_MISSING
    assert failure(root + "x.json", limits(root, max_request_bytes=1)) is ErrorKind.TOO_LARGE


def test_a_scheme_without_a_backend_is_a_missing_payload():
    root = "nosuch://h/"
    assert failure(root + "x", limits(root)) is ErrorKind.PAYLOAD_MISSING
