"""A fleet to measure: its own server, router and workers as real processes, run by the product."""

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from batchfleet.models.importing import import_builtin
from batchfleet.models.store import Store
from batchfleet.ops.deployment import Operator, deploy, override
from batchfleet.ops.local_fleet import LocalFleet, ProcessContext
from batchfleet.service.clock import SystemClock
from batchfleet.service.events import Events
from batchfleet.service.lifecycle import StopSignal
from batchfleet.service.settings import Settings

from .processes import children_of

_TENANT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What to start.

    Attributes:
        overrides: built-in model → limits to override, as `deploy set` takes them.
        workers: how many.
        threads: of one model operation on the CPU.
    """

    overrides: Mapping[str, Mapping[str, Any]]
    workers: int = 1
    threads: int = 1
    namespace: str = field(default_factory=lambda: f"bench{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFleet:
    """A fleet that is ready. `pids`: server, router, consumer (main processes) and device."""

    redis_url: str
    namespace: str
    pids: Mapping[str, tuple[int, ...]]


@contextmanager
def running_fleet(plan: FleetPlan) -> Iterator[RunningFleet]:
    """Start what the plan says, on a private server and a store in a temporary folder.

    Raises:
        BatchfleetError: something did not start.
    """
    with tempfile.TemporaryDirectory(prefix="batchfleet-bench-") as folder:
        store = Store(folder)
        for model in plan.overrides:
            import_builtin(store, model)
        # Without a port: the unix socket, which is what `batchfleet up` gives its programs too.
        with LocalFleet(_settings(plan, folder), 0, _surroundings()) as local:
            local.start_server()
            _deploy(local, store, plan)
            local.start_programs()
            yield _running(local)


def _settings(plan: FleetPlan, store: str) -> Settings:
    return Settings(
        namespace=plan.namespace,
        tenant=_TENANT,
        store=store,
        workers=plan.workers,
        threads=plan.threads,
        log_level="warning",
    )


def _surroundings() -> ProcessContext:
    return ProcessContext(
        environ=dict(os.environ), clock=SystemClock(), events=Events(), stop=StopSignal()
    )


def _deploy(local: LocalFleet, store: Store, plan: FleetPlan) -> None:
    with local.executor("batchfleet-bench") as executor:
        operator = Operator(
            executor=executor, namespace=plan.namespace, draw_nonce=lambda: secrets.token_hex(8)
        )
        for model, limits in plan.overrides.items():
            manifest = store.newest(model).manifest
            deploy(operator, model, manifest.record(), [_TENANT])
            if limits:
                override(operator, model, limits)


def _running(local: LocalFleet) -> RunningFleet:
    pids = local.pids
    assert pids.server is not None
    assert pids.router is not None
    devices = [pid for consumer in pids.consumers for pid in children_of(consumer)]
    return RunningFleet(
        redis_url=local.settings.redis_url,
        namespace=local.settings.namespace,
        pids={
            "router": (pids.router,),
            "consumer": pids.consumers,
            "device": tuple(devices),
            "server": (pids.server,),
        },
    )
