"""Who acts: routers, consumers and callers. The first two run the programs' own code."""

from random import Random

from batchfleet.broker import requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.consumer.worker.context import Devices, WorkerContext
from batchfleet.consumer.worker.keeper import WorkerKeeper
from batchfleet.consumer.worker.worker import Worker
from batchfleet.router.program import RouterProgram
from batchfleet.service.events import Events
from batchfleet.service.outage import Outage
from batchfleet.service.watchdog import Watchdog
from batchfleet.wire.errors import ServerError
from batchfleet.wire.reply import decode_reply
from batchfleet.wire.request import Request

from .connections import SimulatedBroker
from .device import SimulatedDevice
from .options import KEYS, TENANT
from .witness import inputs_of
from .world import Process, SteppedCondition

_TICK_S = 0.5
_SEND_AGAIN_S = 0.3
# A caller that is told of its answer does not wait so long.
_POLL_S = 1.5
_TOLD_SHARE = 0.8
_REFUSALS_MAX = 4
_CANCEL_SHARE = 0.02
# A router survives them, a simulation must not.
_FAULTS_OF_OURS = ("router.entry_failed", "router.step_failed", "watchdog.failed")


class Teller:
    """A logger that writes into the trace."""

    def __init__(self, process):
        self._process = process

    def _log(self, name, **fields):
        shown = " ".join(f"{key}={value}" for key, value in fields.items())
        self._process.world.tell(self._process.name, f"{name} {shown}")
        if name in _FAULTS_OF_OURS:
            self._process.world.fail(AssertionError(f"{name} {shown}"))

    debug = info = warning = error = _log


class Stop:
    """A `StopSignal` without a pipe."""

    def __init__(self):
        self._is_set = False

    def is_set(self):
        return self._is_set

    def set(self):
        self._is_set = True


class Program(Process):
    """A program with a keeper thread, stepped by `step`."""

    may_be_killed = True

    def __init__(self, world, name, server, options):
        super().__init__(world, name)
        self.server = server
        self.options = options
        self.broker = SimulatedBroker(server, self)
        self.events = Events(Teller(self))
        self.stop = Stop()
        world.tell(name, "starts")
        self.make_thread("keeper", self, None).start()

    @property
    def is_running(self):
        """Whether it is neither dead nor asked to stop."""
        return self.is_alive and not self.stop.is_set()


class RouterActor(Program):
    """A router."""

    def __init__(self, world, name, server, options):
        self._program = None
        super().__init__(world, name, server, options)
        self._program = RouterProgram(
            options.settings, self.events, self.clock, self.broker, self.make_thread
        )
        self._program.shared.name = name
        self._program.shared.watchdog.chance = Random(name)

    def step(self):
        if not self.stop.is_set():
            self._program.tick(self.stop, lambda _: None)
            return _TICK_S
        self._program.pumps.stop()
        self.world.tell(self.name, "stopped")
        self.is_alive = False
        return None


class ConsumerActor(Program):
    """A consumer: one worker after the other."""

    def __init__(self, world, name, server, options, witness):
        self.devices = []
        self.worker_name = ""
        self._witness = witness
        self._lives = 0
        self._keeper = None
        super().__init__(world, name, server, options)
        outage = Outage(self.events, self.clock)
        self._watchdog = Watchdog(self.events, self.clock, outage, Random(name))

    def step(self):
        if self._keeper is None:
            self._begin()
        if not (self.stop.is_set() or self._keeper.is_over):
            self._keeper.tick()
            self._beat_at_once_if_asked()
            return _TICK_S
        self._keeper.wind_up()
        self._keeper.close()
        outcome = self._keeper.outcome()
        self.world.tell(self.name, f"{self.worker_name} is over: {outcome.value}")
        self._keeper = None
        if self.stop.is_set():
            self.is_alive = False
            return None
        return _TICK_S

    def _begin(self):
        self._lives += 1
        self.worker_name = f"{self.name}.{self._lives}"
        context = WorkerContext(
            settings=self.options.settings,
            events=self.events,
            clock=self.clock,
            watchdog=self._watchdog,
            broker=self.broker,
            devices=Devices(
                open_link=lambda _: SimulatedDevice(self.world, self, self._witness, self.options)
            ),
            make_thread=self.make_thread,
        )
        worker = Worker(context, self.worker_name)
        worker.changed = SteppedCondition(self, worker.lock, idlers="intake")
        self._worker = worker
        self._keeper = WorkerKeeper(worker, lambda _: None)
        self._keeper.start()

    def _beat_at_once_if_asked(self):
        heartbeat = self._worker.heartbeat
        if heartbeat._again.is_set():
            heartbeat._again.clear()
            self._worker._heartbeat_thread.wake()

    def kill(self):
        super().kill()
        for device in self.devices:
            if device.is_alive:
                device.die("its worker is gone")


class CallerActor(Process):
    """Sends one request, again where it must, and waits for its answer."""

    may_be_killed = False

    def __init__(self, world, story, server, witness):
        super().__init__(world, f"caller of {story.id}")
        self._story = story
        self._witness = witness
        self._executor = SimulatedBroker(server, self).connect("caller")
        self._is_sent = False
        self._refusals = 0
        self._thread = self.make_thread("caller", self, None)
        if world.chance.random() < _TOLD_SHARE:
            story.tell_caller = self._thread.wake
        self._thread.start()

    def step(self):
        """Send, or look for the reply."""
        story = self._story
        try:
            if not self._is_sent:
                self._send()
            elif self.world.chance.random() < 0.1:
                self._send()  # a copy that was under way for long
            self._cancel_perhaps()
            return self._look()
        except ServerError:
            return _SEND_AGAIN_S
        finally:
            self._witness.check_story(story)

    def _send(self):
        story, chance = self._story, self.world.chance
        request = Request(
            id=story.id,
            inputs=inputs_of(story),
            priority=chance.choice(("high", "normal", "low")),
            timeout_ms=story.timeout_ms,
            length=chance.choice((None, 1, 16, 60)),
            rows=chance.choice((None, len(story.texts))),
            retries=story.retries,
            delay_ms=story.delay_ms,
        )
        self._executor.run(requests.submit(KEYS, TENANT, request))
        self._is_sent = True

    def _cancel_perhaps(self):
        story = self._story
        if story.is_cancelled or self.world.chance.random() > _CANCEL_SHARE:
            return
        story.is_cancelled = True  # perhaps: the command may get lost
        self._executor.run(
            plain(as_is, "XADD", KEYS.ingress(TENANT), "*", "id", story.id, "cancel", "1")
        )

    def _look(self):
        story = self._story
        # In this order: what has no tombstone after it was read is no more than a refusal.
        raw, status = self._executor.run_all(
            [requests.reply(KEYS, TENANT, story.id), requests.tombstone(KEYS, TENANT, story.id)]
        )
        if raw is None and status is None:
            return _POLL_S
        if status is None:
            return self._take_refusal(decode_reply(raw))
        if self.world.chance.random() < 0.3:
            self._executor.run_all(requests.forget_replies(KEYS, TENANT, [story.id]))
        if self.world.chance.random() < 0.3:
            self._send()  # by mistake: it must not run again
        story.is_over = True
        return None

    def _take_refusal(self, reply):
        """A refused request is sent again under its id."""
        self._refusals += 1
        if self._refusals > _REFUSALS_MAX:
            self._story.is_over = True
            return None
        self._is_sent = False
        return (reply.error.get("retry_after_ms") or 200) / 1000
