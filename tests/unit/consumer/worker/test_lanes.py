"""Which versions a worker has lanes of, and what becomes of a lane that it is to have no more."""

import pytest
from support.worker_bench import Bench, entry

from batchfleet.consumer.worker.lanes import Lanes, lane_state
from batchfleet.wire.canary import WorkerChoice
from batchfleet.wire.deployment import Deployment, VersionRecord


def deployment(*versions, **fields):
    records = {name: VersionRecord(version=name) for name in versions}
    return {"m": Deployment(model="m", stable=versions[0], versions=records, **fields)}


class LanesBench(Bench):
    """Lanes of model m, whose units the test moves."""

    def __init__(self):
        super().__init__()
        self.lanes = Lanes(self.worker)

    def match(self, *versions, **fields):
        self.lanes.match(deployment(*versions, **fields))
        self.lanes.move()

    def lane(self, version):
        return next(lane for lane in self.lanes.all() if lane.version == version)

    def serve(self, version):
        unit = self.unit_of(self.lane(version))
        if unit.link is None:
            self.come_up(unit)
        self.make_ready(unit, self.lane(version))

    def states(self):
        return {version: state["state"] for (_, version), state in self.lanes.states().items()}

    def intake_passes(self):
        """As the intake thread does: it comes back for another offer, with nothing in its hands."""
        for offered in self.worker.offer("m", wait=False).draining:
            self.worker.note_handed_over(offered.lane)


@pytest.fixture
def bench():
    return LanesBench()


def test_a_version_that_is_for_other_workers_is_not_loaded(bench):
    others = {"2": WorkerChoice(named=frozenset({"w2"}))}
    bench.match("1", "2", workers=others)
    assert bench.states() == {"1": "loading"}
    bench.match("1", "2")
    assert bench.states() == {"1": "loading", "2": "loading"}


def test_a_lane_goes_once_all_that_was_taken_is_answered_and_its_process_with_it(bench):
    bench.match("1")
    bench.serve("1")
    old = bench.unit_of(bench.lane("1"))
    bench.match("1", "2")
    bench.serve("2")
    lane = bench.lane("1")
    old.take(lane, [entry(1)])
    bench.match("2")
    assert bench.states() == {"1": "draining", "2": "ready"}
    assert old.core.room(lane, 0.0) == 0
    bench.intake_passes()
    bench.match("2")
    assert bench.states()["1"] == "draining"  # it still holds one
    with bench.worker.lock:
        old.core.requests.unsettled.clear()
        for held in old.core.requests.of_lane(lane):
            old.core.requests.forget(held)
    bench.lanes.move()
    assert bench.states() == {"2": "ready"}
    assert old not in bench.worker.units


def test_a_lane_waits_for_what_intake_has_in_its_hands(bench):
    bench.match("1", "2")
    bench.serve("1")
    bench.serve("2")
    bench.match("2")
    lane = bench.lane("1")
    bench.lanes.move()
    assert bench.states()["1"] == "draining"
    bench.unit_of(lane).take(lane, [entry(1)])  # of a take that was under way
    bench.intake_passes()
    bench.match("2")
    assert bench.states()["1"] == "draining"


def test_a_lane_that_is_wanted_again_before_it_has_drained_goes_on(bench):
    bench.match("1", "2")
    bench.serve("1")
    bench.serve("2")
    lane = bench.lane("2")
    bench.match("1")
    assert bench.states() == {"1": "ready", "2": "draining"}
    bench.match("1", "2")
    bench.intake_passes()
    bench.lanes.move()
    assert bench.states() == {"1": "ready", "2": "ready"}
    assert bench.lane("2") is lane


def test_what_was_never_ready_or_is_not_deployed_any_more_goes_at_once(bench):
    bench.match("1", "2")
    bench.serve("1")
    bench.match("1")
    assert bench.states() == {"1": "ready"}
    bench.lanes.match({})
    assert bench.states() == {}


def test_a_draining_lane_announces_no_more_than_that(bench):
    bench.match("1")
    bench.serve("1")
    lane = bench.lane("1")
    bench.worker.drain_lane(lane)
    assert lane_state(lane) == {"state": "draining"}
