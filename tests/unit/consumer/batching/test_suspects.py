"""Suspects go into the device process group by group, so that a culprit is known by being alone."""

from batchfleet.consumer.batching.state import HeldRequest, Lane, Placement
from batchfleet.consumer.batching.suspects import Suspects
from batchfleet.wire.deployment import VersionRecord

FIRST, SECOND = (Lane(at, "m", VersionRecord(version=str(at))) for at in (1, 2))


def held(number, lane=FIRST):
    return HeldRequest(number, None, lane, Placement(1, 0), 0.0, 1e9)


def test_who_is_accused_goes_in_alone_and_in_order():
    suspects, a, b = Suspects(), held(1), held(2)
    assert not suspects
    suspects.add_alone(a)
    suspects.add_alone(b)
    assert suspects
    assert not suspects.is_inside
    assert suspects.admit() == [a]
    assert suspects.is_alone
    suspects.forget(a)
    assert not suspects.is_inside
    assert suspects.admit() == [b]
    suspects.forget(b)
    assert not suspects


def test_the_one_that_was_alone_is_the_culprit():
    suspects, a = Suspects(), held(1)
    suspects.add_alone(a)
    suspects.admit()
    assert suspects.lose() is a
    assert not suspects


def test_a_group_of_one_lane_goes_in_together_and_nobody_is_the_culprit():
    suspects, a, b, other = Suspects(), held(1), held(2), held(3, SECOND)
    for one in (a, b, other):
        suspects.add_to_group(one)
    assert suspects.admit() == [a, b]
    assert not suspects.is_alone
    assert suspects.lose() is None
    assert suspects.admit() == [other]
    assert suspects.is_alone


def test_the_last_of_a_group_was_not_alone_from_the_beginning():
    suspects, a, b = Suspects(), held(1), held(2)
    suspects.add_to_group(a)
    suspects.add_to_group(b)
    suspects.admit()
    suspects.forget(a)
    assert suspects.is_inside
    assert not suspects.is_alone
    assert suspects.lose() is None


def test_a_group_does_not_grow_once_it_is_inside_or_another_was_accused():
    suspects, a, b, c, d = Suspects(), *(held(at) for at in range(1, 5))
    suspects.add_to_group(a)
    assert suspects.admit() == [a]
    suspects.add_to_group(b)
    suspects.add_alone(c)
    suspects.add_to_group(d)
    suspects.forget(a)
    assert [suspects.admit(), suspects.admit(), suspects.admit()] == [[b], [c], [d]]


def test_a_suspect_that_is_over_before_its_turn_takes_no_turn():
    suspects, a, b = Suspects(), held(1), held(2)
    suspects.add_alone(a)
    suspects.add_alone(b)
    suspects.forget(a)
    assert suspects.admit() == [b]
    suspects.forget(b)
    suspects.add_to_group(a)
    suspects.forget(a)
    suspects.add_to_group(b)
    assert suspects.admit() == [b]


def test_nobody_is_blamed_for_what_did_not_arrive():
    suspects, a = Suspects(), held(1)
    suspects.add_alone(a)
    suspects.admit()
    suspects.clear_blame()
    assert suspects.lose() is None
