"""All events of a fleet, as one table.

Programs emit events; logs and counters listen. `docs/events.md` is generated from the table. A new
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
    "router.started": EventRow(INFO, "A router has started to read ingress entries."),
    "router.stopped": EventRow(INFO, "A router has stopped after its last entries."),
    "router.entry_dropped": EventRow(
        WARNING,
        "Entries without a usable id, which cannot be answered. Logged once per kind, then "
        "counted.",
        ("kind", "count"),
    ),
    "router.entry_failed": EventRow(
        ERROR,
        "A bug in batchfleet: the router failed on an entry. The entry was answered `internal`; "
        "the router continues. Logged once a minute per kind.",
        ("model", "kind", "reason"),
    ),
    "router.step_failed": EventRow(
        ERROR,
        "A bug in batchfleet: a step of the router failed for one model (empty: for all). It is "
        "tried again; other steps and models continue. Logged once a minute per kind.",
        ("step", "model", "reason"),
    ),
    "model.record_unreadable": EventRow(
        ERROR, "A deploy record is invalid; its model is not served.", ("model", "reason")
    ),
    "model.deployed": EventRow(
        INFO, "This process follows a new deploy record.", ("model", "version", "epoch")
    ),
    "model.mended": EventRow(
        WARNING,
        "Streams, groups or the tenants of a model were missing on the server and were restored.",
        ("model", "count"),
    ),
    "model.restored": EventRow(
        ERROR,
        "The server had lost a model's deploy record; a router restored it from memory.",
        ("model",),
    ),
    "worker.started": EventRow(INFO, "A worker has started.", ("worker",)),
    "worker.stopped": EventRow(INFO, "A worker has stopped.", ("worker", "reason")),
    "worker.fenced": EventRow(
        ERROR,
        "Other workers have declared this worker dead. It drops its requests and starts over.",
        ("worker",),
    ),
    "worker.rejoined": EventRow(
        WARNING,
        "A worker was missing from a model's set of live workers, although no other worker had "
        "declared it dead (the server lost data, or somebody removed it). It joined again.",
        ("worker", "model"),
    ),
    "worker.buried": EventRow(
        WARNING,
        "A worker without a heartbeat for one lease was declared dead; others take over.",
        ("worker", "model"),
    ),
    "worker.took_over": EventRow(
        INFO, "This worker has taken over entries of a dead worker.", ("worker", "model", "count")
    ),
    "worker.forgotten": EventRow(
        INFO,
        "Nothing is pending any more for a dead worker; its records were removed.",
        ("worker", "model"),
    ),
    "worker.unreadable_entry": EventRow(
        ERROR,
        "An entry of a work stream was not written by a router and was removed. If it names an "
        "open request, that request is answered at its deadline.",
        ("worker", "reason"),
    ),
    "jobs.started": EventRow(INFO, "A jobs worker has started.", ("worker",)),
    "jobs.stopped": EventRow(INFO, "A jobs worker has stopped.", ("worker",)),
    "jobs.step_failed": EventRow(
        ERROR,
        "A step of a roll failed, and is tried again after five seconds. Logged once a minute per "
        "kind.",
        ("reason",),
    ),
    "roll.changed": EventRow(
        INFO,
        "This jobs worker has taken a step of a roll. `weight` is the percentage of requests that "
        "go to the new version.",
        ("model", "version", "phase", "weight", "reason"),
    ),
    "roll.unreadable": EventRow(
        ERROR,
        "A foreign hand wrote the deploy record of a model or the state of its roll; the roll is "
        "not followed. Logged once.",
        ("model", "reason"),
    ),
    "roll.not_copied": EventRow(
        WARNING,
        "The copy of a deploy record in the store could not be written; the roll goes on.",
        ("model", "reason"),
    ),
    "device.started": EventRow(INFO, "A device process has started.", ("pid", "device")),
    "device.lost": EventRow(
        ERROR,
        "A device process died or was killed. `suspects` counts the requests that were running in "
        "it; each runs again alone.",
        ("pid", "reason", "suspects"),
    ),
    "lane.ready": EventRow(
        INFO,
        "A version is ready to serve. If its model has engines: the one in use, how many times as "
        "fast as the plain one it is here, and its largest difference from it.",
        ("model", "version", "load_ms", "engine", "precision", "gain", "difference"),
    ),
    "lane.refused": EventRow(
        ERROR,
        "A version could not be loaded here. Logged once; it is tried again only when this "
        "version is deployed again.",
        ("model", "version", "reason"),
    ),
    "lane.stranded": EventRow(
        ERROR,
        "A version could not be loaded again while the worker held requests for it. The worker "
        "starts over under a new name, so that other workers run them.",
        ("model", "version"),
    ),
    "server.lost": EventRow(WARNING, "The Redis server cannot be reached.", ("reason",)),
    "server.back": EventRow(INFO, "The Redis server answers again.", ("gap_ms",)),
    "fault.fired": EventRow(
        WARNING,
        "A fault point that a test had armed was reached for the `count`-th time and acts.",
        ("point", "action", "count"),
    ),
    "server.advice": EventRow(
        WARNING,
        "The server's settings, or the rights of this program's Redis user, are unsafe or lose "
        "requests; `reason` says what to change. Logged once, at startup.",
        ("reason",),
    ),
    "server.refused": EventRow(
        ERROR,
        "The server refuses a command that a program needs. Logged once a minute per code.",
        ("code", "reason"),
    ),
    "loop.stalled": EventRow(
        ERROR,
        "A loop of this program has made no progress for too long, without an error.",
        ("loop", "silent_ms"),
    ),
    "loop.resumed": EventRow(INFO, "A stalled loop has resumed.", ("loop", "gap_ms")),
    "watchdog.failed": EventRow(
        ERROR,
        "A bug in batchfleet: the watchdog failed. It continues. Logged once per kind.",
        ("reason",),
    ),
    "stream.unusable": EventRow(
        ERROR,
        "A stream or another key of a model has the wrong type. It is skipped until you delete it; "
        "other models are not affected.",
        ("model", "reason"),
    ),
    "stream.ids_ahead": EventRow(
        ERROR,
        "An entry's id is ahead of the server's clock, and so are the ids after it. This tenant's "
        "requests are refused until the clock catches up or you delete the stream.",
        ("model", "tenant", "entry_id"),
    ),
    "program.lost": EventRow(
        ERROR,
        "A program that `up` started has exited; it is started again after `restart_ms`.",
        ("program", "pid", "exit_code", "restart_ms"),
    ),
    "request.retried": EventRow(
        INFO,
        "A request failed and is retried after `delay_ms`.",
        ("model", "attempt", "delay_ms"),
    ),
    "request.moved": EventRow(
        INFO,
        "Waiting requests that name no version were moved to the version that is active now.",
        ("model", "count"),
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
