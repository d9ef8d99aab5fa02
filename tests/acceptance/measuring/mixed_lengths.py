"""Short texts among long ones, half and half: what each kind costs the other."""

from statistics import median

from batchfleet.models.importing import MINILM_EXACT

from .callers import by_chance, in_turns
from .encoders import OLDEST_FIRST, encoder_fleet
from .promise import at_least, at_most

_CALLERS = 64
_LOAD = 0.7
_SHORT_TOKENS, _LONG_TOKENS = 8, 256
_SHORT, _LONG = "short", "long"
# Words of one token each, beside the two special tokens.
_TEXTS = {
    _SHORT: [" ".join(["time"] * (_SHORT_TOKENS - 2))],
    _LONG: [" ".join(["time"] * (_LONG_TOKENS - 2))],
}


def mixed_lengths(*, quick):
    """As they come, at 70 % of what the device can do; beside the policy that runs the oldest."""
    seconds, rounds = (8.0, 1) if quick else (60.0, 2)
    with encoder_fleet(MINILM_EXACT, OLDEST_FIRST) as (fleet, _):
        short_per_s = _LOAD * _capacity_per_s(fleet, _TEXTS[_SHORT], 200 if quick else 2000)
        mixed = _TEXTS[_SHORT] + _TEXTS[_LONG]
        mixed_per_s = _LOAD * _capacity_per_s(fleet, mixed, 20 if quick else 200)
        run_ms = _run_ms(fleet, _TEXTS[_LONG])
        alone = {_SHORT: _TEXTS[_SHORT]}
        found = [
            (
                by_chance(fleet, MINILM_EXACT, alone, short_per_s, seconds / 2)[_SHORT],
                by_chance(fleet, MINILM_EXACT, _TEXTS, mixed_per_s, seconds),
                by_chance(fleet, OLDEST_FIRST, _TEXTS, mixed_per_s, seconds),
            )
            for _ in range(rounds)
        ]
    alone_ms = median(alone.p99_ms for alone, _, _ in found)
    mixed_ms = median(ours[_SHORT].p99_ms for _, ours, _ in found)
    longs = median(ours[_LONG].per_s / oldest[_LONG].per_s for _, ours, oldest in found)
    load = f"{mixed_per_s:.0f} texts/s, half of {_SHORT_TOKENS} and half of {_LONG_TOKENS} tokens"
    return [
        at_most(
            f"{load}: p99 of short, ms (alone {alone_ms:.0f}; one long row runs {run_ms:.0f})",
            mixed_ms,
            alone_ms + 1.5 * run_ms,
        ),
        at_least("… throughput of long ÷ that of the oldest first", longs, 0.9),
    ]


def _capacity_per_s(fleet, texts, count):
    """What the device can do of these."""
    repeated = texts * (count // len(texts))
    return in_turns(fleet, MINILM_EXACT, repeated, _CALLERS).per_s


def _run_ms(fleet, texts):
    """How long one row runs alone."""
    receipts = in_turns(fleet, MINILM_EXACT, texts * 20, 1).receipts
    return median(receipt["predict_ms"] for receipt in receipts)
