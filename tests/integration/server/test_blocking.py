"""The synchronous executor against a real server."""

import socket
import threading

import pytest
from support.stub_fleet import deploy_model

from batchfleet.broker import fleet, requests
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import RefusedError, UnreachableError, UnusableKeyError


@pytest.fixture(params=["url", "socket_url"])
def url(request, redis_server):
    return getattr(redis_server, request.param)


@pytest.fixture
def executor(url):
    with BlockingExecutor(url, "test-blocking") as executor:
        yield executor


def echo(text):
    return plain(as_is, "ECHO", text)


def test_answers_of_any_size_come_in_order(executor, namespace):
    texts = ["a", "b" * 1_000_000, "", "c"]
    assert executor.run_all([echo(text) for text in texts]) == [text.encode() for text in texts]
    assert executor.run_all([]) == []


def test_unknown_script_is_loaded_alone_and_among_others(executor, server, redis_url, namespace):
    overdue = requests.overdue(deploy_model(redis_url, namespace, "m"), 10)
    server.script_flush()
    assert executor.run(overdue) == []
    server.script_flush()
    assert executor.run_each([echo("a"), overdue, echo("b")]) == [b"a", [], b"b"]


def test_a_refusal_stands_in_its_commands_place(executor, server, namespace):
    server.set(f"{namespace}:text", "x")
    bad = plain(as_is, "LPUSH", f"{namespace}:text", "y")
    refused, answer = executor.run_each([bad, echo("fine")])
    assert (type(refused), refused.code, answer) == (UnusableKeyError, "WRONGTYPE", b"fine")
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        executor.run(bad)
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        executor.run_all([bad, echo("fine")])
    assert executor.run(echo("fine")) == b"fine"


def test_what_cannot_be_packed_harms_nobody(executor):
    with pytest.raises(TypeError):
        executor.run(plain(as_is, "ECHO", None))
    assert executor.run(echo("fine")) == b"fine"


def connections(server):
    return [entry for entry in server.client_list() if entry["name"] == "test-blocking"]


def cut(server):
    for entry in connections(server):
        server.client_kill_filter(_id=entry["id"])


def test_a_connection_that_breaks_under_a_command_is_reported_once_and_recreated(executor, server):
    executor.run(fleet.ping())

    def cut_when_blocked():
        while not any("b" in entry["flags"] for entry in connections(server)):
            pass
        cut(server)

    cutter = threading.Thread(target=cut_when_blocked)
    cutter.start()
    with pytest.raises(UnreachableError):
        executor.run(plain(as_is, "BLPOP", "nothing-there", 10))
    cutter.join(10)
    assert executor.run(echo("again")) == b"again"
    executor.close()
    assert executor.run(echo("again")) == b"again"


def test_a_connection_that_was_cut_while_idle_is_no_event(executor, server):
    for round_ in range(3):
        assert executor.run(echo(str(round_))) == str(round_).encode()
        cut(server)
    assert executor.run_all([echo("a"), echo("b")]) == [b"a", b"b"]
    assert len(connections(server)) == 1


def test_a_server_that_has_gone_meanwhile_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one():
            peer, _ = listener.accept()
            with peer:
                while b"ECHO" not in (chunk := peer.recv(65536)):
                    peer.sendall(b"+OK\r\n" * chunk.count(b"*"))
                listener.close()
                peer.sendall(b"+hello\r\n")

        peer = threading.Thread(target=serve_one)
        peer.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with BlockingExecutor(url, "test") as executor:
            assert executor.run(echo("hello")) == b"hello"
            peer.join(10)
            with pytest.raises(UnreachableError):
                executor.run(echo("anybody"))


def test_a_silent_server_counts_as_broken(url):
    with BlockingExecutor(url, "test-silent", timeout_s=0.05) as executor:
        with pytest.raises(UnreachableError):
            executor.run(plain(as_is, "BLPOP", "nothing-there", 0))
        assert executor.run(echo("again")) == b"again"


def test_what_is_no_answer_counts_as_broken():
    # A peer that greets properly and then talks nonsense, as behind a wrong port.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            peer, _ = listener.accept()
            with peer:
                while chunk := peer.recv(65536):
                    nonsense = b"ECHO" in chunk
                    peer.sendall(b"!nonsense\r\n" if nonsense else b"+OK\r\n" * chunk.count(b"*"))

        peer = threading.Thread(target=serve)
        peer.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        with BlockingExecutor(url, "test") as executor, pytest.raises(UnreachableError):
            executor.run(echo("x"))
        peer.join(10)
    assert not peer.is_alive()
