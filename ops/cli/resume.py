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
    """End a pause.

    Workers process the waiting requests whose deadline has not passed. The command returns when all
    live routers and workers follow the change, as with `pause`.
    """
    change_intake(loaded, model, "open", f"{model} is resumed", wait_s=wait_s, as_json=as_json)
