"""`batchfleet pause`."""

import click

from ._shared.following import wait_option
from ._shared.intake import change_intake
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings


@click.command()
@click.argument("model")
@click.option("--refuse", is_flag=True, help="Answer new requests `unavailable` instead.")
@wait_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet pause minilm",
    "batchfleet pause minilm --refuse",
)
def pause(loaded: Loaded, *, model: str, refuse: bool, wait_s: float, as_json: bool) -> None:
    """Keep requests of a model waiting, or refuse them.

    Requests are accepted and wait, up to the backlog; workers finish what they hold and take
    nothing more. Deadlines go on. With --refuse new requests are answered `unavailable`, with a
    retry-after, and workers go on until nothing is open.

    It holds once the command returns: all routers and workers that are alive follow by then. Where
    one does not within --wait, it is named, and the exit code is 1; it holds all the same.
    """
    what = "new requests are refused" if refuse else "requests wait, workers take nothing"
    sentence = f"{model} is paused: {what}; `batchfleet resume {model}` ends it"
    change_intake(
        loaded, model, "refuse" if refuse else "hold", sentence, wait_s=wait_s, as_json=as_json
    )
