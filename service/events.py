"""Everything worth telling that can happen in a fleet, as one table.

Programs emit events; logs and counters listen. `docs/events.md` is drawn from the table. A new
event is one row: `area.what_happened`, its level, its meaning, its fields.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

DEBUG, INFO, WARNING, ERROR = "debug", "info", "warning", "error"


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event: the level it is logged at, its meaning, and the names of all its fields."""

    level: str
    meaning: str
    fields: tuple[str, ...] = ()


EVENTS: dict[str, EventRow] = {
    "router.started": EventRow(INFO, "A router takes entries from ingress."),
    "router.stopped": EventRow(INFO, "A router has finished its last entries."),
    "router.entry_dropped": EventRow(
        WARNING,
        "Entries that cannot be answered, since they name no request. Told once per kind, "
        "then counted.",
        ("kind", "count"),
    ),
    "router.entry_failed": EventRow(
        ERROR,
        "An entry made the router itself fail: a fault of the product. It was answered `internal` "
        "and passed over. Told once a minute and kind.",
        ("model", "kind", "reason"),
    ),
    "router.step_failed": EventRow(
        ERROR,
        "A step of the router failed for one model (empty: for all), by a fault of the product; "
        "other steps and models go on, and it is tried again. Told once a minute and kind.",
        ("step", "model", "reason"),
    ),
    "model.record_unreadable": EventRow(
        ERROR, "A deploy record is ill-formed; its model is not served.", ("model", "reason")
    ),
    "model.deployed": EventRow(
        INFO, "A new deploy record is in force in this process.", ("model", "version", "epoch")
    ),
    "model.mended": EventRow(
        WARNING,
        "Streams, groups or the tenants of a model were missing on the server and were made anew.",
        ("model", "count"),
    ),
    "model.restored": EventRow(
        ERROR,
        "The server had lost a model's deploy record; it was put back as a router knew it.",
        ("model",),
    ),
    "worker.started": EventRow(INFO, "A worker announced itself.", ("worker",)),
    "worker.stopped": EventRow(INFO, "A worker took its leave.", ("worker", "reason")),
    "worker.fenced": EventRow(
        ERROR,
        "A worker found that others buried it; what it held is lost to it, and it starts anew.",
        ("worker",),
    ),
    "worker.rejoined": EventRow(
        WARNING,
        "A foreign hand, or a server that lost its data, took a worker from the living of a model; "
        "no peer had buried it, and it entered again.",
        ("worker", "model"),
    ),
    "worker.buried": EventRow(
        WARNING, "A worker's beat stood still for a lease; peers take over.", ("worker", "model")
    ),
    "worker.took_over": EventRow(
        INFO, "Entries of a lost worker were taken over here.", ("worker", "model", "count")
    ),
    "worker.forgotten": EventRow(
        INFO, "Nothing is pending any more for a worker that was lost.", ("worker", "model")
    ),
    "worker.unreadable_entry": EventRow(
        ERROR,
        "An entry of a work stream was not written by a router; it is removed. The request that it "
        "names, if it is an open one, is answered at its deadline.",
        ("worker", "reason"),
    ),
    "device.started": EventRow(INFO, "A device process runs.", ("pid", "device")),
    "device.lost": EventRow(
        ERROR,
        "A device process died or was killed. `suspects` counts the requests inside it, which "
        "run again alone.",
        ("pid", "reason", "suspects"),
    ),
    "lane.ready": EventRow(INFO, "A version is loaded and warm.", ("model", "version", "load_ms")),
    "lane.refused": EventRow(
        ERROR,
        "A version could not be loaded here. Told once; it is tried again when this very version "
        "is deployed again.",
        ("model", "version", "reason"),
    ),
    "lane.stranded": EventRow(
        ERROR,
        "A version could not be loaded again while the worker held requests of it; it starts over "
        "as another worker, so that its peers run them.",
        ("model", "version"),
    ),
    "server.lost": EventRow(WARNING, "The Redis server cannot be reached.", ("reason",)),
    "server.back": EventRow(INFO, "The Redis server answers again.", ("gap_ms",)),
    "fault.fired": EventRow(
        WARNING,
        "A fault point that a test had armed was reached for the `count`-th time, and acts now.",
        ("point", "action", "count"),
    ),
    "server.refused": EventRow(
        ERROR,
        "The server answers, but refuses what a program needs. Told once a minute and code.",
        ("code", "reason"),
    ),
    "loop.stalled": EventRow(
        ERROR,
        "A loop of this program has neither succeeded nor failed for too long.",
        ("loop", "silent_ms"),
    ),
    "loop.resumed": EventRow(INFO, "A loop that stood still goes on.", ("loop", "gap_ms")),
    "watchdog.failed": EventRow(
        ERROR, "The watch over the loops failed; it goes on. Told once a kind.", ("reason",)
    ),
    "stream.unusable": EventRow(
        ERROR,
        "A stream or another key of a model is of a foreign kind and is passed over until it is "
        "removed; others go on.",
        ("model", "reason"),
    ),
    "stream.ids_ahead": EventRow(
        ERROR,
        "An entry's id lies ahead of the server's clock, so that those behind it do as well: "
        "this tenant's requests are refused until the clock has caught up or the stream is gone.",
        ("model", "tenant", "entry_id"),
    ),
    "program.lost": EventRow(
        ERROR,
        "A program that `up` started ended by itself; it is started again after `restart_ms`.",
        ("program", "pid", "exit_code", "restart_ms"),
    ),
    "request.retried": EventRow(
        INFO,
        "A request failed and runs again after a pause, as its caller asked.",
        ("model", "attempt", "delay_ms"),
    ),
    "request.no_worker": EventRow(
        WARNING,
        "Requests were answered `no_worker`: no live worker serves their version.",
        ("model", "version", "count"),
    ),
}


class UnknownEventError(ValueError):
    """An event, or a field of it, that the table does not have; a fault of the emitting code."""


class Events:
    """Emits events of the table: counts each and logs it. Safe to use from any thread."""

    def __init__(self, logger: Any = None) -> None:
        # Bound now: where users' code shares the process, it may configure structlog later.
        self._logger = structlog.get_logger().bind() if logger is None else logger
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()  # guarded by _lock; bounded by the table

    def emit(self, name: str, /, **fields: Any) -> None:
        """Count and log one event.

        Raises:
            UnknownEventError: `name` is not in the table, or `fields` are not exactly its fields.
        """
        row = EVENTS.get(name)
        if row is None:
            raise UnknownEventError(f"no event is named {name!r}")
        if fields.keys() != set(row.fields):
            raise UnknownEventError(f"{name} has fields {row.fields}, not {tuple(fields)}")
        with self._lock:
            self._counts[name] += 1
        getattr(self._logger, row.level)(name, **fields)

    def snapshot(self) -> Mapping[str, int]:
        """How often each event of the table was emitted so far, 0 included."""
        with self._lock:
            return {name: self._counts[name] for name in EVENTS}


_HEAD = """\
# Events

Drawn from the table in `service/events.py` by `make docs`; do not edit. Every event is counted
under its name and logged at its level with exactly the fields named here.

| event | level | fields | meaning |
|---|---|---|---|
"""


def catalogue_markdown() -> str:
    """The text of `docs/events.md`."""
    return _HEAD + "".join(_markdown_row(name, row) for name, row in sorted(EVENTS.items()))


def _markdown_row(name: str, row: EventRow) -> str:
    fields = ", ".join(f"`{field}`" for field in row.fields) or "–"
    return f"| `{name}` | {row.level} | {fields} | {row.meaning} |\n"
