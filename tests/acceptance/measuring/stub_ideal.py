"""The most that a batcher could get out of `device_stub`. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StubCost:
    """What a batch costs: `base_ms`, and `per_token_ms` for each token, padding included."""

    base_ms: float
    per_token_ms: float

    def batch_ms(self, rows, longest):
        return self.base_ms + self.per_token_ms * longest * rows


def ideal_per_s(lengths, cost, rows_max, in_flight=256):
    """Texts a second of the best cut of every `in_flight` consecutive texts into batches.

    Nobody can do better who knows of no more than `in_flight` texts at a time, and runs all of
    those before the next ones.
    """
    windows = [lengths[at : at + in_flight] for at in range(0, len(lengths), in_flight)]
    return len(lengths) / sum(_best_ms(window, cost, rows_max) for window in windows) * 1000


def _best_ms(lengths, cost, rows_max):
    """Milliseconds of the best cut: texts in order of length, so that batches are neighbours."""
    ordered = sorted(lengths)
    best_ms = [0.0]
    for end, longest in enumerate(ordered, 1):
        sizes = range(1, min(rows_max, end) + 1)
        best_ms.append(min(best_ms[end - size] + cost.batch_ms(size, longest) for size in sizes))
    return best_ms[-1]
