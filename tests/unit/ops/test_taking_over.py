"""A version that takes over from another: the whole command, on the twin, with workers of ours."""

from dataclasses import replace

import orjson
import pytest
from support.broker_wire import BUCKETS, RECORD, TENANT, TTL_MS, wired
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, membership
from batchfleet.ops import deployment
from batchfleet.ops.clearing import StillServedError
from batchfleet.ops.deployment import ChangedError, Operator
from batchfleet.ops.taking_over import BY_WORKER, NotReadyError, Takeover, Terms
from batchfleet.ops.verdict import AllRefuseError, Waiting
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.canary import Canary
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import CallerError, SettingsError

TERMS = Terms(tenants=(TENANT,), wait_ms=10_000, drain_ms=5_000)
SECOND = VersionRecord(version="2", limits=Limits(buckets=BUCKETS))
THIRD = replace(SECOND, version="3")


class Crew:
    """Workers of a model: each follows the record one look later, and loads in some looks more.

    `loads` says of a version in how many looks it is loaded; `refuses` which worker refuses which.
    """

    def __init__(self, wire, names, **facts):
        self.wire, self.names, self.facts = wire, names, facts
        self.loads, self.refuses = {}, {}
        self.lanes = {name: {"1": 0} for name in names}  # version → looks until it is ready
        self.fewest = len(names)
        for name in names:
            assert wire.run(membership.join(wire.keys, name, TTL_MS, self._said(name)))

    def look(self):
        """All workers follow the record in force, and load a little."""
        seen = self.wire.run(fleet.deployment(self.wire.keys))
        for name in self.names if seen is not None else ():
            wanted = [version for version in seen.versions if seen.loads(version, name)]
            known = self.lanes[name]
            self.lanes[name] = {
                version: max(0, known.get(version, self.loads.get(version, 1) + 1) - 1)
                for version in wanted
            }
            self.wire.run(membership.beat(self.wire.keys, name, TTL_MS, self._said(name)))
        serving = sum(0 in lanes.values() for lanes in self.lanes.values())
        self.fewest = min(self.fewest, serving)

    def _said(self, name):
        stamp = self.wire.stamp()
        versions = {
            version: self._state(name, version, left) for version, left in self.lanes[name].items()
        }
        return WorkerAnnouncement(versions=versions, stamp=stamp, facts=self.facts).to_fields()

    def _state(self, name, version, left):
        if version in self.refuses.get(name, ()):
            return {"state": "refused", "reason": "no wheel"}
        return {"state": "loading" if left else "ready", "memory_bytes": "1000"}


class Scene:
    """A model of which version 1 is deployed, its crew, and a clock that moves with each pause."""

    def __init__(self, wire):
        self.wire, self.clock, self.crew = wire, ManualClock(), None
        self.told, self.at_pause = [], {}
        self.operator = self.operator_called("ann@here:1")

    def operator_called(self, who):
        numbers = iter(range(1000))
        return Operator(
            executor=self.wire.executor,
            namespace=self.wire.keys.namespace,
            draw_nonce=lambda: f"{who}:{next(numbers)}",
        )

    def with_crew(self, *names, **facts):
        self.crew = Crew(self.wire, names, **facts)
        return self.crew

    def pause(self, seconds):
        self.clock.advance(1000 * seconds)
        if act := self.at_pause.pop(len(self.told), None):
            act()
        if self.crew:
            self.crew.look()

    @property
    def waiting(self):
        return Waiting(clock=self.clock, pause=self.pause, report=self.told.append)

    def takeover(self, record, **terms):
        waiting, terms = self.waiting, replace(TERMS, **terms)
        return Takeover(self.operator, "m", record, terms, waiting)

    def deploy(self, record, **terms):
        """The whole command; which versions it has withdrawn."""
        takeover = self.takeover(record, **terms)
        takeover.run()
        cleared = takeover.clear(self.waiting)
        cleared.require_cleared("m")
        return cleared.withdrawn

    @property
    def record(self):
        return self.wire.run(fleet.deployment(self.wire.keys))

    @property
    def raw(self):
        """The record without what says which state of it it is."""
        found = self.wire.run(fleet.deploy_hash(self.wire.keys))
        return {name: raw for name, raw in found.items() if name not in ("epoch", "nonce")}


@pytest.fixture
def scene():
    with wired(MemoryBroker(MemoryServer()), "n") as wire:
        yield Scene(wire)


def test_a_version_takes_over_once_the_workers_have_loaded_it(scene):
    crew = scene.with_crew("a", "b", "c")
    crew.loads["2"] = 5
    assert scene.deploy(SECOND) == ["1"]
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"2"})
    assert set(scene.record.kept) == {"1"}
    assert "m/2 is loading: 0 of 3 workers are ready" in scene.told
    assert crew.fewest == 3


def test_fewer_may_be_enough(scene):
    crew = scene.with_crew("a", "b")
    crew.refuses["b"] = {"2"}
    scene.deploy(SECOND, min_ready=1)
    assert scene.record.stable == "2"
    crew.refuses["b"] = {"2", "3"}
    scene.deploy(THIRD)
    assert scene.record.stable == "3", "who refuses it is not waited for"


def test_what_all_refuse_leaves_the_record_as_it_was(scene):
    crew = scene.with_crew("a", "b")
    before = scene.raw
    crew.refuses = {"a": {"2"}, "b": {"2"}}
    with pytest.raises(AllRefuseError, match=r"2 of 2 workers refuse it: no wheel.*m/1 keeps"):
        scene.deploy(SECOND)
    assert scene.raw == before


def test_what_is_late_leaves_the_record_as_it_was(scene):
    scene.with_crew("a", "b").loads["2"] = 1000
    before = scene.raw
    with pytest.raises(NotReadyError, match="after 10 s, 0 of 2 workers are ready"):
        scene.deploy(SECOND)
    assert scene.raw == before


def test_what_was_kept_is_kept_again_after_it_was_refused(scene):
    crew = scene.with_crew("a")
    scene.deploy(SECOND)
    before = scene.raw
    crew.refuses["a"] = {"1"}
    with pytest.raises(AllRefuseError):
        scene.deploy(RECORD)
    assert scene.raw == before


def test_what_was_offered_before_is_offered_as_before(scene):
    crew = scene.with_crew("a")
    deployment.offer(scene.operator, scene.record, replace(SECOND, deployed="before"))
    before = scene.raw
    crew.refuses["a"] = {"2"}
    with pytest.raises(AllRefuseError):
        scene.deploy(SECOND)
    assert scene.raw == before


def test_going_back_is_the_same_and_only_some_are_kept(scene):
    scene.with_crew("a")
    for record in (SECOND, THIRD, RECORD, SECOND):
        scene.deploy(record)
        assert set(scene.record.versions) == {record.version}
    assert set(scene.record.kept) == {"1", "3"}
    scene.deploy(replace(SECOND, version="4"), keep=1)
    assert set(scene.record.kept) == {"2"}
    scene.deploy(RECORD, keep=0)
    assert not scene.record.kept


def test_the_version_before_may_stay_warm_and_goes_with_the_next(scene):
    scene.with_crew("a")
    scene.deploy(SECOND, is_warm=True)
    assert set(scene.record.versions) == {"1", "2"}
    assert scene.deploy(THIRD, is_warm=True) == ["1"]
    assert set(scene.record.versions) == {"2", "3"}


def test_only_the_version_that_is_named_is_looked_at_again(scene):
    scene.with_crew("a")
    scene.deploy(SECOND, is_warm=True)
    first = scene.record.versions["1"]
    scene.deploy(SECOND, is_warm=True)
    second = scene.record.versions["2"]
    assert second.deployed.startswith("ann@here:1:")
    deployment.deploy(scene.operator, "m", replace(THIRD), [TENANT])
    assert scene.record.versions["1"] == first
    assert scene.record.versions["2"] == second


def test_the_same_version_again_is_looked_at_again_without_a_switch(scene):
    scene.with_crew("a")
    before = scene.record.versions["1"]
    assert scene.deploy(RECORD) == []
    after = scene.record.versions["1"]
    assert (after.deployed != before.deployed, replace(after, deployed="")) == (
        True,
        replace(before, deployed=""),
    )


def test_without_workers_it_takes_over_at_once(scene):
    takeover = scene.takeover(SECOND)
    takeover.run()
    assert not takeover.has_waited
    assert takeover.clear(scene.waiting).withdrawn == ["1"]
    assert (scene.record.stable, scene.told) == ("2", [])


def test_now_takes_over_at_once_and_leaves_the_others_loaded(scene):
    crew = scene.with_crew("a")
    crew.loads["2"] = 1000
    takeover = scene.takeover(SECOND, is_now=True, wait_ms=0)
    takeover.run()
    assert takeover.clear(scene.waiting).withdrawn == []
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"1", "2"})


def test_the_first_version_that_all_refuse_is_taken_out_again(scene):
    deployment.undeploy(scene.operator, "m")
    takeover = scene.takeover(SECOND)

    def join():
        said = WorkerAnnouncement(
            versions={"2": {"state": "refused", "reason": "no wheel"}},
            stamp=scene.wire.stamp(),
            facts={},
        )
        assert scene.wire.run(membership.join(scene.wire.keys, "a", TTL_MS, said.to_fields()))

    scene.wire.ask("SADD", "n:models", "other")
    other = replace(scene.wire.keys, model="other")
    scene.wire.run(fleet.deploy(other, RECORD, fleet.queue_streams(other, RECORD), "n", [TENANT]))
    assert scene.wire.run(membership.join(other, "a", TTL_MS, {}))
    scene.at_pause[1] = join
    with pytest.raises(AllRefuseError, match="m/2 was not deployed: all 1 workers refuse it"):
        takeover.run()
    assert scene.raw == {}
    scene.wire.run(fleet.undeploy(other, fleet.queue_streams(other, RECORD), forced=True))


# Requests that are left.


def enqueue(scene, version):
    return scene.wire.ask("XADD", scene.wire.keys.queue(version, "normal", 16), "*", "id", "x")


def test_the_version_before_leaves_once_its_requests_are_answered(scene):
    scene.with_crew("a")
    entry, stream = enqueue(scene, "1"), scene.wire.keys.queue("1", "normal", 16)

    def end():
        assert "1" in scene.record.versions, "it serves what it has"
        scene.wire.ask("XDEL", stream, entry)

    takeover = scene.takeover(SECOND)
    takeover.run()
    scene.at_pause[len(scene.told) + 3] = end
    assert takeover.clear(scene.waiting).withdrawn == ["1"]
    assert "waiting for requests of versions that leave: m/1 has 1" in scene.told


def test_requests_that_are_left_after_the_time_are_reported(scene):
    scene.with_crew("a")
    enqueue(scene, "1")
    with pytest.raises(StillServedError, match=r"m/1 has 1\. They are served"):
        scene.deploy(SECOND)
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"1", "2"})


# Several operators.


def test_whoever_is_second_is_told_who_was_first_and_what_is_active_now(scene):
    scene.with_crew("a").loads["2"] = 50
    bob = scene.operator_called("bob@there:7")
    scene.at_pause[3] = lambda: deployment.deploy(bob, "m", THIRD, [TENANT])
    with pytest.raises(ChangedError, match="'bob@there:7' has changed m meanwhile: m/'3' is its"):
        scene.deploy(SECOND)
    assert (scene.record.stable, set(scene.record.versions)) == ("3", {"1", "3"})


def test_another_deployment_of_the_same_version_goes_on(scene):
    scene.with_crew("a").loads["2"] = 50
    bob = scene.operator_called("bob@there:7")
    theirs = replace(SECOND, deployed="theirs")
    scene.at_pause[3] = lambda: deployment.offer(bob, scene.record, theirs)
    with pytest.raises(ChangedError, match="bob@there:7"):
        scene.deploy(SECOND)
    assert scene.record.versions["2"].deployed == "theirs"


def test_a_change_of_something_else_is_no_matter(scene):
    scene.with_crew("a").loads["2"] = 50
    bob = scene.operator_called("bob@there:7")
    scene.at_pause[3] = lambda: deployment.override(bob, "m", {"backlog": 7})
    scene.deploy(SECOND)
    assert (scene.record.stable, scene.record.limits.backlog) == ("2", 7)


class Meddling:
    """An executor before whose first deployment of a version somebody else changes a limit."""

    def __init__(self, wire, act):
        self.wire, self.act = wire, act

    def run(self, command):
        if command.script is not None and command.script.name == "deploy" and self.act:
            act, self.act = self.act, None
            act()
        return self.wire.run(command)

    def run_all(self, commands):
        return self.wire.executor.run_all(commands)


def test_a_change_between_the_look_and_the_switch_is_seen(scene):
    scene.with_crew("a")
    bob = scene.operator_called("bob@there:7")
    meddling = Meddling(scene.wire, lambda: deployment.deploy(bob, "m", THIRD, [TENANT]))
    scene.operator = replace(scene.operator, executor=meddling)
    with pytest.raises(ChangedError, match="m/'3' is its stable version now"):
        scene.deploy(SECOND)
    assert (scene.record.stable, set(scene.record.versions)) == ("3", {"1", "3"})


@pytest.mark.parametrize("phase", ["shifting", "paused"])
def test_a_running_roll_is_not_disturbed(scene, phase):
    scene.with_crew("a")
    roll = orjson.dumps({"phase": phase, "to": "3"})
    deployment.reconfigure(scene.operator, scene.record, {"roll": roll})
    before = scene.raw
    with pytest.raises(SettingsError, match="a roll of m to '3' is"):
        scene.deploy(SECOND)
    assert scene.raw == before


def test_a_roll_that_has_ended_or_that_nobody_can_read_is_no_hindrance(scene):
    scene.with_crew("a")
    for roll, record in ((b'{"phase": "completed"}', SECOND), (b"nonsense", THIRD)):
        deployment.reconfigure(scene.operator, scene.record, {"roll": roll})
        scene.deploy(record)
        assert scene.record.stable == record.version


# Worker by worker.


def test_worker_by_worker_all_but_one_serve_all_the_time(scene):
    crew = scene.with_crew("a", "b", "c")
    crew.loads["2"] = 3
    scene.deploy(SECOND, strategy=BY_WORKER)
    for _ in range(6):
        crew.look()
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"2"})
    assert (scene.record.workers, scene.record.canary) == ({}, None)
    assert crew.fewest == 2
    assert all(lanes == {"2": 0} for lanes in crew.lanes.values())


def test_no_worker_ever_has_two_copies_and_the_share_grows_with_the_workers(scene):
    crew, weights, most = scene.with_crew("a", "b", "c", "d"), [], []
    look = crew.look

    def watch():
        look()
        weights.append(scene.record.canary.weight if scene.record.canary else None)
        most.append(max(map(len, crew.lanes.values())))

    crew.look = watch
    enqueue(scene, "1")
    with pytest.raises(StillServedError):
        scene.deploy(SECOND, strategy=BY_WORKER)
    assert [w for at, w in enumerate(weights) if w not in weights[:at]] == [None, 33.3, 66.7]
    assert max(most) == 1
    assert scene.record.workers["2"].named == {"a", "b", "c"}, "the last one has the old version"


def test_it_is_chosen_where_memory_does_not_suffice_for_two(scene):
    crew = scene.with_crew("a", "b", host="h", device="cpu", free_bytes="2100")
    scene.deploy(SECOND)
    assert crew.fewest == 1
    crew.facts["free_bytes"] = "2400"
    for _ in range(3):
        crew.look()
    crew.fewest = 2
    scene.deploy(THIRD)
    assert crew.fewest == 2


def test_a_worker_that_refuses_it_gets_back_what_it_had(scene):
    crew = scene.with_crew("a", "b", "c")
    crew.refuses["b"] = {"2"}
    before = scene.raw
    with pytest.raises(AllRefuseError, match="1 of 3 workers refuse it: no wheel"):
        scene.deploy(SECOND, strategy=BY_WORKER)
    assert scene.raw == before


def test_worker_by_worker_a_tenant_is_added_as_well(scene):
    scene.with_crew("a", "b")
    scene.deploy(SECOND, strategy=BY_WORKER, tenants=("acme",))
    assert set(scene.wire.run(fleet.tenants(scene.wire.keys))) == {"acme", TENANT}
    scene.wire.ask("DEL", scene.wire.keys.ingress("acme"))


def test_worker_by_worker_nothing_stays_warm(scene):
    scene.with_crew("a", "b")
    with pytest.raises(SettingsError, match="leave out --warm"):
        scene.deploy(SECOND, strategy=BY_WORKER, is_warm=True)


@pytest.mark.parametrize("min_ready", [0, 2])
def test_it_needs_another_worker_to_serve_meanwhile(scene, min_ready):
    scene.with_crew(*"ab"[: min_ready or 1])
    with pytest.raises(SettingsError, match="start another one, or use --strategy beside"):
        scene.deploy(SECOND, strategy=BY_WORKER, min_ready=min_ready)
    assert set(scene.record.versions) == {"1"}


def test_what_a_killed_command_has_left_is_cleared_by_the_next(scene):
    crew = scene.with_crew("a", "b", "c")
    fields = {
        "workers:1": b'{"except": ["a"]}',
        "workers:2": b'{"only": ["a"]}',
        "version:2": SECOND.to_wire(),
        "canary": Canary("2", 50.0, "2").to_wire(),
    }
    deployment.reconfigure(scene.operator, scene.record, fields)
    crew.look()
    assert scene.deploy(RECORD) == ["2"]
    assert (scene.record.workers, scene.record.canary) == ({}, None)
    assert set(scene.record.versions) == {"1"}


# The pieces.


def test_a_version_that_takes_requests_is_not_withdrawn(scene):
    deployment.offer(scene.operator, scene.record, SECOND)
    canary = Canary("2", 10.0, "s").to_wire()
    deployment.reconfigure(scene.operator, scene.record, {"canary": canary})
    for version in ("1", "2"):
        with pytest.raises(CallerError, match="takes requests"):
            deployment.withdraw(scene.operator, "m", version)


def test_a_change_of_a_record_that_is_another_by_now_changes_nothing(scene):
    seen = scene.record
    deployment.set_intake(scene.operator, "m", "hold")
    before = scene.raw
    with pytest.raises(ChangedError):
        deployment.offer(scene.operator, seen, SECOND)
    with pytest.raises(ChangedError):
        deployment.deploy(scene.operator, "m", SECOND, [TENANT], seen.stamp)
    assert scene.raw == before
