"""An operator who offers versions, gives them a share, makes them the stable one, and withdraws."""

from contextlib import suppress

from batchfleet.ops import deployment
from batchfleet.ops.deployment import ChangedError, Operator
from batchfleet.wire.canary import Canary
from batchfleet.wire.errors import RequestError, ServerError

from .connections import SimulatedBroker
from .options import KEYS, OTHERS, UNLOADABLE, VERSION
from .world import Process


class OperatorActor(Process):
    """Does one thing after the other by the functions behind the commands, drawn by chance."""

    may_be_killed = False

    def __init__(self, world, server, options):
        super().__init__(world, "operator")
        self._options = options
        self._operator = Operator(
            executor=SimulatedBroker(server, self).connect("operator"),
            namespace=KEYS.namespace,
            draw_nonce=lambda: f"sim:{world.chance.getrandbits(32):08x}",
        )
        self._is_over = False
        self.make_thread("operator", self, None).start()

    def step(self):
        """Do something; whatever is refused or fails is done again another time."""
        with suppress(ChangedError, RequestError, ServerError):
            seen = deployment.require_deployment(KEYS.model, self._operator.deploy_hash(KEYS.model))
            if self._is_over:
                return self._clear(seen)
            self.world.chance.choice(_ACTIONS)(self, seen)
        return self.world.chance.expovariate(1000 / self._options.roll_every_ms)

    def finish(self):
        """From now on, leave the stable version alone and withdraw the others."""
        self._is_over = True

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

    def _clear(self, seen):
        """Withdraw what is not the stable version; over once nothing else is left."""
        if seen.canary is not None:
            deployment.reconfigure(self._operator, seen, {"canary": b""})
        for version in seen.versions.keys() - {seen.stable}:
            deployment.withdraw(self._operator, KEYS.model, version)
        return 0.3 if len(seen.versions) > 1 or seen.canary else None

    def _tell(self, what):
        self.world.tell(self.name, what)


_ACTIONS = (
    OperatorActor.offer,
    OperatorActor.offer,
    OperatorActor.shift,
    OperatorActor.shift,
    OperatorActor.switch,
    OperatorActor.withdraw,
)
