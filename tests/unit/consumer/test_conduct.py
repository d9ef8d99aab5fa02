"""Who is refused, and who gets a device process of his own, after one was lost."""

import pytest

from batchfleet.consumer.batching.conduct import Conduct, Loss
from batchfleet.consumer.batching.state import Lane
from batchfleet.wire.deployment import Limits, VersionRecord

MINUTE_MS = 60_000.0


def lane(model, version="1", **fields):
    return Lane(1, model, VersionRecord(version=version, lineage="a" * 16, **fields))


def lost(conduct, *at_work, loading=None, at_ms=0.0, is_shared=True, loaded=()):
    return conduct.judge(
        Loss(
            reason="exit code 3",
            loading=loading,
            at_work=at_work,
            loaded=loaded,
            is_shared=is_shared,
            at_ms=at_ms,
        )
    )


def is_apart(conduct, lane, now_ms=0.0):
    return conduct.is_apart(lane.name, lane.record.environment, now_ms)


def test_a_version_whose_load_ends_the_process_is_refused_at_once_and_apart_from_then_on():
    conduct, bad = Conduct(), lane("bad")
    assert lost(conduct, bad, loading=bad)
    assert bad.refusal == "it ended the device process while loading: exit code 3"
    assert is_apart(conduct, bad, 1e9)
    assert not is_apart(conduct, lane("good"))


def test_it_is_tried_again_where_this_very_version_is_deployed_and_nowhere_else():
    conduct, bad = Conduct(), lane("bad", deployed="first")
    lost(conduct, bad, loading=bad)
    other_limits = VersionRecord(
        version="1", lineage="a" * 16, deployed="first", limits=Limits(backlog=3)
    )
    assert conduct.refusal_of("bad/1", other_limits) == bad.refusal
    assert not conduct.refusal_of("bad/1", lane("bad", deployed="second").record)
    assert not conduct.refusal_of("bad/2", lane("bad", "2").record)


@pytest.mark.parametrize("others", [1, 2])
def test_one_that_others_were_at_work_beside_is_tried_apart_before_it_is_refused(others):
    conduct, new = Conduct(), lane("new")
    assert lost(conduct, *(lane(f"m{at}") for at in range(others)), new, loading=new)
    assert (new.refusal, is_apart(conduct, new)) == ("", True)
    again = lane("new")
    lost(conduct, again, loading=again, is_shared=False)
    assert again.refusal


def test_one_that_was_loaded_before_is_tried_apart_before_it_is_refused():
    conduct, good = Conduct(), lane("good")
    conduct.note_ready(good.name)
    lost(conduct, good, loading=good)
    assert (good.refusal, is_apart(conduct, good)) == ("", True)
    lost(conduct, good, loading=good, is_shared=False)
    assert good.refusal


def test_one_that_ends_the_process_twice_within_ten_minutes_is_apart():
    conduct, bad = Conduct(), lane("bad")
    conduct.note_ready(bad.name)
    assert not lost(conduct, bad)
    assert not is_apart(conduct, bad)
    lost(conduct, bad, at_ms=9 * MINUTE_MS)
    assert is_apart(conduct, bad, 9 * MINUTE_MS)
    assert not bad.refusal


def test_one_that_ends_it_now_and_then_is_not():
    conduct, bad = Conduct(), lane("bad")
    for minute in (0, 11, 22):
        lost(conduct, bad, at_ms=minute * MINUTE_MS)
        assert not is_apart(conduct, bad, minute * MINUTE_MS)


def test_nobody_is_blamed_where_two_were_at_work_or_none():
    conduct, one, other = Conduct(), lane("one"), lane("other")
    for _ in range(3):
        lost(conduct, one, other)
        lost(conduct)
    assert not is_apart(conduct, one)
    assert not is_apart(conduct, other)


def test_the_youngest_is_suspected_where_the_process_ends_while_nobody_is_at_work():
    conduct, old, new = Conduct(), lane("old"), lane("new")
    assert not lost(conduct, loaded=[old, new])
    assert lost(conduct, loaded=[old, new], at_ms=MINUTE_MS)
    assert is_apart(conduct, new, 1e9)
    assert not is_apart(conduct, old)
    # Whoever is alone has nobody to be parted from.
    for _ in range(3):
        assert not lost(conduct, loaded=[old], at_ms=2 * MINUTE_MS)
    assert not is_apart(conduct, old)


def test_the_shared_process_is_ended_by_loads_twice_at_most():
    conduct, known = Conduct(), lane("known")
    conduct.note_ready(known.name)
    for at in range(2):
        assert not is_apart(conduct, lane("new"))
        bad = lane(f"bad{at}")
        lost(conduct, bad, loading=bad)
    assert is_apart(conduct, lane("new"))
    assert not is_apart(conduct, lane("new", environment="another"))
    assert not is_apart(conduct, known)
    assert not is_apart(conduct, lane("new"), 11 * MINUTE_MS)


def test_what_is_remembered_has_a_limit():
    conduct = Conduct()
    for at in range(1100):
        conduct.note_ready(f"m/{at}")
    assert not conduct.is_proven("m/0")
    assert conduct.is_proven("m/1099")
