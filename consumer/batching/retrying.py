"""Whether a request that failed runs again later, and when it is given up. Pure."""

from random import Random

from ...service.back_off import BackOff
from ...wire.errors import ErrorKind, kind_of
from .state import EndedRequest

# What may pass: not what is the caller's fault, and not what ended a device process alone.
_RETRIED = frozenset(
    {
        ErrorKind.MODEL_ERROR,
        ErrorKind.BAD_OUTPUT,
        ErrorKind.TIME_LIMIT,
        ErrorKind.DEVICE_MEMORY,
    }
)
_GIVEN_UP = frozenset({ErrorKind.POISON, ErrorKind.ATTEMPTS_EXHAUSTED})
_BACK_OFF = BackOff(first_s=0.5, longest_s=60.0)


def retry_delay_ms(ended: EndedRequest, now_ms: float, chance: Random) -> int | None:
    """After which pause a request runs again; None where its failure is its answer.

    The pause doubles from try to try and is spread by chance. A request that could not run again
    before its deadline is answered at once.
    """
    held, _, failure = ended
    entry = held.entry
    if failure is None or entry.is_last_run or kind_of(failure.code) not in _RETRIED:
        return None
    delay_ms = round(1000 * _BACK_OFF.full_s(entry.attempt) * chance.uniform(0.8, 1.2))
    return delay_ms if now_ms + delay_ms < held.deadline_ms else None


def final_kind(ended: EndedRequest) -> ErrorKind:
    """The kind of error that a failed request is answered with.

    One that ran again as often as its caller asked has exhausted its attempts.
    """
    held, _, failure = ended
    assert failure is not None
    kind = kind_of(failure.code)
    was_retried = held.entry.attempt > 1 and held.entry.is_last_run
    return ErrorKind.ATTEMPTS_EXHAUSTED if was_retried and kind in _RETRIED else kind


def is_dead_letter(kind: ErrorKind) -> bool:
    """Whether a request that ends so is kept among the dead letters."""
    return kind in _GIVEN_UP
