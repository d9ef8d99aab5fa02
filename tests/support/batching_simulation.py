"""Workers that share queues, in virtual time: the real core and stream order, a device that sleeps.

Pure and fast: what a policy gives in throughput, latency and fairness, before any process runs it.
"""

import heapq
import random
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import count

from batchfleet.consumer.batching.core import Core
from batchfleet.consumer.batching.state import TakenEntry
from batchfleet.consumer.batching.stream_order import StreamOrder, placement_of
from batchfleet.consumer.device.warming import WARM_UP_MS, at_most_ms, plan_points
from batchfleet.consumer.link.protocol import (
    Answer,
    Done,
    Prepare,
    PreparedItem,
    PreparedRows,
    PrepareRun,
    Ready,
    Run,
)
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.work import WorkEntry

KEYS = ModelKeys("bf", "m")
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256)
_RETURN_MS = 1.0  # from an answer to the entry of the caller's next request in its queue
_EACH_MS = 0.1  # more for each further answer of a batch
_PREPROCESS_MS = 0.3


def accelerator_ms(rows, length):
    """What `device_stub` costs: a batch is dear, a token is cheap."""
    return 20 + 0.02 * rows * length


def steep_ms(rows, length):
    """A smaller accelerator."""
    return 2 + 0.2 * rows * length


def cpu_ms(rows, length):
    """MiniLM on one thread, about: rows add up, and more so if long or in large batches."""
    tokens = rows * length
    return 2 + 0.24 * tokens * (1 + length / 1024) * (1 + 0.1 * max(0.0, tokens / 1024 - 0.5))


def lognormal(chance):
    """Tokens of a text, as texts are: mean about 35."""
    return min(256, max(3, int(chance.lognormvariate(3.2, 0.9))))


def short_or_long(chance):
    """Half of them 8 tokens, half 256."""
    return chance.choice((8, 256))


@dataclass
class Outcome:
    """What came of a run. `waits`: (length, ms from entry to answer)."""

    waits: list = field(default_factory=list)
    batches: list = field(default_factory=list)  # (rows, longest, tokens)
    ends_ms: float = 0.0

    @property
    def per_s(self):
        return 1000 * len(self.waits) / self.ends_ms

    @property
    def mean_batch(self):
        return sum(rows for rows, _, _ in self.batches) / len(self.batches)

    @property
    def padding(self):
        padded = sum(rows * longest for rows, longest, _ in self.batches)
        return padded / sum(tokens for _, _, tokens in self.batches)

    def at(self, share, lengths=None):
        """A quantile of the waits, of rows of these lengths."""
        waits = sorted(ms for length, ms in self.waits if lengths is None or length in lengths)
        return waits[min(len(waits) - 1, int(share * len(waits)))]


@dataclass
class Arrival:
    """One row on its way."""

    length: int
    begins_ms: float


class _Worker:
    """The main process and the device process of one worker."""

    def __init__(self, record, curve, now_ms):
        self.core = Core()
        self.core.device_up = self.core.is_greeted = True
        self.core.fresh_until_ms = 1e15
        self.lane = self.core.open_lane("m", record)
        self.core.receive(Ready(self.lane.number, curve, "l" * 16, 0, 1.0, [], 0), now_ms)
        self.order = StreamOrder(KEYS, record, now_ms)
        self.lengths = {}
        self.left = {}


class Simulation:
    """Requests of one row each, queued by length, and the workers that share them."""

    def __init__(self, cost_ms, *, limits=None, workers=1, seed=0):
        self.limits = limits or Limits(buckets=BUCKETS, max_length=256)
        record = VersionRecord(version="1", bytes_per_token=4.0, limits=self.limits)
        self.cost_ms = cost_ms
        self.chance = random.Random(seed)
        self.outcome = Outcome()
        self.now_ms = 0.0
        self.queues = {}
        self.arrivals = {}  # entry id → Arrival
        self._events = []
        self._numbers = count(1)
        curve = warm_up_curve(self.limits, cost_ms)
        self.workers = [_Worker(record, curve, 0.0) for _ in range(workers)]

    # Loads.

    def closed(self, callers, requests, length_of):
        """So many callers, each with one request at a time."""
        left = [requests]

        def submit():
            if left[0] > 0:
                left[0] -= 1
                self._enter(length_of(self.chance), submit)

        for _ in range(callers):
            self._at(self.chance.uniform(0, 20), submit)
        return self._run()

    def open(self, arrivals):
        """Requests at their times, `(ms, length)`, whatever was answered."""
        for at_ms, length in arrivals:
            self._at(at_ms, lambda length=length: self._enter(length, lambda: None))
        return self._run()

    # Events.

    def _at(self, ms, act):
        heapq.heappush(self._events, (ms, next(self._numbers), act))

    def _run(self):
        while self._events:
            self.now_ms, _, act = heapq.heappop(self._events)
            act()
        self.outcome.ends_ms = self.now_ms
        return self.outcome

    def _enter(self, length, answered):
        number = next(self._numbers)
        self.arrivals[number] = (Arrival(length, self.now_ms), answered)
        edge = BUCKETS[bisect_left(BUCKETS, length)]
        self.queues.setdefault(KEYS.queue("1", "normal", edge), []).append(number)
        # Whose device is idle first, as with bells; then whoever has room.
        for worker in sorted(self.workers, key=lambda one: one.core.running is not None):
            self._take(worker)

    def _take(self, worker):
        core, lane = worker.core, worker.lane
        while any(self.queues.values()) and (room := core.room(lane, self.now_ms)) > 0:
            asked, newest, taken = worker.order.streams(self.now_ms), {}, []
            for stream in asked:
                queue = self.queues.get(stream, [])
                chosen, self.queues[stream] = queue[:room], queue[room:]
                room -= len(chosen)
                taken += [self._entry(stream, number) for number in chosen]
                if chosen:
                    newest[stream] = self.arrivals[chosen[-1]][0].begins_ms
                if room <= 0:
                    break
            worker.order.note(asked, newest, self.now_ms)
            for held in core.take(lane, taken, self.now_ms, 0.0):
                worker.lengths[held.number] = int(held.entry.id)
        self._plan(worker)

    def _entry(self, stream, number):
        entry_id = b"%d-%d" % (self.arrivals[number][0].begins_ms, number)
        work = WorkEntry(stream, entry_id, str(number), "t", b"", int(self.now_ms) + 10**7)
        return TakenEntry(placement_of(stream), work)

    def _plan(self, worker):
        for message in worker.core.plan(self.now_ms):
            match message:
                case Prepare():
                    items = self._prepared(worker, message.items)
                    self._say(worker, _PREPROCESS_MS * len(items), PreparedRows(items, []))
                case PrepareRun():
                    items = self._prepared(worker, message.items)
                    self._run_batch(worker, message.batch, [i.request for i in items], items)
                case Run():
                    self._run_batch(worker, message.batch, [n for n, _ in message.rows], [])
        again_ms = worker.core.look_again_ms
        if again_ms is not None:
            self._at(again_ms, lambda: self._plan(worker))

    def _prepared(self, worker, items):
        return [
            PreparedItem(item.request, [self._arrival(worker, item.request).length], 0, 0.3, [0])
            for item in items
        ]

    def _arrival(self, worker, number):
        return self.arrivals[worker.lengths[number]][0]

    def _run_batch(self, worker, batch, numbers, prepared):
        lengths = [self._arrival(worker, number).length for number in numbers]
        self.outcome.batches.append((len(numbers), max(lengths), sum(lengths)))
        run_ms = self.cost_ms(len(numbers), max(lengths))
        answers = [Answer(number, b"", 0.0) for number in numbers]
        done = Done(batch, [(number, 0) for number in numbers], run_ms, prepared, [], answers)
        self._say(worker, run_ms, done)

    def _say(self, worker, after_ms, message):
        self._at(self.now_ms + after_ms, lambda: self._receive(worker, message))

    def _receive(self, worker, message):
        core = worker.core
        core.receive(message, self.now_ms)
        self._plan(worker)
        ended = list(core.requests.unsettled.values())
        core.requests.end_settling(ended, [])
        for at, one in enumerate(ended):
            arrival, answered = self.arrivals.pop(worker.lengths.pop(one.held.number))
            self.outcome.waits.append((arrival.length, self.now_ms - arrival.begins_ms))
            self._at(self.now_ms + _RETURN_MS + at * _EACH_MS, answered)
        self._take(worker)


def warm_up_curve(limits, cost_ms):
    """What `warm_up` would measure in the time it has."""
    curve, left_ms = {}, float(WARM_UP_MS)
    for rows, length in plan_points(limits):
        if at_most_ms(curve, rows, length) <= left_ms:
            ms = curve[rows, length] = cost_ms(rows, length)
            left_ms -= ms * (1 if ms > 100 else 2 if ms > 20 else 4)
    return [(*point, ms) for point, ms in curve.items()]


def poisson(chance, per_s, seconds, length_of):
    """Arrivals by chance, so many a second on average."""
    at_ms, found = 0.0, []
    while at_ms < 1000 * seconds:
        at_ms += 1000 * chance.expovariate(per_s)
        found.append((at_ms, length_of(chance)))
    return found


def bursts(chance, rows, every_ms, seconds, length_of):
    """So many rows at once, again and again."""
    return [
        (float(at_ms), length_of(chance))
        for at_ms in range(0, int(1000 * seconds), every_ms)
        for _ in range(rows)
    ]
