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
    _set(loaded, model, "refuse" if refuse else "hold", sentence, wait_s=wait_s, as_json=as_json)


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
    _set(loaded, model, "open", f"{model} is served again", wait_s=wait_s, as_json=as_json)


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
