"""`batchfleet models judge`."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO

import click

from ...consumer.device.judging import JudgedEngine, Judgement
from ...models.store import Store
from ..trying import candidate_of_store, judge_candidate
from ._shared.finding import find_version
from ._shared.options import ENVIRONMENTS, LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import make_table, print_json, print_table, say

_TEXTS_MAX = 10_000


@click.command("judge", short_help="Compare the engines of a version on this machine.")
@click.argument("name", metavar="NAME[/VERSION]")
@click.option(
    "--texts",
    type=click.File("r", encoding="utf-8"),
    help="File of texts, one a line, on which engines are compared as well; - reads stdin.",
)
@with_settings("store", "device", "threads", "allow_code", "cache", *ENVIRONMENTS, *LOGS)
@json_option
@examples(
    "batchfleet models judge minilm",
    "batchfleet models judge minilm/1 --texts queries.txt",
)
def judge(loaded: Loaded, *, name: str, texts: TextIO | None, as_json: bool) -> None:
    """Compare the engines of a version on this machine.

    An engine is a way to compute the same answers, such as packed weights or bf16. For each one the
    table has its gain (how many times as fast as the plain engine), and how like its answers are on
    the version's own examples and --texts: the largest difference of any number, and the least
    cosine of two vectors. It measures anew each time, and changes nothing.
    """
    inputs = [] if texts is None else list(_inputs(texts))
    manifest = find_version(Store(loaded.settings.store), name)
    candidate = candidate_of_store(loaded.settings, manifest)
    judgement = judge_candidate(candidate, inputs, loaded.settings, loaded.environ)
    if as_json:
        print_json(asdict(judgement))
        return
    version = f"{manifest.model}/{manifest.version}"
    if not judgement.engines:
        say(f"{version} has no engines to choose from")
        return
    _print_judgement(version, judgement)


def _inputs(texts: TextIO) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(texts):
        if number == _TEXTS_MAX:
            raise click.UsageError(f"--texts has more than {_TEXTS_MAX} lines")
        if text := line.strip():
            yield {"text": [text]}


def _print_judgement(version: str, judgement: Judgement) -> None:
    table = make_table(
        f"engines of {version}", "engine", "precision", ">gain", ">difference", ">cosine", "serves"
    )
    for engine in judgement.engines:
        serves = [name for name, used in judgement.serving.items() if used == engine.name]
        table.add_row(engine.name, engine.precision, *_figures(engine), ", ".join(serves))
    print_table(table)
    for engine in judgement.engines:
        if engine.fault:
            say(f"{engine.name} cannot serve: {engine.fault}")
    say(f"precision auto means {judgement.settled} on this machine")


def _figures(engine: JudgedEngine) -> tuple[str, str, str]:
    if engine.gain is None:
        return "", "", ""
    difference = "" if engine.difference is None else f"{engine.difference:.1e}"
    return f"{engine.gain:.2f}", difference, f"{engine.cosine:.6f}"
