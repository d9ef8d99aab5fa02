"""`batchfleet jobs`."""

import click

from ...service.clock import SystemClock
from ...service.events import Events
from ...service.fault_points import find_fault_points
from ...wire.errors import SettingsError
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings
from ._shared.running import run_program


@click.command()
@with_settings(*settings_of("jobs"))
@json_option
@examples(
    "batchfleet jobs --redis-url redis://redis.internal:6379/0",
    "batchfleet jobs --json        print one line of JSON when ready",
)
def jobs(loaded: Loaded, *, as_json: bool) -> None:
    """Run a jobs worker.

    A jobs worker takes the steps of rolls (`batchfleet roll`): it shifts traffic when a step is
    due, and rolls back when a limit breaks. Run two or more, on different machines: any of them
    goes on where another one ended.
    """
    loaded.settings.require_redis_url()
    try:
        from ..rolls.program import JobsProgram  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "rq":
            raise
        raise SettingsError("rq is not installed: `pip install 'batchfleet[jobs]'`") from error
    events = Events()
    faults = find_fault_points(loaded.environ, events)
    program = JobsProgram(loaded.settings, events, SystemClock(), faults)
    run_program(program, "the jobs worker", as_json=as_json)
