"""A model whose version is replaced: the twin, an operator, and workers that follow the record."""

from dataclasses import replace

from support.broker_wire import BUCKETS, TENANT, TTL_MS
from support.manual_clock import ManualClock

from batchfleet.broker import fleet, membership
from batchfleet.ops.deployment import Operator
from batchfleet.ops.taking_over import Takeover, Terms
from batchfleet.ops.verdict import Waiting
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.deployment import Limits, VersionRecord

TERMS = Terms(tenants=(TENANT,), wait_ms=10_000, drain_ms=5_000)
SECOND = VersionRecord(version="2", limits=Limits(buckets=BUCKETS))
THIRD = replace(SECOND, version="3")


class Crew:
    """Workers of a model: each follows the record one look later, and loads in some looks more.

    `loads` says of a version in how many looks it is loaded; `refuses` which worker refuses which.
    What a worker is to have no more is there for two looks yet.
    """

    def __init__(self, wire, names, **facts):
        self.wire, self.names, self.facts = wire, names, facts
        self.loads, self.refuses = {}, {}
        self.lanes = {name: {"1": 0} for name in names}  # version → looks until it is ready
        self.leaving = {name: {} for name in names}  # version → looks until it is gone
        self.fewest = len(names)
        for name in names:
            assert wire.run(membership.join(wire.keys, name, TTL_MS, self._said(name)))

    def look(self):
        """All workers follow the record in force, and load a little."""
        seen = self.wire.run(fleet.deployment(self.wire.keys))
        for name in self.names if seen is not None else ():
            wanted = [version for version in seen.versions if seen.loads(version, name)]
            known = self.lanes[name]
            gone = dict.fromkeys(known.keys() - set(wanted), 2)
            leaving = {**self.leaving[name], **gone}
            self.leaving[name] = {one: left - 1 for one, left in leaving.items() if left}
            self.lanes[name] = {
                version: max(0, known.get(version, self.loads.get(version, 1) + 1) - 1)
                for version in wanted
            }
            self.wire.run(membership.beat(self.wire.keys, name, TTL_MS, self._said(name)))
        serving = sum(0 in lanes.values() for lanes in self.lanes.values())
        self.fewest = min(self.fewest, serving)

    def _said(self, name):
        stamp = self.wire.stamp()
        versions = {
            version: self._state(name, version, left) for version, left in self.lanes[name].items()
        }
        versions |= {version: {"state": "draining"} for version in self.leaving[name]}
        return WorkerAnnouncement(versions=versions, stamp=stamp, facts=self.facts).to_fields()

    def copies(self, name):
        """How many versions are in the memory of a worker."""
        return len(self.lanes[name]) + len(self.leaving[name])

    def _state(self, name, version, left):
        if version in self.refuses.get(name, ()):
            return {"state": "refused", "reason": "no wheel"}
        return {"state": "loading" if left else "ready", "memory_bytes": "1000"}


class Scene:
    """A model of which version 1 is deployed, its crew, and a clock that moves with each pause."""

    def __init__(self, wire):
        self.wire, self.clock, self.crew = wire, ManualClock(), None
        self.told, self.at_pause = [], {}
        self.operator = self.operator_called("ann@here:1")

    def operator_called(self, who):
        numbers = iter(range(1000))
        return Operator(
            executor=self.wire.executor,
            namespace=self.wire.keys.namespace,
            draw_nonce=lambda: f"{who}:{next(numbers)}",
        )

    def with_crew(self, *names, **facts):
        self.crew = Crew(self.wire, names, **facts)
        return self.crew

    def pause(self, seconds):
        self.clock.advance(1000 * seconds)
        if act := self.at_pause.pop(len(self.told), None):
            act()
        if self.crew:
            self.crew.look()

    @property
    def waiting(self):
        return Waiting(clock=self.clock, pause=self.pause, report=self.told.append)

    def takeover(self, record, **terms):
        waiting, terms = self.waiting, replace(TERMS, **terms)
        return Takeover(self.operator, "m", record, terms, waiting)

    def deploy(self, record, **terms):
        """The whole command; which versions it has withdrawn."""
        takeover = self.takeover(record, **terms)
        takeover.run()
        cleared = takeover.clear(self.waiting)
        cleared.require_cleared("m")
        return cleared.withdrawn

    def enqueue(self, version):
        """Put an entry into a queue of a version; its id."""
        return self.wire.ask("XADD", self.wire.keys.queue(version, "normal", 16), "*", "id", "x")

    @property
    def record(self):
        return self.wire.run(fleet.deployment(self.wire.keys))

    @property
    def raw(self):
        """The record without what says which state of it it is."""
        found = self.wire.run(fleet.deploy_hash(self.wire.keys))
        return {name: raw for name, raw in found.items() if name not in ("epoch", "nonce")}
