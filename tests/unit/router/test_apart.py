"""A router whose own code fails, for one model or one entry: all else goes on."""

import json
from dataclasses import replace

import pytest
from support.broker_wire import RECORD, TENANT, Wire, wired
from support.loops import Lines, Watch

from batchfleet.broker import fleet, ingress
from batchfleet.broker.errors import refused
from batchfleet.router import admitter as admitter_module
from batchfleet.router import keeper as keeper_module
from batchfleet.router import pump as pump_module
from batchfleet.router.admission import Situation, admit
from batchfleet.router.admitter import Admitter
from batchfleet.router.program import RouterProgram
from batchfleet.router.pump_threads import PumpGroup, PumpThread
from batchfleet.router.shared import SharedState
from batchfleet.router.sweeping import sweep_overdue
from batchfleet.router.view import read_model
from batchfleet.service.events import Events
from batchfleet.service.fault_points import FaultPoints
from batchfleet.service.settings import Settings
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.keys import ModelKeys, models_key
from batchfleet.wire.reply import decode_reply

NS = "n"
HURT = ModelKeys(NS, "a")
MINUTE_MS = 60_001


class NeverStarted:
    """A thread that does not run: the test steps what it would."""

    def start(self):
        pass

    def join(self, timeout=None):
        pass


class Stop:
    def __init__(self):
        self.is_over = False

    def is_set(self):
        return self.is_over


@pytest.fixture
def clock():
    return Watch().clock


@pytest.fixture
def wire(clock):
    """Two models; the one that is hurt comes first."""
    with wired(MemoryBroker(MemoryServer(clock)), NS) as found:
        streams = fleet.queue_streams(HURT, RECORD)
        found.run(fleet.deploy(HURT, RECORD, streams, "n", [TENANT]))
        found.run(fleet.enlist_models(NS, ["a", "m"]))
        yield found


class Router:
    """A router that the test ticks."""

    def __init__(self, wire, clock):
        self.log = Lines()
        self.clock = clock
        self.stop = Stop()
        self.ready = []
        self.program = RouterProgram(
            Settings(namespace=NS),
            Events(self.log),
            clock,
            wire.broker,
            lambda *_: NeverStarted(),
        )
        self.tick()

    def tick(self, times=1):
        for _ in range(times):
            self.clock.advance(2_000)
            self.program.tick(self.stop, self.ready.append)

    def told(self, name):
        return [fields for found, fields in self.log.lines if found == name]

    def pump(self, model="m"):
        group = PumpGroup(ModelKeys(NS, model), (TENANT,))
        return PumpThread(group, self.program.shared, self.stop)


@pytest.fixture
def router(wire, clock):
    found = Router(wire, clock)
    assert found.ready == [{"models": ["a", "m"]}]
    return found


def open_overdue(wire, clock):
    wire.open("late", timeout_ms=1_000)
    clock.advance(1_001)


def is_answered(wire, request_id="late"):
    return [decode_reply(raw).error["name"] for raw in wire.replies(request_id)]


# The keeper.


@pytest.mark.parametrize("name", ["due", "later", "parked", "deploy", "tenants", "workers", "lost"])
def test_a_foreign_key_of_one_model_does_not_keep_another_from_its_deadlines(
    wire, clock, router, name
):
    wire.ask("DEL", getattr(HURT, name))
    wire.ask("SET", getattr(HURT, name), "x")
    open_overdue(wire, clock)
    router.tick()
    assert is_answered(wire) == ["deadline_exceeded"]
    assert not router.told("server.lost")


def test_a_queue_that_is_foreign_keeps_nobody_from_following_the_record(wire, clock, router):
    """Both models are switched; of one the new queue is no stream."""
    second = replace(RECORD, version="2")
    hurt = Wire(wire.broker, wire.executor, HURT)
    for one in (hurt, wire):
        one.open("waits")
        streams = fleet.queue_streams(one.keys, second)
        one.run(fleet.deploy(one.keys, second, streams, "n2", [TENANT]))
    hurt.ask("DEL", HURT.queue("2", "normal", 16))
    hurt.ask("SET", HURT.queue("2", "normal", 16), "x")
    router.tick()
    assert router.told("request.moved") == [{"model": "m", "count": 1}]
    assert wire.ask("XLEN", wire.keys.queue("2", "normal", 16)) == 1
    assert hurt.ask("XLEN", hurt.queue()) == 1
    hurt.ask("DEL", HURT.queue("2", "normal", 16))
    router.tick(2)
    assert hurt.ask("XLEN", HURT.queue("2", "normal", 16)) == 1, "the queue was mended"


def test_a_record_that_changes_under_the_sweep_is_read_again(wire, clock, router):
    wire.open("waits")
    second = replace(RECORD, version="2")
    wire.run(fleet.deploy(wire.keys, second, fleet.queue_streams(wire.keys, second), "n", [TENANT]))
    router.tick()
    wire.run(fleet.configure(wire.keys, {"stable": b"1"}, [], "back"))
    wire.open("later")
    router.program.tick(router.stop, router.ready.append)
    router.program.tick(router.stop, router.ready.append)
    assert wire.ask("XLEN", wire.queue()) == 2, "one of them has gone there and back"
    assert [fields["count"] for fields in router.told("request.moved")] == [1, 1]


def test_a_foreign_list_of_models_stops_no_sweep(wire, clock, router):
    wire.ask("DEL", models_key(NS))
    wire.ask("SET", models_key(NS), "x")
    open_overdue(wire, clock)
    router.tick()
    assert is_answered(wire) == ["deadline_exceeded"]
    (told,) = router.told("server.refused")
    assert models_key(NS) in told["reason"]


def test_another_router_becomes_ready_although_tenants_were_lost(wire, clock):
    wire.ask("DEL", HURT.tenants)
    late = Router(wire, clock)
    assert late.ready == [{"models": ["a", "m"]}]


@pytest.mark.parametrize("error", [ValueError("a bug"), refused("ERR who knows")])
def test_what_fails_for_one_model_does_not_keep_another_from_its_deadlines(
    wire, clock, router, monkeypatch, error
):
    def sweep(executor, model, dropped):
        if model.keys == HURT:
            raise error
        return sweep_overdue(executor, model, dropped)

    monkeypatch.setattr(keeper_module, "sweep_overdue", sweep)
    open_overdue(wire, clock)
    router.tick(5)
    assert is_answered(wire) == ["deadline_exceeded"]
    told = router.told("router.step_failed") + router.told("server.refused")
    assert len(told) == 1, "once"
    clock.advance(MINUTE_MS)
    router.tick()
    told = router.told("router.step_failed") + router.told("server.refused")
    assert len(told) == 2, "and again a minute later"


@pytest.mark.parametrize(
    "step", ["read_view", "remove_buckets", "promote_ripe", "sweep_overdue", "answer_abandoned"]
)
def test_a_step_that_fails_is_reported_and_the_keeper_lives(wire, clock, router, monkeypatch, step):
    def fail(*_):
        raise KeyError("a bug")

    record = wire.run(fleet.deploy_hash(wire.keys))
    wire.run(fleet.configure(wire.keys, {"draining:1": b"[128]"}, [], record["nonce"].decode()))
    with monkeypatch.context() as patch:
        patch.setattr(keeper_module, step, fail)
        router.tick(8)  # until nobody has served the models for too long
    (told,) = router.told("router.step_failed")
    assert "KeyError" in told["reason"]
    assert "in fail, line" in told["reason"]
    open_overdue(wire, clock)
    router.tick(2)
    assert is_answered(wire) == ["deadline_exceeded"]


def test_a_server_that_answers_nothing_but_errors_is_asked_less_often(clock, router):
    """Not ten times a second, however many models there are."""
    asked = []

    class Refusing:
        def run(self, _):
            asked.append(1)
            raise refused("ERR no")

        def run_each(self, commands):
            asked.append(1)
            return [refused("ERR no") for _ in commands]

        run_all = run

    router.program._keeper._executor = Refusing()
    for _ in range(300):
        clock.advance(100)
        router.program.tick(router.stop, router.ready.append)
    passes = len(asked) / 7  # the list; three steps for each model
    assert 10 <= passes <= 60
    assert len(router.told("server.refused")) == 1


# Entries.


@pytest.fixture
def bad(monkeypatch):
    """Requests with an id that begins so make the router fail."""

    def admit_or_fail(entry_id, flat, tenant, situation):
        if any(part.startswith(b"bad") for part in flat):
            raise ZeroDivisionError("a bug")
        return admit(entry_id, flat, tenant, situation)

    monkeypatch.setattr(admitter_module, "admit", admit_or_fail)


class Shared(SharedState):
    def __init__(self, wire, faults):
        super().__init__("r", wire.broker, Events(Lines()), Watch().clock, faults)
        self.situations = {"m": Situation(model=read_model(wire.executor, wire.keys).model)}
        self.failed = []

    def report_failed(self, _, error):
        self.failed.append(error)


def admitter_of(wire, faults=None):
    """An admitter, and what it failed of."""
    shared = Shared(wire, faults or FaultPoints())
    return Admitter(wire.executor, wire.keys, shared), shared.failed


def added(wire, *named):
    for request_id, *fields in named:
        given = fields or ["inputs", json.dumps({"text": ["x"]})]
        wire.ask("XADD", wire.ingress, "*", "id", request_id, *given)
    ((_, entries),) = wire.run(ingress.read([wire.ingress], "r", 100, 0))
    return entries


def test_an_entry_that_makes_the_router_fail_is_answered_and_passed_over(wire, bad):
    admitter, failed = admitter_of(wire)
    admitter.handle(TENANT, added(wire, ("a",), ("bad-1",), ("b",), ("bad-2",), ("c",)))
    assert [is_answered(wire, one) for one in ("bad-1", "bad-2")] == [["internal"]] * 2
    assert decode_reply(wire.replies("bad-1")[0]).error["retryable"]
    assert wire.ingress_left() == (0, 0)
    wire.join()
    assert [work.id for work in wire.take()] == ["a", "b", "c"]
    assert [type(error) for error in failed] == [ZeroDivisionError] * 2


def test_what_came_before_a_failure_is_not_done_again(wire, bad):
    """A cancel that was done must not meet the request that came after it."""
    wire.open("a")
    admitter, _ = admitter_of(wire)
    entries = added(wire, ("a", "cancel", "1"), ("b",), ("b", "cancel", "1"), ("b",), ("bad",))
    admitter.handle(TENANT, entries)
    assert is_answered(wire, "a") == ["cancelled"]
    assert is_answered(wire, "b") == ["cancelled"]
    assert is_answered(wire, "bad") == ["internal"]
    assert wire.ingress_left() == (0, 0)


@pytest.mark.parametrize(
    "where", ["router.after_read", "router.before_accept", "router.after_accept"]
)
def test_wherever_it_fails_nobody_gets_two_answers(wire, where):
    class Crash(FaultPoints):
        def reach(self, name):
            if name == where:
                raise RuntimeError("a bug")

    admitter, failed = admitter_of(wire, Crash())
    admitter.handle(TENANT, added(wire, ("a",), ("b",)))
    assert failed
    assert wire.ingress_left() == (0, 0)
    wire.join()
    accepted = [work.id for work in wire.take()]
    answered = [one for one in ("a", "b") if is_answered(wire, one)]
    assert sorted(accepted + answered) == ["a", "b"]


def test_an_entry_without_an_id_that_makes_the_router_fail_is_ended(wire, bad):
    admitter, failed = admitter_of(wire)
    wire.ask("XADD", wire.ingress, "*", "what", "bad", "inputs", "x")
    ((_, entries),) = wire.run(ingress.read([wire.ingress], "r", 100, 0))
    admitter.handle(TENANT, entries)
    assert wire.ingress_left() == (0, 0)
    assert len(failed) == 1


def test_a_failing_entry_is_reported_once_a_minute_and_kind(wire, router, bad):
    pump = router.pump()
    for at in range(4):
        wire.ask("XADD", wire.ingress, "*", "id", f"bad-{at}", "inputs", "x")
        assert pump.step() == 0.0
    (told,) = router.told("router.entry_failed")
    assert (told["model"], told["kind"]) == ("m", "ZeroDivisionError")
    assert is_answered(wire, "bad-3") == ["internal"]


def test_a_pump_that_fails_outside_of_an_entry_pauses_and_continues(wire, router, monkeypatch):
    pump = router.pump()
    entry = ("inputs", json.dumps({"text": ["x"]}))
    wire.ask("XADD", wire.ingress, "*", "id", "a", *entry)
    with monkeypatch.context() as patch:
        patch.setattr(pump_module, "_count", lambda _: 1 // 0)
        assert pump.step() > 0
    wire.ask("XADD", wire.ingress, "*", "id", "b", *entry)
    router.clock.advance(1_000)
    assert pump.step() == 0.0
    wire.join()
    assert [work.id for work in wire.take()] == ["a", "b"], "what it had read is not forgotten"
    assert len(router.told("router.entry_failed")) == 1
    assert not router.told("server.lost")


def test_a_pump_never_writes_the_keepers_view(wire, router):
    """Else the keeper compares the view with itself, and does not tell what was deployed."""
    pump = router.pump()
    other = fleet.queue_streams(wire.keys, RECORD)
    wire.run(fleet.deploy(wire.keys, RECORD, other, "n2", [TENANT]))
    wire.ask("DEL", *other)
    wire.ask("XADD", wire.ingress, "*", "id", "a", "inputs", json.dumps({"text": ["x"]}))
    before = router.program.shared.situations["m"]
    pump.step()
    assert router.program.shared.situations["m"] is before
    router.tick()
    assert [told["epoch"] for told in router.told("model.deployed") if told["model"] == "m"] == [
        1,
        2,
    ]
