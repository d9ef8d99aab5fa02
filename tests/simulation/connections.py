"""The way to the twin of the server, and what goes wrong on it."""

from dataclasses import dataclass

from batchfleet.broker.errors import RefusedError, UnreachableError
from batchfleet.testing.twin.server import MemoryServer, as_bytes, as_sent
from batchfleet.wire.errors import ServerError

from .world import Pauses, VirtualClock

_SLOW_MS = (1.0, 1_500.0)
_FREEZE_MS = (200.0, 9_000.0)
# After these, somebody who waits may have got something.
_WAKING = frozenset(("accept", "take", "XADD", "RPUSH"))
_BROKEN = "the connection broke"
_INTERRUPTIONS = ("lost", "lost", "slow", "slow", "slow", "freeze", "kill")


def name_of(command):
    """The script that a command runs, or its own name."""
    return command.parts[0] if command.script is None else command.script.name


@dataclass(frozen=True, eq=False)
class Sleeper:
    """Who waits in the server, and for what. A ghost's process is gone, its connection is not."""

    thread: object
    process: object
    command: object
    keys: tuple
    is_ghost: bool = False


class SimulatedServer:
    """The twin, whether it answers, and who waits in it."""

    def __init__(self, world, call_fault_share):
        self.world = world
        self.clock = VirtualClock(world)
        self.twin = MemoryServer(self.clock)
        self.away_until_ms = 0.0
        self.pauses = Pauses()
        self.call_fault_share = call_fault_share
        self.witness = None  # sees all commands; set by its maker
        self._sleepers = []

    def go_away(self, duration_ms):
        """Refuse all connections for a while."""
        self.world.tell("server", f"away for {duration_ms:.0f} ms")
        self.away_until_ms = max(self.away_until_ms, self.world.now_ms + duration_ms)
        self.pauses.add(self.world.now_ms, duration_ms)

    def stall(self, duration_ms):
        """Leave all calls waiting for a while."""
        self.world.tell("server", f"stalled for {duration_ms:.0f} ms")
        until_ms = self.world.now_ms + duration_ms
        self.world.stalled_until_ms = max(self.world.stalled_until_ms, until_ms)
        self.pauses.add(self.world.now_ms, duration_ms)

    def carry_out(self, process, command):
        """The raw answer to a command; nil at once where it would wait."""
        name = name_of(command)
        self.witness.before(name)
        answers = []
        waiting = self.twin.ask(command, answers.append)
        if waiting is not None:
            self.twin.forget(waiting)
            self._put_to_sleep(process, command, waiting)
            return None
        self.witness.after(process, name, command, answers[0])
        if name in _WAKING and self._sleepers:
            self._wake_sleepers(command)
        return answers[0]

    def _put_to_sleep(self, process, command, waiting):
        thread = self.world.current
        if thread is None or not process.is_alive:
            return
        thread.idle(waiting.deadline_ms - self.clock.monotonic_ms(), command)
        parts = as_sent(command.parts)
        if parts[0] == b"BLPOP":
            keys = parts[1:-1]
        else:
            streams = parts[parts.index(b"STREAMS") + 1 :]
            keys = streams[: len(streams) // 2]
        self._sleepers.append(Sleeper(thread, process, command, tuple(keys)))

    def leave_ghosts(self, process):
        """A process is gone, but its connections are still open: what it waits for is lost."""
        ghosts = [one for one in self._sleepers if one.process is process and self._sleeps(one)]
        self._sleepers += [
            Sleeper(one.thread, process, one.command, one.keys, is_ghost=True) for one in ghosts
        ]

    @staticmethod
    def _sleeps(sleeper):
        return sleeper.is_ghost or sleeper.thread.sleeps_on is sleeper.command

    def _wake_sleepers(self, command):
        self._sleepers = [one for one in self._sleepers if self._sleeps(one)]
        added = as_bytes(command.parts[1]) if command.parts[0] == "XADD" else None
        woken = next((one for one in self._sleepers if self._is_served(one, added)), None)
        if woken is None:
            return
        self._sleepers.remove(woken)
        if woken.is_ghost:
            self.carry_out(woken.process, woken.command)
        else:
            woken.thread.wake()

    def _is_served(self, sleeper, added):
        if sleeper.command.parts[0] == "BLPOP":
            return any(self.twin._database.exists(key) for key in sleeper.keys)
        return added in sleeper.keys


class FaultyConnection:
    """An `Executor`: commands reach the twin unless something interrupts them.

    A call is interrupted at most once, before, between or after its commands: its process loses
    the connection, is held up, frozen, or killed.
    """

    def __init__(self, server, process, timeout_s):
        self._server = server
        self._process = process
        self._world = server.world
        self._timeout_ms = 1000 * timeout_s

    def run(self, command):
        raw = self._exchange([command])[0]
        if isinstance(raw, RefusedError):
            raise raw
        return command.read(raw)

    def run_each(self, commands):
        raws = self._exchange(commands) if commands else []
        return [
            raw if isinstance(raw, RefusedError) else command.read(raw)
            for command, raw in zip(commands, raws, strict=True)
        ]

    def run_all(self, commands):
        results = self.run_each(commands)
        for result in results:
            if isinstance(result, ServerError):
                raise result
        return results

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pass

    def _exchange(self, commands):
        world, process, server = self._world, self._process, self._server
        began_ms = world.now_ms
        process.thaw()
        while world.stalled_until_ms > world.now_ms and world.can_pass_time:
            world.pass_time(world.stalled_until_ms - world.now_ms, self._has_answers)
            process.thaw()
        self._check_reachable()
        if world.chance.random() >= server.call_fault_share:
            return [server.carry_out(process, command) for command in commands]
        reached = world.chance.randint(0, len(commands))
        raws = [server.carry_out(process, command) for command in commands[:reached]]
        self._interrupt(commands, reached)
        self._check_reachable()
        raws += [server.carry_out(process, command) for command in commands[reached:]]
        if world.now_ms - began_ms > self._timeout_ms:
            raise UnreachableError("no answer in time")
        return raws

    def _has_answers(self):
        return self._world.stalled_until_ms <= self._world.now_ms

    def _check_reachable(self):
        until_ms = max(
            self._process.cut_until_ms, self._server.away_until_ms, self._world.stalled_until_ms
        )
        if until_ms > self._world.now_ms:
            raise UnreachableError(_BROKEN)

    def _interrupt(self, commands, reached):
        world, process = self._world, self._process
        what = world.chance.choice(_INTERRUPTIONS)
        names = [name_of(command) for command in commands]
        world.tell(process.name, f"{what} after {reached} of {names}")
        if what == "lost":
            raise UnreachableError(_BROKEN)
        if what == "kill" and process.may_be_killed:
            process.kill()
        elif what == "freeze" and process.may_be_killed:
            process.freeze(world.chance.uniform(*_FREEZE_MS))
        else:
            world.pass_time(world.chance.uniform(*_SLOW_MS))
        process.thaw()


@dataclass(frozen=True)
class SimulatedBroker:
    """A `Broker` of one process."""

    server: SimulatedServer
    process: object

    def connect(self, _name, timeout_s=10.0):
        return FaultyConnection(self.server, self.process, timeout_s)
