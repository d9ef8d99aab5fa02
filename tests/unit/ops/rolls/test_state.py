"""The state of a roll: only what the table allows is read, and followed."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rolls import T0_MS, new_roll, observed, stats

from batchfleet.ops.rolls.changing import Cause, changed
from batchfleet.ops.rolls.state import (
    ENDS,
    TRANSITIONS,
    Event,
    Phase,
    RollState,
    TransitionError,
    read_state,
)
from batchfleet.wire.errors import SettingsError

READY = observed({"w1": "ready", "w2": "ready"}, counts={"1": stats([3.0]), "2": stats()})


def walked(*events):
    state = new_roll()
    for number, event in enumerate(events):
        state = changed(state, Cause(event=event, by="me"), READY, T0_MS + number)
    return state


def test_every_phase_has_a_row_and_every_end_has_none():
    assert set(TRANSITIONS) == set(Phase)
    assert {Phase.COMPLETED, Phase.ROLLED_BACK, Phase.REFUSED} == ENDS
    reached = {phase for events in TRANSITIONS.values() for phase in events.values()}
    assert reached == set(Phase)


def test_a_roll_goes_through_its_steps():
    state = walked(Event.READY, Event.HELD, Event.HELD, Event.HELD)
    assert (state.phase, state.step, state.weight) == (Phase.SHIFTING, 4, 100.0)
    state = changed(state, Cause(event=Event.HELD_LAST), READY, T0_MS + 9)
    assert (state.phase, state.weight) == (Phase.DRAINING, 0.0)
    state = changed(state, Cause(event=Event.DRAINED), READY, T0_MS + 10)
    assert state.has_ended
    assert [past.phase for past in state.history][-2:] == [Phase.DRAINING, Phase.COMPLETED]


@given(st.lists(st.sampled_from(list(Event)), max_size=30), st.randoms())
def test_whatever_happens_the_state_is_one_of_the_table_and_is_read_as_it_was(events, chance):
    state = new_roll()
    for event in events:
        said = {name: chance.choice(["", "ready", "refused"]) for name in ("w1", "w2")}
        seen = observed(said, counts={"1": stats([3.0]), "2": stats([4.0])})
        try:
            state = changed(state, Cause(event=event, by="me"), seen, T0_MS)
        except TransitionError:
            assert event not in TRANSITIONS[state.phase]
        assert read_state("m", state.to_wire()) == state


def test_what_the_table_does_not_allow_is_refused_in_a_sentence():
    with pytest.raises(TransitionError, match="from 1 to 2 is draining; it cannot be paused"):
        changed(walked(Event.READY, Event.PROMOTE), Cause(event=Event.PAUSE), READY, T0_MS)
    ended = walked(Event.READY, Event.ROLL_BACK, Event.DRAINED)
    with pytest.raises(TransitionError, match="has ended: rolled back; it cannot be resumed"):
        changed(ended, Cause(event=Event.RESUME), READY, T0_MS)


def test_no_roll_is_no_state():
    assert read_state("m", b"") is None


SHIFTING = walked(Event.READY, Event.HELD)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "flying"},
        {"phase": 1},
        {"phase": None},
        {"step": 5},
        {"step": -1},
        {"step": True},
        {"weight": 99.0},
        {"weight": 1e400},
        {"model": "other"},
        {"from": "2"},
        {"to": "no/name"},
        {"roll": 7},
        {"due_ms": "soon"},
        {"due_ms": 2**64},
        {"since_ms": -1},
        {"reason": "x" * 5000},
        {"by": ["me"]},
        {"workers": ["a b"]},
        {"workers": "w1"},
        {"base": {"3": {}}},
        {"base": {"1": {"ok": 1}}},
        {"base": []},
        {"first": {"1": 5}},
        {"history": [{"phase": "loading"}]},
        {"history": [7]},
        {"history": {}},
        {"plan": {}},
        {"plan": []},
        {"more": 1},
    ],
)
def test_a_state_that_a_foreign_hand_wrote_is_refused(change):
    wire = orjson.loads(SHIFTING.to_wire())
    assert read_state("m", orjson.dumps(wire)) == SHIFTING
    raw = json.dumps({**wire, **change}).encode()
    with pytest.raises(SettingsError, match="m: the state of its roll is not followed"):
        read_state("m", raw)


@pytest.mark.parametrize("raw", [b"no", b"[]", b"7", b'"x"', b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_state_at_all_is_refused(raw):
    with pytest.raises(SettingsError):
        read_state("m", raw)


@pytest.mark.parametrize("name", sorted(orjson.loads(SHIFTING.to_wire())))
def test_a_state_that_lacks_a_part_is_refused(name):
    wire = orjson.loads(SHIFTING.to_wire())
    del wire[name]
    with pytest.raises(SettingsError, match=name):
        read_state("m", orjson.dumps(wire))


def test_its_history_is_bounded():
    state = new_roll()
    for _ in range(200):
        for event in (Event.PAUSE, Event.RESUME):
            state = changed(state, Cause(event=event), observed(), T0_MS)
    assert len(state.history) == 64
    assert isinstance(read_state("m", state.to_wire()), RollState)
