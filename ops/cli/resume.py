"""`batchfleet resume`."""

import click

from ._shared.following import wait_option
from ._shared.intake import change_intake
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings


@click.command()
@click.argument("model")
@wait_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples("batchfleet resume minilm")
def resume(loaded: Loaded, *, model: str, wait_s: float, as_json: bool) -> None:
    """Have a paused model serve again.

    What waits is taken at once, as far as its deadline has not passed. It holds once the command
    returns, as with `pause`.
    """
    change_intake(loaded, model, "open", f"{model} is served again", wait_s=wait_s, as_json=as_json)
