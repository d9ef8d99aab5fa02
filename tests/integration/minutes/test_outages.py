"""A server that goes away and comes back, connections that break, and keys that are spoilt.

Longer outages are for acceptance; here they are short, and what is counted is the same.
"""

import os
import signal
import socket
import threading
from contextlib import contextmanager
from time import monotonic

import psutil
import pytest
from support.fleet import PATIENCE_S, check_all_ok, draft_of, limits, running_fleet, until
from support.ports import free_port
from support.proxy import FaultProxy
from support.server import ServerAddress, url_as

from batchfleet.broker.commands import script
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from batchfleet.consumer.worker.intake import BELL_TIMEOUT_S
from batchfleet.wire.keys import DEFAULT_TENANT

MODEL = "m"
BACK_S = 5.0


class MortalServer:
    """A private server that dies on demand and comes back with its data."""

    def __init__(self, program, folder):
        self._options = ServerOptions(
            program=program, port=free_port(), folder=folder, append_only=True
        )
        self._server = EmbeddedServer(self._options)
        self._server.start()

    @property
    def port(self):
        return self._options.port

    @property
    def password(self):
        return self._options.password

    @property
    def address(self):
        return ServerAddress(url=self._server.url, socket_url=self._server.url, pid=None)

    def die(self):
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.stop()

    def live(self):
        self._server = EmbeddedServer(self._options)
        self._server.start()

    def stop(self):
        self._server.stop()


@pytest.fixture
def mortal(server_program, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    server = MortalServer(server_program, folder)
    yield server
    server.stop()


@pytest.fixture
def fleet(mortal, namespace, tmp_path):
    with running_fleet(mortal.address, namespace, tmp_path) as found:
        found.server.config_set("appendfsync", "always")
        yield found


def started(fleet, draft=None, workers=1):
    """A router and workers that are ready; (router, workers)."""
    fleet.bring_up(draft or draft_of("echo", MODEL), workers=workers)
    return fleet.routers[0], fleet.workers


@contextmanager
def counted_attempts(port):
    """Let nobody in where the server was, and count who knocks; gives the list of moments."""
    knocks = []
    listener = socket.create_server(("127.0.0.1", port), backlog=128)

    def turn_away():
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            knocks.append(monotonic())
            caller.close()

    thread = threading.Thread(target=turn_away, daemon=True)
    thread.start()
    try:
        yield knocks
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(BACK_S)


def lines_of(program):
    return len(program.log_text().splitlines())


def cpu_s(program):
    times = psutil.Process(program.pid).cpu_times()
    return times.user + times.system


@pytest.mark.parametrize("away_s", [0.5, 2.0])
def test_a_server_that_dies_and_comes_back_is_waited_for(fleet, mortal, away_s):
    router, (worker,) = started(fleet)
    programs = (router, worker)
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:50"}] * 20)
    until(lambda: fleet.items(MODEL, ids[0]), "work is under way")
    lines = [lines_of(program) for program in programs]
    mortal.die()
    with counted_attempts(mortal.port) as knocks:
        before = [cpu_s(program) for program in programs]
        threading.Event().wait(away_s)  # the outage is what is tested, not waited for
        burnt = [cpu_s(program) - was for program, was in zip(programs, before, strict=True)]
    mortal.live()
    back = monotonic()
    check_all_ok(fleet.replies(MODEL, ids))
    assert fleet.ask(MODEL).status == "ok"
    assert monotonic() - back < BACK_S
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)
    # Each loop finds out once, and each program asks twice a second or less after its first tries.
    assert 2 <= len(knocks) <= 2 * (10 + 2 * away_s)
    assert all(spent < max(0.1, 0.1 * away_s) for spent in burnt), burnt
    for program, was in zip(programs, lines, strict=True):
        assert program.is_running()
        until(lambda program=program: program.events("server.back"), "its return is told")
        assert lines_of(program) - was <= 20
    assert not worker.events("worker.fenced"), "nobody is buried for the server's fault"


def test_connections_killed_three_times_in_a_row_are_recreated(fleet):
    router, (worker,) = started(fleet)
    for _ in range(3):
        assert fleet.server.client_kill_filter(_type="normal", skipme=True) > 0
        until(
            lambda: any(entry["name"].endswith("-keeper") for entry in fleet.server.client_list()),
            "some are back",
        )
    began = monotonic()
    ids = fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(100)])
    check_all_ok(fleet.replies(MODEL, ids))
    assert monotonic() - began < 10
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)
    assert max(lines_of(router), lines_of(worker)) <= 20


def test_idle_connections_that_the_server_closes_are_no_event(fleet):
    """`timeout 1`: whoever says nothing for a second is cut, and comes back without a word."""
    router, (worker,) = started(fleet)
    lines = [lines_of(program) for program in (router, worker)]
    for _ in range(2):
        assert fleet.ask(MODEL).status == "ok"
        fleet.server.config_set("timeout", 0)
        before = len(fleet.server.client_list())
        fleet.server.config_set("timeout", 1)
        until(lambda before=before: len(fleet.server.client_list()) < before - 1, "some are cut")
    assert fleet.ask(MODEL).status == "ok"
    assert [lines_of(program) for program in (router, worker)] == lines


# Connections that break in worse ways, behind a proxy.


@pytest.fixture
def proxy(mortal):
    proxy = FaultProxy(mortal.port, mortal.password).start()
    yield proxy
    proxy.stop()


def behind(fleet, proxy, **settings):
    """A worker whose connections go through the proxy."""
    straight, fleet.url = fleet.url, proxy.url
    worker = fleet.start("consumer", **settings)
    fleet.url = straight
    return worker.wait_until_ready()


def test_a_reset_during_the_wait_and_a_swallowed_first_answer_do_not_silence_intake(fleet, proxy):
    fleet.deploy(draft_of("echo", MODEL))
    worker = behind(fleet, proxy)
    fleet.router()
    fleet.wait_routed(MODEL)
    assert fleet.ask(MODEL).status == "ok"
    swallowed = proxy.swallow_reply(b"BLPOP")
    proxy.reset()
    assert swallowed.wait(BACK_S), "intake has come back and waits again"
    began = monotonic()
    assert fleet.ask(MODEL).status == "ok"
    assert monotonic() - began < 2 * BELL_TIMEOUT_S + 5
    assert lines_of(worker) <= 20


def test_a_black_hole_is_noticed(fleet, proxy):
    """Nothing is closed, nothing is refused: only time tells."""
    fleet.deploy(draft_of("echo", MODEL))
    worker = behind(fleet, proxy)
    fleet.router()
    fleet.wait_routed(MODEL)
    assert fleet.ask(MODEL).status == "ok"
    proxy.freeze_present()
    bound_s = 2 * BELL_TIMEOUT_S + 5
    until(lambda: worker.events("server.lost"), "it is noticed", bound_s)
    assert fleet.ask(MODEL).status == "ok"
    until(lambda: worker.events("server.back"), "its return is told")


def test_what_was_taken_over_in_an_answer_that_got_lost_is_found(fleet, proxy):
    """The entries of a dead peer are pending for the heir, who was never told of them."""
    lease = {"lease_ms": 900, "beat_ms": 300, "recover_ms": 300}
    fleet.deploy(draft_of("echo", MODEL, limits=limits(max_batch_size=8)))
    prey = fleet.consumer(**lease)
    fleet.router()
    fleet.wait_routed(MODEL)
    ids = fleet.submit_all(MODEL, [{"text": f"!sleep:300 {at}"} for at in range(4)])
    until(lambda: fleet.pending(MODEL) == 4, "the first worker holds all of them")
    prey.signal(signal.SIGSTOP)
    swallowed = proxy.swallow_reply(
        script("recover").sha.encode(), fleet.keys(MODEL).queue("1", "normal", 0).encode()
    )
    behind(fleet, proxy, **lease)
    assert swallowed.wait(PATIENCE_S), "the heir has taken over, and does not know"
    check_all_ok(fleet.replies(MODEL, ids))
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)


@pytest.mark.parametrize("rights", [("-evalsha",), ("nopass", "off"), ("resetkeys",)])
def test_programs_that_are_not_let_in_any_more_end_and_say_why(fleet, rights):
    admin = fleet.server
    admin.execute_command("ACL", "SETUSER", "fleet", "on", ">x", "~*", "&*", "+@all")
    plain_url, fleet.url = fleet.url, url_as(fleet.url, "fleet", "x")
    router, workers = started(fleet)
    fleet.url = plain_url
    admin.execute_command("ACL", "SETUSER", "fleet", *rights)
    admin.client_kill_filter(_type="normal", skipme=True)
    for program in (router, *workers):
        assert program.wait() == 1
        assert "the server refused" in program.log_text()
        assert "Traceback" not in program.log_text()
        assert lines_of(program) <= 20


def test_a_stream_of_the_wrong_type_stops_no_other_tenant(fleet):
    record = fleet.store.publish(draft_of("echo", MODEL), {}).record()
    fleet.deploy_record(MODEL, record, tenants=(DEFAULT_TENANT, "spoilt"))
    fleet.consumer()
    fleet.wait_served(MODEL)
    router = fleet.router()
    fleet.wait_routed(MODEL, "spoilt")
    spoilt = fleet.keys(MODEL).ingress("spoilt")
    with fleet.server.pipeline(transaction=True) as pipe:
        pipe.delete(spoilt).set(spoilt, "x").execute()
    check_all_ok([fleet.ask(MODEL) for _ in range(3)])
    (told,) = until(lambda: router.events("stream.unusable"), "it is told")
    assert spoilt in told["reason"]
    fleet.server.delete(spoilt)
    until(lambda: fleet.server.exists(spoilt), "the stream is recreated")
    request = fleet.submit(MODEL, tenant="spoilt")
    check_all_ok([fleet.reply(MODEL, request, tenant="spoilt")])
    assert lines_of(router) <= 20


def test_a_work_stream_of_the_wrong_type_is_answered_and_told_of(fleet):
    router, _ = started(fleet)
    normal = fleet.keys(MODEL).queue("1", "normal", 0)
    assert normal in fleet.queues(MODEL)
    with fleet.server.pipeline(transaction=True) as pipe:
        pipe.delete(normal).set(normal, "x").execute()
    assert fleet.ask(MODEL).error["name"] == "unavailable"
    assert fleet.ask(MODEL, priority="high").status == "ok"
    until(lambda: router.events("stream.unusable"), "the router tells of it")
    fleet.server.delete(normal)
    until(lambda: fleet.server.exists(normal), "the stream is recreated")
    assert fleet.ask(MODEL).status == "ok"
    assert len(router.events("stream.unusable")) == 1


def test_ids_that_are_used_up_stop_no_other_tenant(fleet):
    record = fleet.store.publish(draft_of("echo", MODEL), {}).record()
    fleet.deploy_record(MODEL, record, tenants=(DEFAULT_TENANT, "greedy"))
    fleet.consumer()
    fleet.wait_served(MODEL)
    router = fleet.router()
    fleet.wait_routed(MODEL, "greedy")
    highest = "18446744073709551615-18446744073709551615"
    stream = fleet.keys(MODEL).ingress("greedy")
    fleet.server.xadd(stream, {"id": "last", "inputs": '{"text": ["x"]}'}, id=highest)
    assert fleet.reply(MODEL, "last", tenant="greedy").error["name"] == "bad_request"
    (told,) = until(lambda: router.events("stream.ids_ahead"), "it is told")
    assert (told["tenant"], told["entry_id"]) == ("greedy", highest)
    assert fleet.ask(MODEL).status == "ok"


@pytest.mark.parametrize(
    ("setting", "spoilt", "sound"),
    [("min-replicas-to-write", "1", "0"), ("maxmemory", "1", "0")],
)
def test_what_is_finished_is_kept_while_nothing_can_be_written(fleet, setting, spoilt, sound):
    """Longer than a lease, so that a peer would bury a worker whose beats do not get through."""
    fleet.settings |= {"lease_ms": 900, "beat_ms": 300, "recover_ms": 300}
    _, workers = started(fleet, draft_of("echo", MODEL, limits=limits(max_batch_size=4)), 2)
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:300"}] * 16)
    until(lambda: fleet.pending(MODEL) >= 8, "both hold some")
    fleet.server.config_set(setting, spoilt)
    threading.Event().wait(2.0)  # the outage is what is tested, not waited for
    fleet.server.config_set(setting, sound)
    check_all_ok(fleet.replies(MODEL, ids))
    assert fleet.ask(MODEL).status == "ok"
    assert all(len(fleet.items(MODEL, request)) == 1 for request in ids)
    for worker in workers:
        assert not worker.events("worker.buried")
        assert not worker.events("worker.fenced")
        assert lines_of(worker) <= 20
