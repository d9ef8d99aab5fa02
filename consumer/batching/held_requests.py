"""The requests in a worker's hands: those it holds, and those that are over but not settled. Pure.

Owned by `core.py`, under its lock.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from ...wire.errors import ErrorKind
from ..link.protocol import Answer, Drop, Failure, Message, PreparedItem
from .state import EndedRequest, HeldRequest, Lane, Phase, TakenEntry
from .suspects import Suspects

_SMOOTH = 0.1  # share of one request in the mean preprocessing time
# A fetch that takes longer is slow; so many of them, which are small, make room for others.
_FETCH_MS = 200.0
_SLOW_FETCHES_MAX = 1024


class HeldRequests:
    """Numbers requests, and keeps the sums that they add to. A number is never used twice."""

    def __init__(self, suspects: Suspects) -> None:
        self.held: dict[int, HeldRequest] = {}
        self.unsettled: dict[int, EndedRequest] = {}  # over, and the server does not know it yet
        self.is_refused = False  # the server would not take the last answers
        self.input_bytes = 0
        self.preparing_bytes = 0  # of inputs sent to the device process and not prepared yet
        self._suspects = suspects
        self._next = 1

    def add(self, lane: Lane, taken: TakenEntry, now_ms: float, offset_ms: float) -> HeldRequest:
        """Hold an entry; `offset_ms` turns server time to monotonic time."""
        placement, entry, attempt, _ = taken
        held = HeldRequest(0, entry, lane, placement, now_ms, entry.deadline_ms - offset_ms)
        held.attempt = entry.attempt + attempt - 1
        self.adopt(held, lane)
        return held

    def adopt(self, held: HeldRequest, lane: Lane) -> None:
        """Hold a request, perhaps one that another core held."""
        held.number, held.lane = self._next, lane
        self._next += 1
        self.held[held.number] = held
        self.input_bytes += len(held.entry.inputs)
        lane.weigh(held)

    def of_lane(self, lane: Lane) -> list[HeldRequest]:
        """What is held for a lane."""
        return [held for held in self.held.values() if held.lane is lane]

    def has_any_of(self, lane: Lane) -> bool:
        """Whether anything is held for a lane, or not settled yet."""
        ended = (ended.held for ended in self.unsettled.values())
        return any(held.lane is lane for held in (*self.held.values(), *ended))

    def inside(self) -> list[HeldRequest]:
        """What is in the device process."""
        return [held for held in self.held.values() if held.is_inside]

    def has_entry(self, stream: str, entry_id: bytes) -> bool:
        """Whether an entry is held, or not settled yet. Asked after a lost answer only."""
        ended = (ended.held for ended in self.unsettled.values())
        return any(
            held.entry.entry_id == entry_id and held.entry.stream == stream
            for held in (*self.held.values(), *ended)
        )

    def begin_preparing(self, held: HeldRequest, by_ms: float) -> None:
        """A request is sent to be prepared, and too late after `by_ms`."""
        held.phase, held.prepare_by_ms = Phase.PREPARING, by_ms
        held.lane.preparing += 1
        held.lane.fetching += held.is_at_url
        self.preparing_bytes += len(held.entry.inputs)

    def end_preparing(self, held: HeldRequest) -> None:
        """A request is prepared, or will never be."""
        held.phase = Phase.PREPARED
        held.lane.preparing -= 1
        held.lane.fetching -= held.is_at_url
        self.preparing_bytes -= len(held.entry.inputs)

    def note_prepared(self, item: PreparedItem) -> HeldRequest | None:
        """Learn what preparing a request has shown; returns it, None where it is over."""
        held = self.held.get(item.request)
        if held is None or held.phase is not Phase.PREPARING:
            return None
        lane = held.lane
        self.end_preparing(held)
        _, held.lengths, held.truncated_tokens, held.preprocess_ms, held.kinds = item
        held.rows_left = len(held.lengths)
        lane.weigh(held)
        lane.preprocess_ms += _SMOOTH * (held.preprocess_ms - lane.preprocess_ms)
        return held

    def slowly_fetched_rows(self, lane: Lane, now_ms: float) -> int:
        """Rows of a lane that count for nothing, or who names slow servers would fill its room."""
        if not lane.fetching:
            return 0
        slow = (
            held.weight
            for held in self.held.values()
            if held.is_at_url
            and held.lane is lane
            and held.phase is Phase.PREPARING
            and held.taken_ms < now_ms - _FETCH_MS
        )
        return sum(islice(slow, _SLOW_FETCHES_MAX))

    def forget(self, held: HeldRequest) -> None:
        """Hold a request no more, wherever it stands."""
        lane = held.lane
        del self.held[held.number]
        self.input_bytes -= len(held.entry.inputs)
        if held.phase is Phase.PREPARED:
            if held.rows_left:
                lane.rows = [row for row in lane.rows if row.request != held.number]
        elif held.phase is Phase.PREPARING:
            self.end_preparing(held)
        elif held in lane.waiting:
            lane.waiting.remove(held)
        lane.held_rows -= held.weight
        held.weight = 0
        if self._suspects:
            self._suspects.forget(held)

    # What is over.

    def answer(self, answers: Iterable[Answer]) -> None:
        """End requests with their answers."""
        for answer in answers:
            self._end(answer.request, answer, None)

    def fail(self, failures: Iterable[Failure]) -> None:
        """End requests that failed, wherever they stand."""
        for failure in failures:
            self._end(failure.request, None, failure)

    def fail_one(self, held: HeldRequest, kind: ErrorKind, text: str) -> None:
        """End a request for a reason of our own."""
        self._end(held.number, None, Failure(held.number, kind.code, text, []))

    def give_up(self, over: Sequence[HeldRequest], kind: ErrorKind, text: str) -> list[Message]:
        """End requests that are not on the device; returns what the device process is to forget."""
        dropped = [held.number for held in over if held.phase is not Phase.WAITING]
        for held in over:
            self.fail_one(held, kind, text)
        return [Drop(dropped)] if dropped else []

    def _end(self, number: int, answer: Answer | None, failure: Failure | None) -> None:
        held = self.held.get(number)
        if held is not None:  # else it was forgotten before
            self.forget(held)
            held.phase = Phase.ENDED
            self.unsettled[number] = EndedRequest(held, answer, failure)

    def end_settling(self, tried: Iterable[EndedRequest], left: Sequence[EndedRequest]) -> None:
        """The server has taken the end of what was tried but for what is left."""
        for ended in tried:
            del self.unsettled[ended.held.number]
        self.unsettled = {ended.held.number: ended for ended in left} | self.unsettled
        self.is_refused = bool(left)

    def refused_rows(self, lane: Lane) -> int:
        """Rows of a lane whose answers have to wait, since the server takes none."""
        if not self.is_refused:
            return 0
        ended = [ended.held for ended in self.unsettled.values() if ended.held.lane is lane]
        return sum(lane.weight_of(held) for held in ended)
