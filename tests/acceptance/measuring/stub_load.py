"""`device_stub` under load beside the best cut of its texts, and shared by several workers."""

from statistics import median

from tests.support.fleet import draft_of

from .callers import by_chance, in_turns
from .own_fleet import own_fleet
from .promise import at_least, at_most
from .stub_ideal import StubCost, ideal_per_s
from .word_texts import stub_tokens, word_texts

_CALLERS = 256
_WORKERS = 4
_CURVES = {
    "device_stub": (StubCost(20.0, 0.02), 4096),
    "steep_stub": (StubCost(2.0, 0.2), 1024),
}


def stub_beside_ideal(*, quick):
    """256 callers at the defaults, on a curve that gains by batches and on one that hardly does."""
    promises = []
    for name, (cost, count) in _CURVES.items():
        texts = word_texts(count // 4 if quick else count)
        with own_fleet(_draft(cost)) as fleet:
            # What the first run teaches the worker of its batches is not measured.
            _, *runs = [in_turns(fleet, "stub", texts, _CALLERS) for _ in range(2 if quick else 4)]
        promises += _beside_ideal(name, cost, texts, runs)
    return promises


def _draft(cost):
    values = {"base_ms": cost.base_ms, "per_token_ms": cost.per_token_ms}
    return draft_of("device_stub", "stub", parameters=values)


def _beside_ideal(name, cost, texts, runs):
    rows_max = _draft(cost).limits.max_batch_size or _size_in_force(runs)
    ideal = ideal_per_s([stub_tokens(text) for text in texts], cost, rows_max, _CALLERS)
    rate = median(run.per_s for run in runs)
    spread = median(run.p99_ms / run.p50_ms for run in runs)
    words = f"{rate:.0f}/s at {_CALLERS} callers, mean batch {runs[-1].mean_batch:.1f}"
    named = f"{name}_vs_ideal: {words}; ideal {ideal:.0f}/s in batches ≤ {rows_max}"
    return [
        at_least(named, rate / ideal, 0.90),
        at_most(f"{name}: p99 ÷ p50", spread, 3.2),
    ]


def _size_in_force(runs):
    """Rows that a batch may have where no limit says it: what was seen, as workers double it."""
    largest = max(rows for run in runs for rows in run.batches)
    return 1 << (largest - 1).bit_length()


def four_workers(*, quick):
    """One worker and four, each with 256 callers for every worker; then at half the load."""
    texts = word_texts(512 if quick else 2048)
    cost, rounds, seconds = _CURVES["device_stub"][0], 1 if quick else 3, 3.0 if quick else 8.0
    with own_fleet(_draft(cost)) as one, own_fleet(_draft(cost), workers=_WORKERS) as four:
        pairs = [
            (
                in_turns(one, "stub", texts, _CALLERS),
                in_turns(four, "stub", texts * _WORKERS, _CALLERS * _WORKERS),
            )
            for _ in range(rounds + 1)
        ][1:]
        half_per_s = 0.5 * _WORKERS * median(alone.per_s for alone, _ in pairs)
        kinds = {"all": texts}
        alone, shared = (
            by_chance(f, "stub", kinds, half_per_s, seconds)["all"] for f in (one, four)
        )
    scale = median(many.per_s / alone.per_s for alone, many in pairs)
    return [
        at_least(f"scale_{_WORKERS}_workers", scale, 3.8),
        at_least(
            f"{_WORKERS} workers at half their load, {half_per_s:.0f}/s: mean batch "
            f"{shared.mean_batch:.1f} ÷ one worker's {alone.mean_batch:.1f} at the same load",
            shared.mean_batch / alone.mean_batch,
            0.6,
        ),
    ]
