"""Whether a stream that is not there was lost, or never was."""

import pytest

from batchfleet.broker.errors import refused
from batchfleet.producer.missing import Traces, not_added_error, was_lost
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("ns", "m")


def traces(*, is_marked=False, has_record=False, tenants=(), models=()):
    return Traces(
        is_marked=is_marked, has_record=has_record, tenants=list(tenants), models=list(models)
    )


@pytest.mark.parametrize(
    ("found", "lost"),
    [
        (traces(), True),  # nothing at all is left
        (traces(models=["other"]), False),
        (traces(models=["m"]), True),  # its record is gone
        (traces(models=["m"], is_marked=True), False),  # it is being undeployed
        (traces(is_marked=True), False),
        (traces(has_record=True, tenants=["t"], models=["m"]), True),  # its stream is gone
        (traces(has_record=True, models=["m"]), True),  # the tenants are gone
        (traces(has_record=True, tenants=["t"]), True),  # the list is gone as well
        (traces(has_record=True, tenants=["other"], models=["m"]), False),
    ],
)
def test_what_was_lost_is_told_from_what_never_was(found, lost):
    assert was_lost(found, "m", "t") is lost


class Answering:
    """An executor that answers what it is told to."""

    def __init__(self, *answers):
        self.answers = answers

    async def run_each(self, commands):
        assert len(commands) == len(self.answers)
        return list(self.answers)


async def test_what_was_lost_is_worth_another_try():
    error = await not_added_error(Answering(False, False, [], []), KEYS, "t")
    assert error.kind is ErrorKind.UNAVAILABLE
    assert error.kind.retryable
    assert error.retry_after_ms


async def test_who_may_not_look_is_told_what_can_be_known():
    denied = refused("NOPERM no")
    error = await not_added_error(Answering(denied, False, [], denied), KEYS, "t")
    assert error.kind is ErrorKind.UNKNOWN_MODEL


async def test_a_foreign_key_is_no_proof_that_there_is_no_such_model():
    foreign = refused("WRONGTYPE of a key")
    error = await not_added_error(Answering(False, True, foreign, ["m"]), KEYS, "t")
    assert error.kind is ErrorKind.UNAVAILABLE
