"""How fast a model's backlog drains, to tell refused callers when to retry."""

from dataclasses import dataclass

_SMOOTH = 0.3
# A refused caller should find room: a twentieth of the backlog is likely to be free by then.
_SHARE = 0.05
RETRY_AFTER_MS = (100, 30_000)
_UNKNOWN_MS = 1000


@dataclass(frozen=True, slots=True)
class DrainRate:
    """Requests ended per millisecond, smoothed; a value that is replaced at each look.

    What other routers accept in between is not counted, so the rate is a lower bound and the
    advised time rather too long.
    """

    per_ms: float = 0.0
    seen_ms: float | None = None
    open_requests: int = 0
    accepted: int = 0

    def after(self, open_requests: int, accepted: int, now_ms: float) -> "DrainRate":
        """The rate after another look: requests open now, and accepted here since the start."""
        if self.seen_ms is None or now_ms <= self.seen_ms:
            return DrainRate(self.per_ms, now_ms, open_requests, accepted)
        ended = self.open_requests + (accepted - self.accepted) - open_requests
        rate = max(0, ended) / (now_ms - self.seen_ms)
        smooth = self.per_ms + _SMOOTH * (rate - self.per_ms) if self.per_ms else rate
        return DrainRate(smooth, now_ms, open_requests, accepted)

    def retry_after_ms(self, backlog: int) -> int:
        """When to retry while `backlog` requests are open."""
        if self.per_ms <= 0:
            return _UNKNOWN_MS
        lowest, highest = RETRY_AFTER_MS
        return round(min(highest, max(lowest, _SHARE * backlog / self.per_ms)))
