"""`batchfleet pause` and `batchfleet resume`."""

from dataclasses import asdict

import click

from ..deployment import Deployed, set_intake
from .connecting import changing
from .options import LOGS, Loaded, examples, json_option, with_settings
from .output import print_json


@click.command()
@click.argument("model")
@click.option("--refuse", is_flag=True, help="Answer new requests `unavailable` instead.")
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet pause minilm",
    "batchfleet pause minilm --refuse",
)
def pause(loaded: Loaded, *, model: str, refuse: bool, as_json: bool) -> None:
    """Keep requests of a model waiting, or refuse them.

    Requests are accepted and wait, up to the backlog; workers finish what they hold and take
    nothing more. Deadlines go on. With --refuse new requests are answered `unavailable`, with a
    retry-after, and workers go on until nothing is open. Programs follow within a second or two.
    """
    with changing(loaded.settings) as operator:
        done = set_intake(operator, model, "refuse" if refuse else "hold")
    what = "new requests are refused" if refuse else "requests wait, workers take nothing"
    _report(done, f"{model} is paused: {what}; `batchfleet resume {model}` ends it", as_json)


@click.command()
@click.argument("model")
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples("batchfleet resume minilm")
def resume(loaded: Loaded, *, model: str, as_json: bool) -> None:
    """Have a paused model serve again.

    What waits is taken at once, as far as its deadline has not passed.
    """
    with changing(loaded.settings) as operator:
        done = set_intake(operator, model, "open")
    _report(done, f"{model} is served again", as_json)


def _report(done: Deployed, sentence: str, as_json: bool) -> None:  # noqa: FBT001 - passed on
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(f"{sentence} (epoch {done.epoch})")
