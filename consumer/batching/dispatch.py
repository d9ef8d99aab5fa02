"""How requests of one lane go to the device process: in which message, which together. Pure."""

from collections.abc import Iterable, Sequence
from itertools import islice

from ..link.protocol import Fetch, Item, Message, Prepare
from .batcher import WaitingRow
from .state import HeldRequest, Lane

# Preprocessing this cheap is done on the device thread, together with the run.
_CHEAP_PREPROCESS_MS = 0.2
# Larger inputs take longer to decode than others should wait for it.
_SMALL_BYTES_MAX = 64 * 1024
# Rows of a batch of fair size, by which the cost of one row is reckoned.
_FAIR_ROWS = 8


def is_cheap(lane: Lane) -> bool:
    """Whether preprocessing what waits is not worth a message of its own.

    Requests that cannot share a batch, and those that come while such ones wait, are prepared all
    the same: they run one after the other, and in which order is for the batcher to say, by
    priority and deadline.
    """
    if lane.record.bytes_per_token > 0 or lane.preprocess_ms >= _CHEAP_PREPROCESS_MS:
        return False
    if lane.rows or any(map(_is_slow, lane.waiting)):
        return False
    parameters = lane.waiting[0].entry.parameters if lane.waiting else None
    return all(held.entry.parameters == parameters for held in lane.waiting)


def is_direct(lane: Lane) -> bool:
    """Whether an idle device should get what waits unprepared."""
    if not lane.ready or lane.preparing or _is_slow(lane.waiting[0]):
        return False
    alone = len(lane.waiting) == 1 and lane.waiting[0].entry.rows == 1
    return is_cheap(lane) or alone


def _is_slow(held: HeldRequest) -> bool:
    """Whether decoding a request takes so long that the device thread must not wait for it."""
    return held.is_at_url or len(held.entry.inputs) > _SMALL_BYTES_MAX


def first_alike(lane: Lane) -> list[HeldRequest]:
    """The first waiting requests that may share a batch."""
    limits = lane.limits
    rows_max = min(limits.max_batch_size, limits.max_batch_tokens or limits.max_batch_size)
    first = lane.waiting[0]
    chosen = [first]
    rows = first.entry.rows
    for held in islice(lane.waiting, 1, rows_max):
        rows += held.entry.rows
        if rows > rows_max or held.entry.parameters != first.entry.parameters:
            break
        chosen.append(held)
    return chosen


def direct_release(lane: Lane, requests: Sequence[HeldRequest]) -> str:
    """Why a batch of unprepared requests ends where it does."""
    full = sum(held.entry.rows for held in requests) >= lane.limits.max_batch_size
    return "full" if full else "idle"


def allowed_ms(held: HeldRequest) -> float:
    """How long the device process may take to prepare a request, fetching it included."""
    allowed = held.lane.record.limits.preprocess_ms
    return 2 * allowed if held.is_at_url else allowed


def preparing_ms(lanes: Iterable[Lane]) -> float:
    """How long what is being prepared may take, one after the other; not what is fetched first.

    Fetches have threads of their own.
    """
    return sum(
        (lane.preparing - lane.fetching) * lane.record.limits.preprocess_ms
        for lane in lanes
        if lane.preparing
    )


def fetching_ms(lanes: Iterable[Lane]) -> float:
    """How long what is being fetched may take, with its preparation, one after the other."""
    return sum(2 * lane.fetching * lane.record.limits.preprocess_ms for lane in lanes)


def prepare_messages(lane: Lane, requests: Sequence[HeldRequest]) -> list[Message]:
    """What has requests preprocessed; those that lie elsewhere are fetched first.

    Large ones go alone: what a message holds is prepared by one thread, one after the other.
    """
    here = [held for held in requests if not held.is_at_url]
    small = [item_of(held) for held in here if not _is_slow(held)]
    elsewhere: dict[str, list[Item]] = {}
    for held in requests:
        if held.is_at_url:
            elsewhere.setdefault(held.entry.tenant, []).append(item_of(held))
    messages: list[Message] = [Prepare(lane.number, small)] if small else []
    messages += [Prepare(lane.number, [item_of(held)]) for held in here if _is_slow(held)]
    return messages + [Fetch(lane.number, tenant, items) for tenant, items in elsewhere.items()]


def item_of(held: HeldRequest) -> Item:
    """A request as the device process gets it."""
    entry = held.entry
    return Item(
        held.number,
        entry.content_type,
        entry.accept,
        (entry.inputs_at or "").encode() if held.is_at_url else entry.inputs,
        entry.truncate,
        entry.parameters,
        entry.outputs,
    )


def waiting_rows(held: HeldRequest) -> list[WaitingRow]:
    """The rows of a request, spread in rank so that a large one does not hold up the others.

    Each row counts as having arrived when the device could have served the rows before it, and
    whatever else the lane holds as often.
    """
    lane = held.lane
    others = lane.held_rows - held.weight
    mean = sum(held.lengths) // len(held.lengths)
    step_ms = (1 + others) * lane.cost.milliseconds(_FAIR_ROWS, mean) / _FAIR_ROWS
    return [
        WaitingRow(
            held.number,
            at,
            length,
            (held.entry.parameters, kind),
            held.placement.level,
            held.taken_ms + at * step_ms,
            held.deadline_ms,
        )
        for at, (length, kind) in enumerate(zip(held.lengths, held.kinds, strict=True))
    ]
