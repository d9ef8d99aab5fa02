"""Who is refused, and who gets a device process of his own, after one was lost."""

import pytest

from batchfleet.consumer.batching.loss_history import Loss, LossHistory
from batchfleet.consumer.batching.state import Lane
from batchfleet.wire.deployment import Limits, VersionRecord

MINUTE_MS = 60_000.0


def lane(model, version="1", **fields):
    return Lane(1, model, VersionRecord(version=version, lineage="a" * 16, **fields))


def lost(history, *at_work, loading=None, at_ms=0.0, is_shared=True, loaded=()):
    return history.note_loss(
        Loss(
            reason="exit code 3",
            loading=loading,
            at_work=at_work,
            loaded=loaded,
            is_shared=is_shared,
            at_ms=at_ms,
        )
    )


def needs_own_process(history, lane, now_ms=0.0):
    return history.needs_own_process(lane.name, lane.record.environment, now_ms)


def test_a_version_whose_load_ends_the_process_is_refused_at_once_and_apart_from_then_on():
    history, bad = LossHistory(), lane("bad")
    assert lost(history, bad, loading=bad)
    assert bad.refusal == "it ended the device process while loading: exit code 3"
    assert needs_own_process(history, bad, 1e9)
    assert not needs_own_process(history, lane("good"))


def test_it_is_tried_again_where_this_very_version_is_deployed_and_nowhere_else():
    history, bad = LossHistory(), lane("bad", deployed="first")
    lost(history, bad, loading=bad)
    other_limits = VersionRecord(
        version="1", lineage="a" * 16, deployed="first", limits=Limits(backlog=3)
    )
    assert history.refusal_of("bad/1", other_limits) == bad.refusal
    assert not history.refusal_of("bad/1", lane("bad", deployed="second").record)
    assert not history.refusal_of("bad/2", lane("bad", "2").record)


@pytest.mark.parametrize("others", [1, 2])
def test_one_that_others_were_at_work_beside_is_tried_apart_before_it_is_refused(others):
    history, new = LossHistory(), lane("new")
    assert lost(history, *(lane(f"m{at}") for at in range(others)), new, loading=new)
    assert (new.refusal, needs_own_process(history, new)) == ("", True)
    again = lane("new")
    lost(history, again, loading=again, is_shared=False)
    assert again.refusal


def test_one_that_was_loaded_before_is_tried_apart_before_it_is_refused():
    history, good = LossHistory(), lane("good")
    history.note_ready(good.name)
    lost(history, good, loading=good)
    assert (good.refusal, needs_own_process(history, good)) == ("", True)
    lost(history, good, loading=good, is_shared=False)
    assert good.refusal


def test_one_that_ends_the_process_twice_within_ten_minutes_is_apart():
    history, bad = LossHistory(), lane("bad")
    history.note_ready(bad.name)
    assert not lost(history, bad)
    assert not needs_own_process(history, bad)
    lost(history, bad, at_ms=9 * MINUTE_MS)
    assert needs_own_process(history, bad, 9 * MINUTE_MS)
    assert not bad.refusal


def test_one_that_ends_it_now_and_then_is_not():
    history, bad = LossHistory(), lane("bad")
    for minute in (0, 11, 22):
        lost(history, bad, at_ms=minute * MINUTE_MS)
        assert not needs_own_process(history, bad, minute * MINUTE_MS)


def test_nobody_is_blamed_where_two_were_at_work_or_none():
    history, one, other = LossHistory(), lane("one"), lane("other")
    for _ in range(3):
        lost(history, one, other)
        lost(history)
    assert not needs_own_process(history, one)
    assert not needs_own_process(history, other)


def test_the_youngest_is_suspected_where_the_process_ends_while_nobody_is_at_work():
    history, old, new = LossHistory(), lane("old"), lane("new")
    assert not lost(history, loaded=[old, new])
    assert lost(history, loaded=[old, new], at_ms=MINUTE_MS)
    assert needs_own_process(history, new, 1e9)
    assert not needs_own_process(history, old)
    # Whoever is alone has nobody to be parted from.
    for _ in range(3):
        assert not lost(history, loaded=[old], at_ms=2 * MINUTE_MS)
    assert not needs_own_process(history, old)


def test_the_shared_process_is_ended_by_loads_twice_at_most():
    history, known = LossHistory(), lane("known")
    history.note_ready(known.name)
    for at in range(2):
        assert not needs_own_process(history, lane("new"))
        bad = lane(f"bad{at}")
        lost(history, bad, loading=bad)
    assert needs_own_process(history, lane("new"))
    assert not needs_own_process(history, lane("new", environment="another"))
    assert not needs_own_process(history, known)
    assert not needs_own_process(history, lane("new"), 11 * MINUTE_MS)


def test_what_is_remembered_has_a_limit():
    history = LossHistory()
    for at in range(1100):
        history.note_ready(f"m/{at}")
    assert not history.is_proven("m/0")
    assert history.is_proven("m/1099")
