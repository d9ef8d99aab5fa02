"""Operators and jobs workers, who run the functions behind the commands and the steps of rolls."""

from contextlib import suppress

from batchfleet.broker import fleet, rolls
from batchfleet.ops import deployment
from batchfleet.ops.deployment import ChangedError, Operator
from batchfleet.ops.rolls import commands
from batchfleet.ops.rolls.commands import RollError, Wish
from batchfleet.ops.rolls.observing import keep_moment, look_at
from batchfleet.ops.rolls.plan import STRATEGIES, Plan
from batchfleet.ops.rolls.state import Event, Phase, TransitionError
from batchfleet.ops.rolls.steps import StepContext, take_step
from batchfleet.wire.canary import Canary
from batchfleet.wire.errors import RequestError, ServerError

from .actors import Program
from .connections import SimulatedBroker
from .options import KEYS, OTHERS, UNLOADABLE, VERSION
from .world import Process

_JOBS_S = 1.0
_LAST_S = 0.3
_REFUSALS = (ChangedError, RequestError, ServerError, RollError, TransitionError)


class NoStore:
    """A store without models: nothing is copied to it."""

    def versions(self, _model):
        return []


def operator_of(process, server):
    """What a command or a step needs, on a connection of this process."""
    chance = process.world.chance
    return Operator(
        executor=SimulatedBroker(server, process).connect(process.name),
        namespace=KEYS.namespace,
        draw_nonce=lambda: f"{process.name}:{chance.getrandbits(32):08x}",
    )


def context_of(process, operator):
    """The same for a step; its states go into the trace."""
    return StepContext(
        operator=operator,
        store=NoStore(),
        tell=lambda state: process.world.tell(
            process.name, f"roll to {state.target}: {state.phase} {state.step} {state.reason}"
        ),
        tell_copy=lambda *_: None,
    )


class JobsActor(Program):
    """A jobs worker without the queue: it looks once a second, and takes the step that is due."""

    def step(self):
        if self.stop.is_set():
            self.is_alive = False
            return None
        operator = operator_of(self, self.server)
        with suppress(*_REFUSALS):
            now_ms = operator.executor.run(fleet.server_time())
            operator.executor.run_all(rolls.announce_jobs(KEYS.namespace, self.name, now_ms))
            look = look_at(operator, KEYS.model)
            if look is not None:
                keep_moment(operator, look)
                take_step(context_of(self, operator), KEYS.model)
        return _JOBS_S


class OperatorActor(Process):
    """Does one thing after the other, drawn by chance."""

    may_be_killed = False
    actions = ()

    def __init__(self, world, server, options):
        super().__init__(world, "operator")
        self._options = options
        self._operator = operator_of(self, server)
        self._is_over = False
        self.make_thread("operator", self, None).start()

    def step(self):
        """Do something; whatever is refused or fails is done again another time."""
        with suppress(*_REFUSALS):
            if self._is_over:
                return self.last_step(self._seen())
            self.world.chance.choice(self.actions)(self, self._seen())
        if self._is_over:
            return _LAST_S
        return self.world.chance.expovariate(1000 / self._options.roll_every_ms)

    def _seen(self):
        return deployment.require_deployment(KEYS.model, self._operator.deploy_hash(KEYS.model))

    def finish(self):
        """From now on, bring everything to its end."""
        self._is_over = True

    def last_step(self, seen):
        """Withdraw what is not the stable version; over once nothing else is left."""
        if seen.canary is not None:
            deployment.reconfigure(self._operator, seen, {"canary": b""})
        for version in sorted(seen.versions.keys() - {seen.stable}):
            deployment.withdraw(self._operator, KEYS.model, version)
        return _LAST_S if len(seen.versions) > 1 or seen.canary else None

    def _tell(self, what):
        self.world.tell(self.name, what)


class DeployingOperator(OperatorActor):
    """Offers versions, gives them a share, makes them the stable one, and withdraws them."""

    def offer(self, seen):
        absent = [version for version in (VERSION, *OTHERS) if version not in seen.versions]
        if absent:
            record = self._options.record_of(self.world.chance.choice(absent))
            deployment.offer(self._operator, seen, record)
            self._tell(f"offers {record.version}")

    def shift(self, seen):
        """Give an offered version a share, or take it away."""
        others = [version for version in seen.versions if version != seen.stable]
        if others:
            chance = self.world.chance
            canary = Canary(chance.choice(others), chance.choice((0, 10, 50, 100)), "salt")
            deployment.reconfigure(self._operator, seen, {"canary": canary.to_wire()})
            self._tell(f"has {canary}")

    def switch(self, seen):
        others = [name for name in seen.versions if name not in (seen.stable, UNLOADABLE)]
        if others:
            version = self.world.chance.choice(others)
            deployment.switch(self._operator, seen, version)
            self._tell(f"makes {version} stable")

    def withdraw(self, seen):
        others = [version for version in seen.versions if version != seen.stable]
        if others:
            version = self.world.chance.choice(others)
            left = deployment.withdraw(self._operator, KEYS.model, version, keep=True)
            self._tell(f"withdraws {version}: {left} left")

    actions = (offer, offer, shift, shift, switch, withdraw)


class RollingOperator(OperatorActor):
    """Starts rolls and does all that may be done with one; now and then deploys meanwhile."""

    def start(self, seen):
        chance = self.world.chance
        good = [name for name in (VERSION, *OTHERS) if name not in (seen.stable, UNLOADABLE)]
        version = chance.choice((*good, *good, *good, UNLOADABLE))
        plan = Plan(
            weights=chance.choice(((100.0,), (10.0, 100.0), (1.0, 50.0, 100.0))),
            strategy=chance.choice(STRATEGIES),
            hold_s=chance.choice((0, 0.5, 1)),
            wait_s=chance.choice((2, 20)),
            min_samples=chance.choice((0, 0, 2)),
        )
        wish = Wish(model=KEYS.model, record=self._options.record_of(version), plan=plan)
        commands.start(self._operator, wish)
        self._tell(f"rolls from {seen.stable} to {version}, {plan.strategy}, {plan.weights}")

    def interfere(self, _seen):
        """Pause, resume, promote, or roll back."""
        event = self.world.chance.choice(_EVENTS)
        commands.command(context_of(self, self._operator), KEYS.model, event)
        self._tell(f"has it {event}")

    def deploy(self, seen):
        """Make an offered version the stable one, whatever a roll is about."""
        others = [name for name in seen.versions if name not in (seen.stable, UNLOADABLE)]
        if others:
            deployment.switch(self._operator, seen, self.world.chance.choice(others))
            self._tell("deploys meanwhile")

    def last_step(self, seen):
        """End the roll, and then what is left of it."""
        look = look_at(self._operator, KEYS.model)
        if look is None or look.state.has_ended:
            return super().last_step(seen)
        if look.state.phase is Phase.PAUSED:
            event = self.world.chance.choice((Event.RESUME, Event.ROLL_BACK))
            commands.command(context_of(self, self._operator), KEYS.model, event)
        elif look.state.phase is Phase.SHIFTING:  # no more requests will come that it could count
            event = self.world.chance.choice((Event.PROMOTE, Event.ROLL_BACK))
            commands.command(context_of(self, self._operator), KEYS.model, event)
        return _LAST_S

    actions = (start, start, start, interfere, interfere, deploy)


_EVENTS = (Event.PAUSE, Event.RESUME, Event.RESUME, Event.PROMOTE, Event.ROLL_BACK)
