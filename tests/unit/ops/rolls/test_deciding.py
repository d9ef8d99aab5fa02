"""What comes next in a roll."""

import pytest
from support.rolls import T0_MS, even_windows, new_roll, observed, stats

from batchfleet.ops.rolls.changing import Cause, changed, record_fields
from batchfleet.ops.rolls.deciding import decide
from batchfleet.ops.rolls.plan import WORKER_BY_WORKER, Plan
from batchfleet.ops.rolls.state import Event, Phase

ALL_READY = {"w1": "ready", "w2": "ready"}
QUICK = [4.0] * 300
HOLD_MS = 30_000


def shifting(weight=10.0, plan=None, before=None):
    """A roll at a step of this weight."""
    plan = plan or Plan()
    seen = observed(ALL_READY, counts=before or {})
    state = changed(new_roll(plan), Cause(event=Event.READY), seen, T0_MS)
    while state.weight != weight:
        state = changed(state, Cause(event=Event.HELD), seen, T0_MS)
    return state


def decided(state, seen, after_ms=0):
    return decide(state, seen, T0_MS + after_ms)


def test_it_waits_until_enough_workers_are_ready():
    state = new_roll()
    half = observed({"w1": "ready", "w2": "loading"})
    assert decided(state, observed()).event is None
    assert decided(state, half).reason == "1 of 2 workers are ready"
    assert decided(state, observed(ALL_READY)).event is Event.READY
    assert decided(new_roll(Plan(min_ready=1)), half).event is Event.READY


def test_a_version_that_all_refuse_gets_no_traffic():
    state = new_roll()
    said = {"w1": "refused", "w2": "refused"}
    verdict = decided(state, observed(said, reasons={"w1": "no wheel", "w2": "no wheel"}))
    assert verdict.event is Event.UNLOADABLE
    assert verdict.reason == "2 of 2 workers refuse 2: no wheel"
    after = changed(state, Cause(event=verdict.event), observed(said), T0_MS)
    assert after.phase is Phase.REFUSING
    assert record_fields(after, "1")["canary"] == b""


def test_one_that_refuses_is_done_without_unless_more_are_needed():
    said, reasons = {"w1": "ready", "w2": "refused"}, {"w2": "too large"}
    assert decided(new_roll(), observed(said, reasons=reasons)).event is Event.READY
    needed = new_roll(Plan(min_ready=2))
    assert decided(needed, observed(said, reasons=reasons)).event is Event.UNLOADABLE


def test_workers_have_so_long_to_load_it():
    state = new_roll(Plan(wait_s=5))
    assert decided(state, observed(), 4999).event is None
    late = decided(state, observed(), 5000)
    assert (late.event, late.reason) == (Event.UNLOADABLE, "0 of 2 workers are ready after 5 s")


def test_a_step_needs_its_time_and_samples_of_both():
    state = shifting()
    few = observed(ALL_READY, counts={"1": stats(QUICK), "2": stats(QUICK[:12])})
    enough = observed(ALL_READY, counts={"1": stats(QUICK), "2": stats(QUICK)})
    assert decided(state, enough, HOLD_MS - 1).event is None
    assert decided(state, enough, HOLD_MS).event is Event.HELD
    verdict = decided(state, few, HOLD_MS)
    assert verdict.event is None
    assert verdict.reason == "waits for 12 of 200 samples of 2, 300 of 200 samples of 1"


def test_samples_are_those_of_the_step():
    before = {"1": stats(QUICK), "2": stats(QUICK)}
    assert (
        decided(shifting(before=before), observed(ALL_READY, counts=before), HOLD_MS).event is None
    )


def test_the_last_step_asks_for_samples_of_the_new_version_alone():
    state = shifting(100.0)
    seen = observed(ALL_READY, counts={"2": stats(QUICK)})
    assert decided(state, seen, HOLD_MS).event is Event.HELD_LAST


def test_errors_roll_it_back_before_the_step_is_over():
    seen = observed(ALL_READY, counts={"1": stats(QUICK * 9), "2": stats(QUICK[:40], model=20)})
    verdict = decided(shifting(), seen, 3000)
    assert verdict.event is Event.BROKEN
    assert "errors: 33.3% of 60 requests (stable 0.0% of 2700" in verdict.reason


def test_errors_of_callers_are_nobodys_fault():
    seen = observed(ALL_READY, counts={"1": stats(QUICK), "2": stats(QUICK, caller=300)})
    assert decided(shifting(), seen, HOLD_MS).event is Event.HELD


def test_errors_that_the_stable_version_has_as_well_are_no_reason():
    old, new = stats(QUICK * 9, model=300), stats(QUICK, model=33)
    seen = observed(ALL_READY, counts={"1": old, "2": new})
    assert decided(shifting(), seen, HOLD_MS).event is Event.HELD
    # At 100 % the stable version is measured by what it did before.
    state = shifting(100.0, before={})
    assert decided(state, seen, HOLD_MS).event is Event.HELD_LAST


def test_what_may_be_chance_is_held():
    seen = observed(ALL_READY, counts={"1": stats(QUICK * 9), "2": stats(QUICK, model=8)})
    verdict = decided(shifting(), seen, HOLD_MS)
    assert verdict.event is None
    assert verdict.reason.startswith("held until it is certain: errors")


def test_a_slow_tail_rolls_it_back_once_it_lasts():
    slow = [4.0] * 60 + [900.0] * 6
    even = even_windows(stats([4.0] * 500), stats(slow))
    uneven = [*even_windows(stats([4.0] * 500), stats([4.0] * 66)), even[0]]
    counts = {"1": stats([4.0] * 2000), "2": stats(slow * 4)}
    verdict = decided(shifting(), observed(ALL_READY, counts=counts, windows=even), HOLD_MS)
    assert verdict.event is Event.BROKEN
    assert verdict.reason.startswith("p99: ")
    once = decided(shifting(), observed(ALL_READY, counts=counts, windows=uneven), HOLD_MS)
    assert once.event is Event.HELD


def test_a_row_that_costs_more_rolls_it_back_where_batches_are_alike():
    windows = even_windows(stats(QUICK), stats(QUICK, device_ms=4500.0))
    counts = {"1": stats(QUICK * 4), "2": stats(QUICK * 4)}
    seen = observed(ALL_READY, counts=counts, windows=windows)
    assert decided(shifting(50.0), seen).reason.startswith("device time of a row: 3.0 times")
    assert decided(shifting(10.0), seen).event is None


def test_limits_hold_while_it_is_paused_too():
    state = changed(shifting(), Cause(event=Event.PAUSE), observed(ALL_READY), T0_MS)
    bad = observed(ALL_READY, counts={"1": stats(QUICK), "2": stats(model=40)})
    assert decided(state, observed(ALL_READY), 10**9).event is None
    assert decided(state, bad).event is Event.BROKEN


def test_a_version_that_no_worker_has_any_more_gets_no_traffic():
    gone = observed({"w3": ""}, serving=["w3"])
    state = shifting()
    assert decided(state, gone).event is Event.LOST
    after = changed(state, Cause(event=Event.LOST), gone, T0_MS)
    assert (after.phase, after.step, after.weight) == (Phase.LOADING, 2, 0.0)
    back = changed(after, Cause(event=Event.READY), observed({"w3": "ready"}), T0_MS)
    assert (back.phase, back.step, back.weight) == (Phase.SHIFTING, 2, 10.0)
    # Nobody serves anything: that is no fault of the version, and no time for the next step.
    assert decided(state, observed({}, serving=()), HOLD_MS).event is None


def test_counts_survive_an_interruption_of_the_step():
    before = {"1": stats(QUICK), "2": stats(QUICK)}
    state = shifting(before=before)
    for event in (Event.PAUSE, Event.RESUME):
        now = observed(ALL_READY, counts={"1": stats(QUICK * 2), "2": stats(QUICK * 2)})
        state = changed(state, Cause(event=event), now, T0_MS)
    assert state.phase is Phase.SHIFTING
    assert state.base == before


@pytest.mark.parametrize("phase", [Phase.LOADING, Phase.SHIFTING, Phase.PAUSED])
def test_the_record_may_be_changed_by_others(phase):
    state = {
        Phase.LOADING: new_roll(),
        Phase.SHIFTING: shifting(),
        Phase.PAUSED: changed(shifting(), Cause(event=Event.PAUSE), observed(ALL_READY), T0_MS),
    }[phase]
    assert decided(state, observed(ALL_READY, stable="2")).event is Event.TAKEN_OVER
    assert decided(state, observed(ALL_READY, stable="3")).event is Event.BROKEN
    assert decided(state, observed(ALL_READY, offered=["1"])).event is Event.BROKEN


def test_a_version_leaves_once_nothing_waits_for_it():
    state = changed(shifting(100.0), Cause(event=Event.HELD_LAST), observed(ALL_READY), T0_MS)
    assert record_fields(state, "1")["stable"] == b"2"
    waiting = decided(state, observed(ALL_READY, stable="2", left=3))
    assert waiting.reason == "3 requests of 1 are still to be answered"
    done = decided(state, observed(ALL_READY, stable="2"))
    assert (done.event, done.withdraws) == (None, True)
    gone = observed(ALL_READY, stable="2", offered=["2"])
    assert decided(state, gone).event is Event.DRAINED


def test_while_the_old_version_leaves_it_may_come_back():
    seen = observed(ALL_READY, stable="2")
    state = changed(shifting(100.0), Cause(event=Event.HELD_LAST), seen, T0_MS)
    state = changed(state, Cause(event=Event.ROLL_BACK), seen, T0_MS)
    assert record_fields(state, "2")["stable"] == b"1"


class Machines:
    """Workers with room for one version each, which do as the record says, one look later."""

    def __init__(self, names):
        self.loaded = dict.fromkeys(names, "1")
        self.counts = stats()

    def look(self):
        names = list(self.loaded)
        self.counts = self.counts.plus(stats(QUICK))
        return observed(
            {name: "ready" if self.loaded[name] == "2" else "" for name in names},
            serving=[name for name in names if self.loaded[name] == "1"],
            holding=[name for name in names if self.loaded[name] == "1"],
            counts={"1": self.counts, "2": self.counts},
        )

    def follow(self, state):
        for name in self.loaded:
            if name in state.cleared:
                assert self.loaded[name] in ("", "2"), "two copies do not fit"
                self.loaded[name] = "2"
            elif name in state.workers:
                self.loaded[name] = ""


def test_worker_by_worker_one_after_the_other_changes_over():
    machines = Machines("abcd")
    plan = Plan(weights=(10.0, 50.0, 100.0), strategy=WORKER_BY_WORKER, min_ready=3, hold_s=0)
    state = new_roll(plan, seen=machines.look())
    assert (state.workers, state.cleared) == (("a",), ())
    fields = record_fields(state, "1")
    assert fields["workers:2"] == b'{"only":[]}'
    assert fields["workers:1"] == b'{"except":["a"]}'
    steps = []
    for _ in range(20):
        machines.follow(state)
        assert sum(version != "" for version in machines.loaded.values()) >= 3
        seen = machines.look()
        if event := decided(state, seen, 1).event:
            state = changed(state, Cause(event=event), seen, T0_MS)
            steps.append((state.phase.value, state.weight, "".join(machines.loaded.values())))
        if state.weight == 100:
            break
    assert steps == [
        ("loading", 0.0, "111"),
        ("shifting", 10.0, "2111"),
        ("loading", 10.0, "2111"),
        ("loading", 10.0, "211"),
        ("shifting", 50.0, "2211"),
        ("loading", 50.0, "2211"),
        ("loading", 50.0, "221"),
        ("shifting", 100.0, "2221"),
    ]
    state = changed(state, Cause(event=Event.HELD_LAST), machines.look(), T0_MS)
    still = observed(dict.fromkeys("abcd", "ready"), stable="2", offered=["2"], holding=["d"])
    assert decided(state, still).reason == "1 workers have not let go of 1 yet"
    gone = observed(dict.fromkeys("abcd", "ready"), stable="2", offered=["2"])
    ended = changed(state, Cause(event=decided(state, gone).event), gone, T0_MS)
    assert record_fields(ended, "2")["workers:2"] == b""


def test_worker_by_worker_one_that_is_gone_is_replaced():
    plan = Plan(weights=(50.0, 100.0), strategy=WORKER_BY_WORKER)
    state = new_roll(plan, seen=observed(dict.fromkeys("ab", ""), serving="ab"))
    seen = observed(dict.fromkeys("bc", ""), serving="bc", holding="bc")
    assert decided(state, seen).event is Event.ONE_MORE
    after = changed(state, Cause(event=Event.ONE_MORE), seen, T0_MS)
    assert after.workers == ("b",)
