"""Which failures run again, after which pause, and which are given up."""

from random import Random

import pytest

from batchfleet.consumer.batching.retrying import final_kind, is_dead_letter, retry_delay_ms
from batchfleet.consumer.batching.state import EndedRequest, HeldRequest, Lane, Placement
from batchfleet.consumer.link.protocol import Answer, Failure
from batchfleet.wire.deployment import VersionRecord
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.work import WorkEntry

LANE = Lane(1, "m", VersionRecord(version="1"))
PASSING = {
    ErrorKind.MODEL_ERROR,
    ErrorKind.BAD_OUTPUT,
    ErrorKind.TIME_LIMIT,
    ErrorKind.DEVICE_MEMORY,
}


def failed(kind=ErrorKind.MODEL_ERROR, *, retries=1, attempt=1, deadline_ms=1e9):
    entry = WorkEntry(
        stream="bf:{m}:q:1:normal:0",
        entry_id=b"5-0",
        id="a",
        tenant="default",
        inputs=b"{}",
        deadline_ms=0,
        retries=retries,
        attempt=attempt,
    )
    held = HeldRequest(1, entry, LANE, Placement(1, 0), 0.0, deadline_ms)
    return EndedRequest(held, None, Failure(1, kind.code, "it failed", []))


def delay_ms(ended, now_ms=0.0, seed=1):
    return retry_delay_ms(ended, now_ms, Random(seed))


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_what_may_pass_runs_again_and_nothing_else(kind):
    assert (delay_ms(failed(kind)) is not None) == (kind in PASSING)


def test_without_retries_left_the_failure_is_the_answer():
    assert delay_ms(failed(retries=0)) is None
    assert delay_ms(EndedRequest(failed().held, Answer(1, b"[]", 0.0))) is None


def test_the_pause_doubles_and_has_an_end():
    pauses = [delay_ms(failed(attempt=attempt)) for attempt in (1, 2, 3, 4, 40)]
    assert pauses[:4] == pytest.approx([pauses[0] * 2**at for at in range(4)], abs=8)
    assert 400 <= pauses[0] <= 600
    assert 48_000 <= pauses[4] <= 72_000


def test_pauses_are_spread():
    pauses = {delay_ms(failed(), seed=seed) for seed in range(50)}
    assert len(pauses) > 20
    assert 400 <= min(pauses) < 450
    assert 550 < max(pauses) <= 600


def test_a_retry_that_would_come_after_the_deadline_is_not_made():
    assert delay_ms(failed(deadline_ms=1_000), now_ms=399) is not None
    assert delay_ms(failed(deadline_ms=1_000), now_ms=601) is None


@pytest.mark.parametrize(
    ("kind", "attempt", "retries", "final"),
    [
        (ErrorKind.MODEL_ERROR, 1, 0, ErrorKind.MODEL_ERROR),
        (ErrorKind.MODEL_ERROR, 3, 0, ErrorKind.ATTEMPTS_EXHAUSTED),
        (ErrorKind.MODEL_ERROR, 2, 1, ErrorKind.MODEL_ERROR),
        (ErrorKind.POISON, 2, 0, ErrorKind.POISON),
        (ErrorKind.BAD_INPUTS, 2, 0, ErrorKind.BAD_INPUTS),
        (ErrorKind.DEADLINE_EXCEEDED, 2, 0, ErrorKind.DEADLINE_EXCEEDED),
    ],
)
def test_what_ran_as_often_as_was_asked_has_exhausted_its_attempts(kind, attempt, retries, final):
    assert final_kind(failed(kind, attempt=attempt, retries=retries)) is final


def test_poison_and_exhausted_attempts_are_given_up():
    assert {kind for kind in ErrorKind if is_dead_letter(kind)} == {
        ErrorKind.POISON,
        ErrorKind.ATTEMPTS_EXHAUSTED,
    }
