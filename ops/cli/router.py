"""`batchfleet router`."""

import click

from ...router.program import RouterProgram
from ...service.clock import SystemClock
from ...service.events import Events
from ...service.fault_points import find_fault_points
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings
from ._shared.running import run_program


@click.command()
@with_settings(*settings_of("router"))
@json_option
@examples(
    "batchfleet router --redis-url redis://redis.internal:6379/0",
    "batchfleet router --json        print one line of JSON when ready",
)
def router(loaded: Loaded, *, as_json: bool) -> None:
    """Run a router.

    A router validates requests and queues them for the workers. Routers are stateless: run as many
    as you like, and stop any of them at any time.
    """
    loaded.settings.require_redis_url()
    events = Events()
    faults = find_fault_points(loaded.environ, events)
    program = RouterProgram(loaded.settings, events, SystemClock(), faults=faults)
    run_program(program, "the router", as_json=as_json)
