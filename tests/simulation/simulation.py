"""One simulation: a phase in which everything goes wrong, and one in which all must end well."""

from dataclasses import dataclass

from batchfleet.broker import fleet

from .actors import CallerActor, ConsumerActor, RouterActor
from .connections import SimulatedServer
from .device import CULPRITS
from .operators import DeployingOperator, JobsActor, RollingOperator
from .options import KEYS, OTHERS, TENANT, VERSION, options_of
from .witness import Witness, new_story, work_streams
from .world import HaltError, World

# How long it may take, once nothing goes wrong any more, until nothing is left to be done.
_REST_MS = 60_000.0
_LOOK_MS = 250.0
# Everything that ends by itself has ended after this.
_FORGOTTEN_MS = 4_000_000.0
_FOR_EVER = {
    *(KEYS.deploy, KEYS.tenants, KEYS.workers, KEYS.ingress(TENANT)),
    *(KEYS.bell(version) for version in (VERSION, *OTHERS)),
    *(KEYS.journal, KEYS.dead, KEYS.parked, KEYS.stats, KEYS.rolls, f"{KEYS.namespace}:models"),
}


@dataclass(frozen=True)
class Outcome:
    """How a simulation ended."""

    seed: int
    failure: Exception | None
    trace: list
    rest_ms: float  # until nothing was left to be done
    answers: int


class Simulation:
    """Makes the world of one seed and runs it."""

    def __init__(self, seed):
        self.options = options = options_of(seed)
        self.world = World(seed)
        self.server = SimulatedServer(self.world, options.call_fault_share)
        self.routers = []
        self.consumers = []
        self.jobs = []
        self.operator = None
        self._deploy()
        self.witness = self.server.witness = Witness(self.world, self.server, options)

    def _deploy(self):
        record = self.options.record
        streams = fleet.queue_streams(KEYS, record)
        for command in (
            fleet.deploy(KEYS, record, streams, "sim", [TENANT]),
            fleet.enlist_model(KEYS.namespace, KEYS.model),
        ):
            self.server.twin.ask(command, lambda _: None)

    def run(self):
        """Run it to its end; never raises."""
        rest_ms = 0.0
        try:
            self._begin()
            self.world.after(self.options.safety_ms, self._heal)
            self.world.run_until(self.options.safety_ms)
            rest_ms = self._run_to_rest()
            self._check_what_stays()
        except HaltError:
            pass
        failure = self.world.failure
        answers = sum(story.reply is not None for story in self.witness.stories.values())
        return Outcome(self.options.seed, failure, self.world.trace, rest_ms, answers)

    def _begin(self):
        world, options = self.world, self.options
        for _ in range(options.routers):
            world.after(world.chance.uniform(0, 500), self.start_router)
        for _ in range(options.workers):
            world.after(world.chance.uniform(0, 2_000), self.start_consumer)
        at_ms = 0.0
        for number in range(options.requests):
            at_ms += world.chance.expovariate(options.requests / options.safety_ms)
            world.after(at_ms % options.safety_ms, lambda number=number: self._call(number))
        if options.roll_every_ms:
            kind = RollingOperator if options.by_rolls else DeployingOperator
            self.operator = kind(world, self.server, options)
            for _ in range(options.jobs if options.by_rolls else 0):
                self.start_jobs()
        self._plan_fault()

    def start_router(self):
        name = f"r{len(self.routers) + 1}"
        self.routers.append(RouterActor(self.world, name, self.server, self.options))

    def start_consumer(self):
        name = f"w{len(self.consumers) + 1}"
        self.consumers.append(
            ConsumerActor(self.world, name, self.server, self.options, self.witness)
        )

    def start_jobs(self):
        name = f"j{len(self.jobs) + 1}"
        self.jobs.append(JobsActor(self.world, name, self.server, self.options))

    def _call(self, number):
        chance, options = self.world.chance, self.options
        is_culprit = chance.random() < options.culprit_share
        kind = chance.choice(CULPRITS) if is_culprit else "fine"
        lengths = [chance.randint(1, 60) for _ in range(chance.choice((1, 1, 1, 2, 5)))]
        is_short = chance.random() < options.short_timeout_share
        timeout_ms = chance.randint(100, 4_000) if is_short else 600_000
        story = new_story(f"q{number}", kind, lengths, timeout_ms)
        story.retries = chance.choice((0, 0, 1, 2))
        story.delay_ms = chance.choice((0, 0, 0, 0, 0, chance.randint(1, 5_000)))
        self.witness.stories[story.id] = story
        CallerActor(self.world, story, self.server, self.witness)

    # Faults.

    def _plan_fault(self):
        after_ms = self.world.chance.expovariate(1 / self.options.fault_every_ms)
        self.world.after(after_ms, self._do_fault)

    def _do_fault(self):
        if not self.witness.faults_are_on:
            return
        self.world.chance.choice(_FAULTS)(self)
        self._plan_fault()

    def _one_of(self, actors):
        running = [actor for actor in actors if actor.is_running]
        return self.world.chance.choice(running) if running else None

    def _programs(self):
        return [*self.routers, *self.consumers, *self.jobs]

    def _one_program(self):
        return self._one_of(self._programs())

    def _kill(self, actor):
        if actor is None:
            return
        if self.world.chance.random() < 0.5:
            self.server.leave_ghosts(actor)
        actor.kill()

    def kill_consumer(self):
        self._kill(self._one_of(self.consumers))

    def kill_jobs(self):
        if self._one_of(self.jobs) is not None:
            self._kill(self._one_of(self.jobs))
            self.start_jobs()

    def kill_router(self):
        self._kill(self._one_of(self.routers))

    def freeze(self):
        actor = self._one_program()
        if actor is not None:
            actor.freeze(self.world.chance.uniform(100, 3 * self.options.lease_ms))

    def cut(self):
        actor = self._one_program()
        if actor is not None:
            actor.cut(self.world.chance.uniform(100, 2 * self.options.lease_ms))

    def stop(self):
        actor = self._one_program()
        if actor is not None:
            self.world.tell(actor.name, "is asked to stop")
            actor.stop.set()

    def step_clock(self):
        actor = self._one_program()
        if actor is not None:
            actor.clock.wall_offset_ms = self.world.chance.uniform(-3.6e6, 3.6e6)

    def crash_device(self):
        actor = self._one_of(self.consumers)
        for device in actor.devices if actor is not None else ():
            if device.is_alive:
                device.crash("it was made to crash")

    def server_away(self):
        self.server.go_away(self.world.chance.uniform(100, 5_000))

    def server_stalled(self):
        self.server.stall(self.world.chance.uniform(100, 2 * self.options.lease_ms))

    def memory_full(self):
        twin = self.server.twin
        twin.is_full = True
        self.world.tell("server", "memory is full")
        self.world.after(self.world.chance.uniform(100, 3_000), lambda: _set_free(twin))

    def pause(self):
        intake = self.world.chance.choice(("hold", "refuse"))
        self.world.tell("server", f"intake: {intake}")
        self._set_intake(intake)
        self.world.after(self.world.chance.uniform(500, 5_000), lambda: self._set_intake("open"))

    def freeze_over_pause(self):
        """A program sleeps while the model is paused, perhaps served again, and deployed again."""
        self.freeze()
        self.pause()
        if self.world.chance.random() < 0.5:
            self.redeploy()

    def redeploy(self):
        record = self.options.record
        streams = fleet.queue_streams(KEYS, record)
        self.world.tell("server", "deployed again")
        nonce = f"sim-{self.world.now_ms}"
        self.server.twin.ask(fleet.deploy(KEYS, record, streams, nonce, [TENANT]), lambda _: None)

    def _set_intake(self, intake):
        change = {"intake": intake.encode()}
        self.server.twin.ask(fleet.configure(KEYS, change, (), intake), lambda _: None)

    def join(self):
        if sum(actor.is_running for actor in self.consumers) < 4:
            self.start_consumer()

    def join_router(self):
        if sum(actor.is_running for actor in self.routers) < 2:
            self.start_router()

    # The good end.

    def _heal(self):
        world = self.world
        world.tell("world", "nothing goes wrong any more")
        self.witness.faults_are_on = False
        self.server.call_fault_share = 0.0
        self.server.away_until_ms = world.stalled_until_ms = 0.0
        self.server.twin.is_full = False
        self._set_intake("open")
        self.server.pauses.end(world.now_ms)
        for actor in self._programs():
            actor.frozen_until_ms = actor.cut_until_ms = 0.0
            actor.pauses.end(world.now_ms)
        if self.operator is not None:
            self.operator.finish()
        if self.jobs and not any(actor.is_running for actor in self.jobs):
            self.start_jobs()
        if not any(actor.is_running for actor in self.routers):
            self.start_router()
        if not any(actor.is_running for actor in self.consumers):
            self.start_consumer()

    def _run_to_rest(self):
        world, began_ms = self.world, self.world.now_ms
        while world.now_ms < began_ms + _REST_MS:
            world.run_until(world.now_ms + _LOOK_MS)
            if self.witness.is_at_rest() and self._only_the_living_are_left():
                break
        self.witness.check_rest()
        return world.now_ms - began_ms

    def _only_the_living_are_left(self):
        names = {actor.worker_name.encode() for actor in self.consumers if actor.is_running}
        return set(self.witness.living()) <= names

    def _check_what_stays(self):
        """Once all programs are gone and time has passed, only what may stay is left."""
        for actor in self._programs():
            actor.is_alive = False
        self.world.now_ms += _FORGOTTEN_MS
        left = self.witness.keys_for_ever() - {*_FOR_EVER, *work_streams(self.options)}
        if left:
            self.witness.violated(f"keys stay for ever: {sorted(left)}")


def _set_free(twin):
    twin.is_full = False


_FAULTS = (
    Simulation.kill_consumer,
    Simulation.kill_consumer,
    Simulation.kill_router,
    Simulation.kill_jobs,
    Simulation.freeze,
    Simulation.freeze,
    Simulation.freeze,
    Simulation.cut,
    Simulation.cut,
    Simulation.stop,
    Simulation.step_clock,
    Simulation.crash_device,
    Simulation.server_away,
    Simulation.server_stalled,
    Simulation.server_stalled,
    Simulation.memory_full,
    Simulation.pause,
    Simulation.freeze_over_pause,
    Simulation.freeze_over_pause,
    Simulation.redeploy,
    Simulation.join,
    Simulation.join,
    Simulation.join_router,
    Simulation.join_router,
)


def simulate(seed):
    """Run the simulation of a seed."""
    return Simulation(seed).run()
