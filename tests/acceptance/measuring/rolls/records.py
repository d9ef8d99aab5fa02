"""The deploy record of a model while it changes: the roll in it, and what it serves."""

import json
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter

import redis

from batchfleet.ops.rolls.state import Phase, read_state
from tests.acceptance.measuring.pause import pause_s
from tests.support.fleet import until

COMPLETED, ROLLED_BACK, REFUSED, PAUSED = "completed", "rolled_back", "refused", "paused"
OVER = frozenset((COMPLETED, ROLLED_BACK, REFUSED))
ROLL_S = 240.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A deploy record as it was seen: when, by our clock and the server's, and its fields."""

    seen_at: float
    server_ms: float
    fields: dict

    @property
    def roll(self):
        """The roll's state; empty where there is none."""
        return json.loads(self.fields.get(b"roll") or b"{}")

    @property
    def phase(self):
        return self.roll.get("phase", "")

    @property
    def stable(self):
        return self.fields.get(b"stable", b"").decode()

    @property
    def canary(self):
        """Version and weight in per cent; none: an empty version, and 0."""
        told = json.loads(self.fields.get(b"canary") or b"{}")
        return told.get("version", ""), told.get("weight", 0.0)

    @property
    def offered(self):
        """The versions that workers load."""
        return {
            name.removeprefix(b"version:").decode()
            for name in self.fields
            if name.startswith(b"version:")
        }


def read_record(server, key):
    """A deploy record, and the server's time at that moment."""
    with server.pipeline(transaction=True) as pipe:
        fields, (seconds, micros) = pipe.hgetall(key).time().execute()
    return Record(seen_at=perf_counter(), server_ms=1000 * seconds + micros / 1000, fields=fields)


def record_of(fleet, model):
    return read_record(fleet.server, fleet.keys(model).deploy)


def wait_for(fleet, model, condition, what, timeout_s=ROLL_S):
    """Wait until the record is as `condition` wants it; returns it."""

    def found():
        try:
            record = record_of(fleet, model)
        except redis.RedisError:
            return None  # it is away, as the measurement wants it
        if condition(record):
            return record
        pause_s(_LOOK_S)
        return None

    try:
        return until(found, what, timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{error}; the roll: {record_of(fleet, model).roll}") from error


def wait_over(fleet, model, timeout_s=ROLL_S):
    """Wait until the roll has ended, one way or the other; returns the record."""
    return wait_for(fleet, model, lambda one: one.phase in OVER, "the roll is over", timeout_s)


def torn(record):
    """Whether the parts of a record do not fit together, while nobody but the roll changes it.

    Raises:
        SettingsError: the table of rolls does not know such a state.
    """
    state = read_state(record.roll.get("model", ""), record.fields.get(b"roll", b""))
    if state is None or state.has_ended:
        return record.canary[1] > 0
    canary = (state.target, state.weight) if state.weight else ("", 0.0)
    stable = state.target if state.phase is Phase.DRAINING else state.source
    return (record.canary, record.stable) != (canary, stable)


class Watch:
    """Looks at one record all the time, in a thread, and keeps it whenever it has changed.

    While the server is away it looks again and again.
    """

    def __init__(self, fleet, model):
        self.records = []
        self._key = fleet.keys(model).deploy
        self._server = redis.Redis.from_url(fleet.url, socket_timeout=5.0, retry=None)
        self._enough = Event()
        self._thread = Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._enough.set()
        self._thread.join()
        self._server.close()

    def _look(self):
        while not self._enough.wait(_LOOK_S):
            try:
                record = read_record(self._server, self._key)
            except redis.RedisError:
                continue
            if not self.records or record.fields != self.records[-1].fields:
                self.records.append(record)

    def between(self, began, ended):
        """The records that were in force at some time of a span, as far as was seen."""
        first = max((at for at, one in enumerate(self.records) if one.seen_at <= began), default=0)
        return [one for one in self.records[first:] if one.seen_at <= ended + 2 * _LOOK_S]
