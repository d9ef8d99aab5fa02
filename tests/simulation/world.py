"""Virtual time: who does what when, one after the other, all of it drawn from a seed.

A call that takes its time runs the world onward inside of itself, so that others act in between
while the caller's stack stands still. A call inside of another one ends first; the outer one then
takes as long as the inner one.
"""

import threading
from heapq import heappop, heappush
from itertools import count
from random import Random

_WALL_MS = 1_700_000_000_000.0
# Calls inside of calls; deeper ones take no time.
_DEPTH_MAX = 30


class KilledError(BaseException):
    """The process was killed: nothing of it goes on, whatever its code would do about errors."""


class HaltError(BaseException):
    """The simulation has failed and ends; passes through all code under test."""


class World:
    """Owns time, chance, and the trace of what happened."""

    def __init__(self, seed):
        self.now_ms = 0.0
        self.chance = Random(seed)
        self.trace = []  # (ms, who, what)
        self.failure = None
        self.current = None  # the thread whose step runs
        self.depth = 0
        self.stalled_until_ms = 0.0  # nobody gets an answer of the server before
        self._queue = []
        self._numbers = count()

    def tell(self, who, what):
        """Leave a line in the trace."""
        self.trace.append((round(self.now_ms, 3), who, what))

    def fail(self, failure):
        """End the simulation; the first failure counts."""
        if self.failure is None:
            self.failure = failure
            self.tell("world", f"FAILED: {failure!r}")
        raise HaltError

    def after(self, delay_ms, action):
        """Do something later."""
        heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), action))

    def run_until(self, until_ms, is_over=None):
        """Let time pass up to a moment, or until `is_over`."""
        queue = self._queue
        while queue and queue[0][0] <= until_ms:
            if is_over is not None and is_over():
                return
            at_ms, _, action = heappop(queue)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        if is_over is None or not is_over():
            self.now_ms = max(self.now_ms, until_ms)

    @property
    def can_pass_time(self):
        """Whether calls do not stand inside of each other too deep already."""
        return self.depth < _DEPTH_MAX

    def pass_time(self, duration_ms, is_over=None):
        """Let time pass inside of a call."""
        if self.failure is not None:
            raise HaltError
        if not self.can_pass_time:
            return
        current, self.depth = self.current, self.depth + 1
        try:
            self.run_until(self.now_ms + duration_ms, is_over)
        finally:
            self.current, self.depth = current, self.depth - 1


class VirtualClock:
    """A process's clock: its monotonic time starts anywhere, its wall time may be set."""

    def __init__(self, world, start_ms=0.0):
        self._world = world
        self._start_ms = start_ms
        self.wall_offset_ms = 0.0

    def monotonic_ms(self):
        return self._start_ms + self._world.now_ms

    def thread_cpu_ms(self):
        return self.monotonic_ms()

    def wall_ms(self):
        return _WALL_MS + self._world.now_ms + self.wall_offset_ms


class Pauses:
    """When somebody was last out of contact for long enough for anybody to notice."""

    def __init__(self, began_ms=0.0):
        self._began_ms = began_ms
        self._spans = []  # (start, end)

    def add(self, now_ms, duration_ms):
        """It is out of contact from now on."""
        self._spans.append((now_ms, now_ms + duration_ms))

    def end(self, now_ms):
        """Whatever keeps it out of contact is over."""
        self._spans = [(start_ms, min(end_ms, now_ms)) for start_ms, end_ms in self._spans]

    def last_end_ms(self, now_ms, least_ms):
        """When the last pause of at least this length ended, as seen at `now_ms`."""
        ends = [
            min(now_ms, end_ms)
            for start_ms, end_ms in self._spans
            if end_ms - start_ms >= least_ms and start_ms < now_ms
        ]
        return max(ends, default=self._began_ms)


class Process:
    """A program that runs, is frozen, cut off from the server, or dead."""

    def __init__(self, world, name):
        self.world = world
        self.name = name
        self.clock = VirtualClock(world, world.chance.uniform(0, 1e6))
        self.is_alive = True
        self.frozen_until_ms = 0.0
        self.cut_until_ms = 0.0
        self.pauses = Pauses(world.now_ms)

    def check_alive(self):
        """Nothing of a dead process goes on.

        Raises:
            KilledError: it is dead.
        """
        if not self.is_alive:
            raise KilledError

    def thaw(self):
        """Let the time pass for which the process is frozen.

        Raises:
            KilledError: it was killed meanwhile.
        """
        self.check_alive()
        while self.frozen_until_ms > self.world.now_ms and self.world.can_pass_time:
            self.world.pass_time(self.frozen_until_ms - self.world.now_ms, self._is_thawed)
            self.check_alive()

    def _is_thawed(self):
        return self.frozen_until_ms <= self.world.now_ms or not self.is_alive

    def freeze(self, duration_ms):
        """Stop all of its threads for a while."""
        self.world.tell(self.name, f"frozen for {duration_ms:.0f} ms")
        self.frozen_until_ms = max(self.frozen_until_ms, self.world.now_ms + duration_ms)
        self.pauses.add(self.world.now_ms, duration_ms)

    def cut(self, duration_ms):
        """Keep it from reaching the server for a while."""
        self.world.tell(self.name, f"cut off for {duration_ms:.0f} ms")
        self.cut_until_ms = max(self.cut_until_ms, self.world.now_ms + duration_ms)
        self.pauses.add(self.world.now_ms, duration_ms)

    def kill(self):
        """End it at once."""
        self.world.tell(self.name, "killed")
        self.is_alive = False

    def close(self):
        """What a thread of its own leaves behind; nothing."""

    def make_thread(self, name, loop, _on_failure):
        """A thread of this process; see `MakeThread`."""
        return SteppedThread(self, name, loop)


class SteppedThread:
    """Steps a loop in virtual time. What a step waits for, it says with `idle`."""

    def __init__(self, process, name, loop):
        self.process = process
        self.name = name
        self.is_over = False
        self.sleeps_on = None  # what may wake it: keys of the server, or a condition
        self._loop = loop
        self._world = process.world
        self._alarm = 0  # number of the pending alarm; older ones are void
        self._idle_ms = 0.0
        self._is_stepping = False

    def start(self):
        self._set_alarm(self._world.chance.uniform(0.0, 2.0))

    def join(self, timeout=None):
        """Let time pass until the loop is over."""
        self._world.pass_time(1000 * timeout, lambda: self.is_over or not self.process.is_alive)
        self.process.check_alive()

    def idle(self, duration_ms, sleeps_on):
        """The step that runs waits for something, which does not happen before it ends."""
        self._idle_ms = duration_ms
        self.sleeps_on = sleeps_on

    def wake(self):
        """What it waits for has happened."""
        if self.sleeps_on is not None and not self._is_stepping:
            self.sleeps_on = None
            self._set_alarm(self._world.chance.uniform(0.05, 1.0))

    def _set_alarm(self, delay_ms):
        self._alarm += 1
        alarm = self._alarm
        self._world.after(delay_ms, lambda: self._ring(alarm))

    def _ring(self, alarm):
        if alarm != self._alarm or not self.process.is_alive or self.is_over:
            return
        held_until_ms = self.process.frozen_until_ms
        if self.name != "device":  # it mostly does without the server
            held_until_ms = max(held_until_ms, self._world.stalled_until_ms)
        left_ms = held_until_ms - self._world.now_ms
        if left_ms > 0:
            self._set_alarm(left_ms + self._world.chance.uniform(0.0, 20.0))
        else:
            self._step()

    def _step(self):
        world = self._world
        before, world.current = world.current, self
        self.sleeps_on, self._idle_ms, self._is_stepping = None, 0.0, True
        try:
            pause_s = self._loop.step()
        except KilledError:
            self.is_over = True
        except Exception as error:  # noqa: BLE001 - whatever a thread dies of ends the simulation
            world.fail(error)
        else:
            if pause_s is None:
                self.is_over = True
                self._loop.close()
            else:
                self._set_alarm(self._pause_ms(pause_s))
        finally:
            world.current, self._is_stepping = before, False

    def _pause_ms(self, pause_s):
        jitter = self._world.chance.uniform(0.95, 1.2)
        if pause_s:
            self.sleeps_on = self.sleeps_on or ()
            return 1000 * pause_s * jitter
        return max(0.2, self._idle_ms) * jitter


class SteppedCondition(threading.Condition):
    """A condition in virtual time. `idlers` do not wait in place: their step ends first."""

    def __init__(self, process, lock, idlers):
        super().__init__(lock)
        self._process = process
        self._idlers = idlers
        self._sleepers = []
        self._told = 0

    def wait(self, timeout=None):
        """Wait for `notify_all`."""
        world = self._process.world
        thread = world.current
        if thread.name.startswith(self._idlers):
            thread.idle(1000 * timeout, self)
            self._sleepers.append(thread)
            return False
        told = self._told
        world.pass_time(1000 * timeout, lambda: self._told != told)
        self._process.check_alive()
        return self._told != told

    def notify_all(self):
        """Wake all that wait."""
        self._told += 1
        sleepers, self._sleepers = self._sleepers, []
        for thread in sleepers:
            if thread.sleeps_on is self:
                thread.wake()
