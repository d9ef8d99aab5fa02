"""A version that takes over from another: the whole command, on the twin, with workers of ours."""

from dataclasses import replace

import orjson
import pytest
from support.broker_wire import RECORD, TENANT, TTL_MS, wired
from support.takeover_scene import SECOND, THIRD, Scene

from batchfleet.broker import fleet, membership
from batchfleet.ops import deployment
from batchfleet.ops.clearing import StillServedError
from batchfleet.ops.deployment import ChangedError
from batchfleet.ops.taking_over import NotReadyError
from batchfleet.ops.verdict import AllRefuseError
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.canary import Canary
from batchfleet.wire.errors import CallerError, SettingsError


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


def test_the_version_before_leaves_once_its_requests_are_answered(scene):
    scene.with_crew("a")
    entry, stream = scene.enqueue("1"), scene.wire.keys.queue("1", "normal", 16)

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
    scene.enqueue("1")
    with pytest.raises(StillServedError, match=r"m/1 has 1\. They are served"):
        scene.deploy(SECOND)
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"1", "2"})


# Several operators.


def test_whoever_is_second_is_told_who_was_first_and_what_is_active_now(scene):
    scene.with_crew("a").loads["2"] = 50
    bob = scene.operator_called("bob@there:7")
    scene.at_pause[3] = lambda: deployment.deploy(bob, "m", THIRD, [TENANT])
    with pytest.raises(ChangedError, match="bob@there:7 has changed m meanwhile: m/3 is its"):
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
    with pytest.raises(ChangedError, match="m/3 is its stable version now"):
        scene.deploy(SECOND)
    assert (scene.record.stable, set(scene.record.versions)) == ("3", {"1", "3"})


@pytest.mark.parametrize("phase", ["shifting", "paused"])
def test_a_running_roll_is_not_disturbed(scene, phase):
    scene.with_crew("a")
    roll = orjson.dumps({"phase": phase, "to": "3"})
    deployment.reconfigure(scene.operator, scene.record, {"roll": roll})
    before = scene.raw
    with pytest.raises(SettingsError, match="a roll of m to 3 is"):
        scene.deploy(SECOND)
    assert scene.raw == before


def test_a_roll_that_has_ended_or_that_nobody_can_read_is_no_hindrance(scene):
    scene.with_crew("a")
    for roll, record in ((b'{"phase": "completed"}', SECOND), (b"nonsense", THIRD)):
        deployment.reconfigure(scene.operator, scene.record, {"roll": roll})
        scene.deploy(record)
        assert scene.record.stable == record.version


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
