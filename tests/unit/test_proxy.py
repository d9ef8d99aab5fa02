"""The fault proxy against a server of the test's own that answers each line by itself."""

import socket
import threading
from time import monotonic

import pytest
from support.fleet import until
from support.proxy import running_proxy

PATIENCE_S = 5.0
SHORT_S = 0.3


class LineServer:
    """Answers every line with itself, and keeps what it was sent."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.heard = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock):
        with sock, sock.makefile("rb") as lines:
            try:
                for line in lines:
                    self.heard.append(line)
                    sock.sendall(line)
            except OSError:
                return


@pytest.fixture
def server():
    found = LineServer()
    yield found
    found.listener.close()


@pytest.fixture
def proxy(server):
    with running_proxy(server.port) as found:
        yield found


def connected(proxy):
    sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)
    assert asked(sock, b"hello\n") == b"hello\n"
    return sock


def asked(sock, line):
    sock.sendall(line)
    return sock.recv(1024)


def test_what_is_sent_passes_both_ways_and_large_things_too(proxy):
    line = b"x" * 8_000_000 + b"\n"
    with connected(proxy) as sock:
        threading.Thread(target=sock.sendall, args=(line,), daemon=True).start()
        with sock.makefile("rb") as answers:
            assert answers.readline() == line
    until(lambda: proxy.connections() == 0, "a closed connection is forgotten")


def test_a_cut_is_an_end_and_a_reset_is_an_error(proxy):
    with connected(proxy) as sock:
        proxy.cut()
        assert sock.recv(1) == b""
    with connected(proxy) as sock:
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    with connected(proxy):
        assert proxy.connections() == 1


def test_a_black_hole_keeps_connections_open_and_says_nothing(proxy, server):
    with connected(proxy) as sock:
        proxy.freeze()
        sock.settimeout(SHORT_S)
        with pytest.raises(TimeoutError):
            asked(sock, b"into the hole\n")
        with (
            socket.create_connection(("127.0.0.1", proxy.port), timeout=SHORT_S) as late,
            pytest.raises(TimeoutError),
        ):
            asked(late, b"into the hole\n")
        assert server.heard == [b"hello\n"]
        proxy.thaw()
        sock.settimeout(PATIENCE_S)
        assert sock.recv(1024) == b"into the hole\n"


def test_a_black_hole_for_present_connections_lets_new_ones_work(proxy):
    with connected(proxy) as sock:
        proxy.freeze_present()
        with connected(proxy):
            sock.settimeout(SHORT_S)
            with pytest.raises(TimeoutError):
                asked(sock, b"into the hole\n")


@pytest.mark.parametrize("way", ["to_server_ms", "to_client_ms"])
def test_a_delay_holds_back_one_way(proxy, way):
    with connected(proxy) as sock:
        proxy.delay(**{way: 150})
        before = monotonic()
        assert asked(sock, b"slow\n") == b"slow\n"
        assert monotonic() - before >= 0.15
        proxy.delay()
        assert asked(sock, b"quick\n") == b"quick\n"


def test_exactly_one_reply_is_swallowed_and_its_request_arrives(proxy, server):
    with connected(proxy) as sock:
        sprung = proxy.swallow_reply(b"fin", b"ish")
        assert asked(sock, b"fin\n") == b"fin\n"
        assert not sprung.is_set()
        assert asked(sock, b"finish\n") == b""
        assert sprung.is_set()
    with connected(proxy) as sock:
        assert asked(sock, b"finish\n") == b"finish\n"
    assert server.heard.count(b"finish\n") == 2


def test_a_request_is_cut_before_it_arrives(proxy, server):
    with connected(proxy) as sock:
        sprung = proxy.cut_request(b"finish")
        assert asked(sock, b"finish\n") == b""
        assert sprung.is_set()
    with connected(proxy) as sock:
        assert asked(sock, b"finish\n") == b"finish\n"
    assert server.heard.count(b"finish\n") == 1


def test_a_trap_springs_as_often_as_it_is_told(proxy):
    sprung = proxy.cut_request(b"finish", times=2)
    for _ in range(2):
        assert not sprung.is_set()
        with connected(proxy) as sock:
            assert asked(sock, b"finish\n") == b""
    assert sprung.is_set()
    with connected(proxy) as sock:
        assert asked(sock, b"finish\n") == b"finish\n"


def test_connections_are_refused_until_they_are_admitted(proxy):
    port = proxy.port
    with connected(proxy):
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connected(proxy)
    proxy.admit()
    assert proxy.port == port
    with connected(proxy) as sock:
        assert asked(sock, b"again\n") == b"again\n"


def test_stopping_ends_thread_and_connections(server):
    with running_proxy(server.port) as proxy:
        sock = connected(proxy)
    with sock:
        assert sock.recv(1) == b""
    proxy.stop()
    assert not proxy._thread.is_alive()
