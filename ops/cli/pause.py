"""`batchfleet pause`."""

import click

from ._shared.following import wait_option
from ._shared.intake import change_intake
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings


@click.command()
@click.argument("model")
@click.option("--refuse", is_flag=True, help="Refuse new requests and finish accepted ones.")
@wait_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet pause minilm",
    "batchfleet pause minilm --refuse",
)
def pause(loaded: Loaded, *, model: str, refuse: bool, wait_s: float, as_json: bool) -> None:
    """Stop processing the requests of a model.

    Workers finish what they hold and fetch nothing more. New requests are accepted, up to the
    backlog limit, and wait; their deadlines still apply. With --refuse, drain the model instead:
    new requests are answered `unavailable` with a retry-after time, and workers process what was
    accepted.

    The command returns when all live routers and workers follow the change. If one does not within
    --wait, it is named and the exit code is 1; the change stays active.
    """
    what = "new requests are refused" if refuse else "requests wait, workers fetch nothing"
    sentence = f"{model} is paused: {what}; `batchfleet resume {model}` ends it"
    change_intake(
        loaded, model, "refuse" if refuse else "hold", sentence, wait_s=wait_s, as_json=as_json
    )
