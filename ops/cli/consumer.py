"""`batchfleet consumer`."""

import click

from ...consumer.program import ConsumerProgram, devices_of
from ...service.clock import SystemClock
from ...service.descendants import adopt_orphans, end_orphans
from ...service.events import Events
from ...service.fault_points import find_fault_points
from ._shared.finding import require_own_store
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings
from ._shared.running import run_program


@click.command()
@with_settings(*settings_of("consumer"))
@json_option
@examples(
    "batchfleet consumer --redis-url redis://redis.internal:6379/0 --store /mnt/models",
    "batchfleet consumer --models 'minilm,ocr-*' --threads 2",
    "batchfleet consumer --json      print one line of JSON when ready",
)
def consumer(loaded: Loaded, *, as_json: bool) -> None:
    """Run a worker.

    A worker serves the deployed models that match --models and --device: it batches requests of
    similar length and writes the replies. On SIGTERM or Ctrl-C it finishes the requests that it
    holds, then exits; a second signal ends it at once.
    """
    loaded.settings.require_redis_url()
    require_own_store(loaded.settings)
    adopt_orphans()
    events = Events()
    faults = find_fault_points(loaded.environ, events)
    devices = devices_of(loaded.settings, loaded.environ)
    program = ConsumerProgram(
        loaded.settings, events, SystemClock(), devices=devices, faults=faults
    )
    try:
        run_program(program, "the worker", as_json=as_json)
    finally:
        end_orphans(())
