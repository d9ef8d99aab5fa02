"""`batchfleet pause` and `batchfleet resume`."""

from dataclasses import asdict

import click

from ..deployment import set_intake
from .connecting import changing
from .following import follow, programs_json, report_following, wait_option
from .options import LOGS, Loaded, examples, json_option, with_settings
from .output import print_json, say


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
    _set(loaded, model, "refuse" if refuse else "hold", sentence, wait_s=wait_s, as_json=as_json)


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
    _set(loaded, model, "open", f"{model} is resumed", wait_s=wait_s, as_json=as_json)


def _set(
    loaded: Loaded, model: str, intake: str, sentence: str, *, wait_s: float, as_json: bool
) -> None:
    with changing(loaded.settings) as operator:
        done = set_intake(operator, model, intake)
        found = follow(operator, model, wait_s)
    if as_json:
        print_json(asdict(done) | programs_json(found))
    else:
        say(f"{sentence} (epoch {done.epoch})")
    report_following(found, wait_s)
