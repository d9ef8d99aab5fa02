"""The twin of a server: it carries out commands, keeps those that wait, and delivers messages."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ...broker.commands import Command, Part, Script
from ...broker.errors import RefusedError, refused
from ...service.clock import Clock, SystemClock
from .data_commands import DATA_COMMANDS, Handler
from .database import Database
from .scripting import ScriptRunner
from .stream_commands import STREAM_COMMANDS, block_ms

OnAnswer = Callable[[Any], None]
"""Gets the raw answer, or the `RefusedError` that stands for one. Must not call the server."""

_COMMANDS: dict[bytes, Handler] = {**DATA_COMMANDS, **STREAM_COMMANDS}
COMMAND_NAMES = frozenset(name.decode() for name in _COMMANDS) | {"INFO"}
# What a server at its `maxmemory` refuses; a test holds this against the real ones.
REFUSED_WHEN_FULL = frozenset(
    (
        b"BLMOVE", b"HINCRBY", b"HSET", b"HSETNX", b"LPUSH", b"RPUSH", b"SADD", b"SET", b"XADD",
        b"XGROUP", b"ZADD",
    )
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Waiting:
    """A command that found nothing and may wait until `deadline_ms` (monotonic)."""

    name: bytes
    args: Sequence[bytes]
    deadline_ms: float
    on_answer: OnAnswer


class MemoryServer:
    """Holds what a Redis server would hold for a fleet. Safe to use from any thread.

    Entries, deadlines and lives go by the clock's wall time, waits by its monotonic time. Whoever
    moves a clock by hand says so with `notice_time`.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._database = Database(self.clock)  # guarded by _lock
        self._scripts = ScriptRunner(self._run)  # guarded by _lock
        self._waiting: list[Waiting] = []  # guarded by _lock; in the order of their coming
        self._listeners: dict[bytes, list[OnAnswer]] = {}  # guarded by _lock
        self.is_full = False  # as though `maxmemory` were reached; anybody may set it

    def ask(self, command: Command[Any], on_answer: OnAnswer) -> Waiting | None:
        """Carry out a command and answer it, at once or, where it waits, once it is served.

        Returns:
            The wait, to be ended by `give_up` at its deadline; None where it is answered already.
        """
        name, *args = as_sent(command.parts)
        name = name.upper()
        with self._lock:
            answer = self._carry_out(command.script, name, args)
            waits_ms = None if answer is not None else block_ms(name, args)
            if waits_ms is not None:
                deadline_ms = self.clock.monotonic_ms() + waits_ms if waits_ms else inf
                waiting = Waiting(name, args, deadline_ms, on_answer)
                self._waiting.append(waiting)
                return waiting
            on_answer(answer)
            self._serve()
            self._deliver()
        return None

    def give_up(self, waiting: Waiting) -> None:
        """Answer nil to a wait whose time is over, unless it has its answer."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                waiting.on_answer(None)

    def forget(self, waiting: Waiting) -> None:
        """Forget a wait whose caller has gone; it is never answered."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    @property
    def waiting(self) -> int:
        """How many commands wait now."""
        return len(self._waiting)

    def notice_time(self) -> None:
        """Answer nil to all waits whose time is over by now."""
        now_ms = self.clock.monotonic_ms()
        self._end_waits(lambda waiting: waiting.deadline_ms <= now_ms)

    def end_waits(self) -> None:
        """Answer nil to all waits, so that those who wait can end without delay."""
        self._end_waits(lambda _: True)

    def _end_waits(self, is_over: Callable[[Waiting], bool]) -> None:
        with self._lock:
            over = [waiting for waiting in self._waiting if is_over(waiting)]
            self._waiting = [waiting for waiting in self._waiting if waiting not in over]
            for waiting in over:
                waiting.on_answer(None)

    def listen(self, channel: str, on_payload: OnAnswer) -> None:
        """Have `on_payload` called with each message of a sharded channel."""
        with self._lock:
            self._listeners.setdefault(channel.encode(), []).append(on_payload)

    def stop_listening(self, channel: str, on_payload: OnAnswer) -> None:
        """End `listen`."""
        with self._lock:
            listeners = self._listeners.get(channel.encode(), [])
            if on_payload in listeners:
                listeners.remove(on_payload)
            if not listeners:
                self._listeners.pop(channel.encode(), None)

    # The lock is held from here on.

    def _serve(self) -> None:
        """Serve those that wait, the first comer first, until nobody can be served any more."""
        served = True
        while served:
            served = False
            for waiting in list(self._waiting):
                answer = self._carry_out(None, waiting.name, waiting.args)
                if answer is not None:
                    self._waiting.remove(waiting)
                    waiting.on_answer(answer)
                    served = True

    def _deliver(self) -> None:
        outbox, self._database.outbox = self._database.outbox, []
        for channel, payload in outbox:
            for on_payload in self._listeners.get(channel, ()):
                on_payload(payload)

    def _carry_out(self, script: Script | None, name: bytes, args: Sequence[bytes]) -> Any:
        try:
            if script is not None:
                return self._run_script(script, args)
            if self.is_full and name in REFUSED_WHEN_FULL:
                raise refused("OOM command not allowed when used memory > 'maxmemory'.")
            return self._run(name, args)
        except RefusedError as error:
            return error

    def _run(self, name: bytes, args: Sequence[bytes]) -> Any:
        if name == b"INFO":
            return self._info()
        handler = _COMMANDS.get(name)
        if handler is None:
            raise refused(f"ERR unknown command '{name.decode(errors='replace')}'")
        try:
            return handler(self._database, args)
        except (IndexError, KeyError) as error:
            # An argument, or an option that must be there, is missing.
            raise refused(f"ERR wrong number of arguments for '{name.decode()}'") from error

    def _run_script(self, script: Script, args: Sequence[bytes]) -> Any:
        if self.is_full and not _runs_when_full(script):
            raise refused("OOM command not allowed when used memory > 'maxmemory'.")
        keys_end = 2 + int(args[1])
        return self._scripts.run(script, args[2:keys_end], args[keys_end:])

    def _info(self) -> bytes:
        used, limit = (1, 1) if self.is_full else (0, 0)
        lines = (
            "redis_version:0.0.0-memory",
            f"run_id:{id(self):040x}",
            f"used_memory:{used}",
            f"maxmemory:{limit}",
            "maxmemory_policy:noeviction",
            "aof_enabled:0",
        )
        return "\r\n".join(lines).encode()


def _runs_when_full(script: Script) -> bool:
    flags = script.source.partition("\n")[0]
    return "allow-oom" in flags or "no-writes" in flags


def as_sent(parts: Sequence[Part]) -> list[bytes]:
    """The parts of a command as they go over the connection.

    Raises:
        TypeError: one of them cannot be sent.
    """
    # Nothing is called more often: what most parts are is seen without a call.
    return [
        part if type(part) is bytes else part.encode() if type(part) is str else as_bytes(part)
        for part in parts
    ]


def as_bytes(part: Part) -> bytes:
    """A part of a command as it goes over the connection.

    Raises:
        TypeError: nothing that can be sent.
    """
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return part.encode()
    if type(part) in (int, float):
        return repr(part).encode()
    raise TypeError(f"a {type(part).__name__} cannot be part of a command")
