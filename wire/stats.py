"""What a model's versions have done since they were deployed: the hash `ns:{m}:stats`, read.

The scripts that end requests count there, under the gate: each request once. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate

from .errors import ErrorKind

# Upper edges of the buckets of latency; the one behind them is open.
LATENCY_EDGES_MS = tuple(1 << power for power in range(15))
LATENCY_BUCKETS = len(LATENCY_EDGES_MS) + 1
_NO_LATENCY = (0,) * LATENCY_BUCKETS
_DIGITS_MAX = 18

OK = "ok"
OUTCOMES = (OK, "caller", "fleet", "model")


def outcome_field(version: str, error: ErrorKind | None = None) -> str:
    """The field that counts requests of a version that ended so; None = answered with outputs.

    Empty for what is nobody's fault: a request that its caller cancelled.
    """
    if error is ErrorKind.CANCELLED:
        return ""
    return f"{version}:{OK if error is None else error.source.value}"


Counts = Sequence[tuple[str, int]]
"""Fields of the stats, and by how much each grows."""


def counts_of(
    version: str,
    error: ErrorKind | None = None,
    *,
    latency_ms: float = 0.0,
    rows: int = 0,
    device_us: int = 0,
) -> Counts:
    """What the end of one request adds. Errors have no latency."""
    field = outcome_field(version, error)
    counts = [(field, 1)] if field else []
    if error is None:
        # The power of 2 that is the upper edge of its bucket.
        power = max(0, int(latency_ms) - 1).bit_length()
        counts.append((f"{version}:h{min(power, LATENCY_BUCKETS - 1)}", 1))
    if field and device_us:
        counts += ((f"{version}:rows", rows), (f"{version}:device_us", device_us))
    return counts


def stats_fields(version: str) -> list[str]:
    """All fields of one version."""
    buckets = [f"h{bucket}" for bucket in range(LATENCY_BUCKETS)]
    return [f"{version}:{name}" for name in (*OUTCOMES, *buckets, "rows", "device_us")]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStats:
    """Counts of one version, all since it was first deployed unless `minus` made them.

    `ok` were answered with outputs; `caller`, `fleet` and `model` with an error of that source.
    `latency` are the requests that are `ok`, by time from the work stream to the answer: at most
    `LATENCY_EDGES_MS` in each bucket but the last, and more than in the one before. `rows` are
    those that ran on a device before their request was answered, `device_ms` their time there.
    """

    ok: int = 0
    caller: int = 0
    fleet: int = 0
    model: int = 0
    latency: tuple[int, ...] = _NO_LATENCY
    rows: int = 0
    device_ms: float = 0.0

    @property
    def errors(self) -> int:
        """Requests that failed for which no caller is to blame."""
        return self.fleet + self.model

    @property
    def total(self) -> int:
        """All requests that were answered."""
        return self.ok + self.caller + self.errors

    @property
    def device_ms_per_row(self) -> float:
        """Mean device time of a row, ms; 0 where none has run."""
        return self.device_ms / self.rows if self.rows else 0.0

    def minus(self, earlier: "VersionStats") -> "VersionStats":
        """What has been counted since; all, where the counts were removed in between."""
        if self.total < earlier.total or self.rows < earlier.rows:
            return self
        plain = {
            item.name: max(0, getattr(self, item.name) - getattr(earlier, item.name))
            for item in fields(self)
            if item.name != "latency"
        }
        pairs = zip(self.latency, earlier.latency, strict=True)
        return VersionStats(**plain, latency=tuple(max(0, now - then) for now, then in pairs))

    def plus(self, other: "VersionStats") -> "VersionStats":
        """Both together, of stretches of time that do not overlap."""
        plain = {
            item.name: getattr(self, item.name) + getattr(other, item.name)
            for item in fields(self)
            if item.name != "latency"
        }
        pairs = zip(self.latency, other.latency, strict=True)
        return VersionStats(**plain, latency=tuple(map(sum, pairs)))

    def quantile_ms(self, share: float) -> float | None:
        """The latency that `share` (0 to 1) of the answers kept, ms; None where there are none.

        Interpolated within its bucket, whose edges are a factor of 2 apart.
        """
        count = sum(self.latency)
        if not count:
            return None
        wanted = share * count
        up_to = list(accumulate(self.latency))
        bucket = next(at for at, sum_ in enumerate(up_to) if sum_ >= wanted and self.latency[at])
        lowest = LATENCY_EDGES_MS[bucket - 1] if bucket else 0
        highest = 2 * lowest if bucket else LATENCY_EDGES_MS[0]
        before = up_to[bucket] - self.latency[bucket]
        return lowest + (highest - lowest) * (wanted - before) / self.latency[bucket]


def read_stats(raw: Mapping[str, bytes]) -> dict[str, VersionStats]:
    """The counts of each version in the hash; what no script wrote counts nothing."""
    found: dict[str, dict[str, int]] = {}
    for name, value in raw.items():
        version, colon, counter = name.rpartition(":")
        if colon and value.isdigit() and len(value) <= _DIGITS_MAX:
            found.setdefault(version, {})[counter] = int(value)
    return {version: _read_version(counts) for version, counts in found.items()}


def _read_version(counts: Mapping[str, int]) -> VersionStats:
    return VersionStats(
        **{name: counts.get(name, 0) for name in OUTCOMES},
        latency=tuple(counts.get(f"h{bucket}", 0) for bucket in range(LATENCY_BUCKETS)),
        rows=counts.get("rows", 0),
        device_ms=counts.get("device_us", 0) / 1000,
    )
