"""A core with one ready lane, and short words for what happens to it."""

from batchfleet.consumer.batching.core import Core
from batchfleet.consumer.batching.state import Placement, TakenEntry
from batchfleet.consumer.link.protocol import Answer, Done, PreparedItem, PreparedRows, Ready, Run
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.work import WorkEntry

PLACE = Placement(level=1, bucket=0)
POISON = ErrorKind.POISON


def entry(name, *, rows=1, deadline_ms=60_000, parameters=None, inputs=b"{}"):
    return WorkEntry(
        stream="bf:{m}:q:1:normal:0",
        entry_id=b"5-0",
        id=name,
        tenant="default",
        inputs=inputs,
        deadline_ms=deadline_ms,
        rows=rows,
        parameters=parameters,
    )


def prepared_item(number, lengths, kinds=None):
    return PreparedItem(number, lengths, 0, 0.1, kinds or [0] * len(lengths))


class Bench:
    """A core with one ready lane, and short words for what happens to it."""

    def __init__(self, *, bytes_per_token=0.0, **limits):
        self.core = Core()
        self.core.device_up = self.core.is_greeted = True
        self.core.fresh_until_ms = 1e9
        record = VersionRecord(
            version="1", bytes_per_token=bytes_per_token, limits=Limits(**limits)
        )
        self.lane = self.core.open_lane("m", record)
        self.core.receive(Ready(self.lane.number, [], "l" * 16, 0, 1.0, [], 0), 0)

    def take(self, *entries, now_ms=0.0, place=PLACE):
        self.core.take(self.lane, [TakenEntry(place, work) for work in entries], now_ms, 0.0)

    def plan(self, now_ms=0.0):
        return self.core.plan(now_ms)

    def prepared(self, *lengths_by_request):
        items = [prepared_item(number, lengths) for number, lengths in lengths_by_request]
        self.core.receive(PreparedRows(items, []), 1.0)
        return self.ended()

    def done(self, run, answers=(), failures=(), prepared=()):
        if isinstance(run, Run):
            rows = run.rows
        else:
            rows = [(item.request, at) for item in prepared for at in range(len(item.lengths))]
        self.core.receive(
            Done(run.batch, rows, 4.0, list(prepared), list(failures), list(answers)), 2.0
        )
        return self.ended()

    def ended(self):
        """What is over since this was asked last; it counts as settled."""
        ended = list(self.core.requests.unsettled.values())
        self.core.requests.end_settling(ended, [])
        return ended


def answered(*numbers):
    return [Answer(number, b"[]", 0.0) for number in numbers]
