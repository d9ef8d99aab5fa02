"""Fault points: named moments at which a test can make a process die, stop, fail or dawdle.

For tests alone. A program passes one `FaultPoints` to the code that reaches such a point; it does
nothing unless the environment arms it:

    BATCHFLEET_FAULT_POINTS="worker.before_finish=kill@2,router.after_read=delay:200"

arms points as `name=action`, where `@n` waits for the n-th time (1). An armed point acts once.

    kill        the process ends itself by SIGKILL
    stop        the process stops itself by SIGSTOP
    raise       a `ServerError`, as if the server had failed in this place
    crash       an error that nobody expects: a worker must die loudly of it, a router must answer
                the current entry `internal`, report it, and continue
    delay:200   so many milliseconds pass
"""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..wire.errors import ServerError, SettingsError
from ..wire.names import shown
from .events import Events

VARIABLE = "BATCHFLEET_FAULT_POINTS"

POINTS: Mapping[str, str] = {
    "router.after_read": "entries were read or claimed, and not processed yet",
    "router.before_accept": "entries are validated, and accept is called next",
    "router.after_accept": "accept has returned",
    "router.before_sweep": "a search for overdue requests is next",
    "worker.before_beat": "a heartbeat is due",
    "worker.after_take": "entries were fetched, and the worker does not hold them yet",
    "worker.before_run": "a batch is formed, and not sent to the device process yet",
    "worker.while_running": "a batch was sent to the device process",
    "worker.before_finish": "results are available, and not written yet",
    "worker.after_finish": "results are written, and the worker still holds the requests",
    "worker.before_park": "a request to be retried is not parked yet",
    "worker.before_bury": "another worker was found dead, and is not declared dead yet",
    "worker.after_recover": "entries of a dead worker were claimed, and are not held yet",
    "worker.before_retire": "the records of a dead worker are about to be removed",
    "jobs.before_step": "a step of a roll is due, and nothing is read or written of it yet",
    "jobs.after_step": "a step of a roll is written, and its job is not finished yet",
    "worker.while_draining": "the worker fetches nothing more, and finishes what it holds next",
}
ACTIONS = ("kill", "stop", "raise", "crash", "delay")

_SPELLING = re.compile(r"([a-z._]+)=([a-z]+)(?::([0-9]{1,6}))?(?:@([1-9][0-9]{0,5}))?")


class FaultPointError(ServerError):
    """Raised by the action `raise`."""


class CrashError(RuntimeError):
    """Raised by the action `crash`; outside of our error tree, since nobody expects it."""


@dataclass(frozen=True, slots=True)
class ArmedPoint:
    """What one point does, and at which time it is reached; `delay_ms` belongs to `delay`."""

    name: str
    action: str
    delay_ms: int
    at: int


class FaultPoints:
    """Points that are not armed: passing one costs a call."""

    __slots__ = ()

    def reach(self, name: str) -> None:
        """The program stands at this point."""


class ArmedFaultPoints(FaultPoints):
    """Points of which some are armed. Each firing is told, and then done."""

    __slots__ = ("_armed", "_events", "_lock", "_reached")

    def __init__(self, armed: Mapping[str, ArmedPoint], events: Events) -> None:
        self._armed = armed
        self._events = events
        self._lock = threading.Lock()
        self._reached: Counter[str] = Counter()  # guarded by _lock; bounded by the table

    def reach(self, name: str) -> None:
        """Act if this is the time for which the point was armed.

        Raises:
            FaultPointError: the point is armed with `raise`.
            CrashError: the point is armed with `crash`.
        """
        point = self._armed.get(name)
        if point is None:
            return
        with self._lock:
            self._reached[name] += 1
            count = self._reached[name]
        if count == point.at:
            self._events.emit("fault.fired", point=name, action=point.action, count=count)
            _act(point)


def _act(point: ArmedPoint) -> None:
    match point.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise FaultPointError(f"{point.name} was armed to raise")
        case "crash":
            raise CrashError(f"{point.name} was armed to crash")
        case _:
            # An event that nobody sets: time passes off the CPU.
            threading.Event().wait(point.delay_ms / 1000)


def find_fault_points(environ: Mapping[str, str], events: Events) -> FaultPoints:
    """The points that the environment arms; inert ones where it arms none.

    Raises:
        SettingsError: it spells no point, or one that there is not.
    """
    text = environ.get(VARIABLE, "")
    if not text:
        return FaultPoints()
    points = [parse_point(part.strip()) for part in text.split(",")]
    return ArmedFaultPoints({point.name: point for point in points}, events)


def parse_point(text: str) -> ArmedPoint:
    """Read `name=action[:number][@n]`.

    Raises:
        SettingsError: not spelled so, or no such point or action.
    """
    match = _SPELLING.fullmatch(text)
    if match is None:
        raise SettingsError(f"{VARIABLE}: {shown(text)} is not name=action[:number][@n]")
    name, action, number, at = match.groups()
    if name not in POINTS:
        raise SettingsError(f"{VARIABLE}: there is no point {shown(name)}")
    if action not in ACTIONS:
        raise SettingsError(f"{VARIABLE}: there is no action {shown(action)}")
    if (number is not None) != (action == "delay"):
        raise SettingsError(f"{VARIABLE}: delay needs milliseconds, and nothing else takes any")
    return ArmedPoint(name, action, int(number or 0), int(at or 1))
