"""`batchfleet models try`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from ...consumer.device.trial import STAGES, Trial
from ...models.store import Store
from ...wire.tensors import decode_columns
from ..model_limits import what_keeps_batches_small
from ..trying import Candidate, TrialRequest, candidate_of_file, candidate_of_store, try_candidate
from ._shared.answers import describe_outputs, read_inputs
from ._shared.finding import find_version
from ._shared.options import ENVIRONMENTS, LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import print_json, say, warn
from ._shared.publishing import content_options, parse_publish_options, split_class


@click.command("try", short_help="Run one request through a version, without a fleet.")
@click.argument("source", metavar="NAME[/VERSION] | FILE.py[:CLASS]")
@click.option("--text", "texts", multiple=True, help="Text of one row; repeatable.")
@click.option(
    "--input",
    "file",
    type=click.File("rb"),
    help="JSON file: a text, a list of texts, an object {name: array}, or a list of tensors; - "
    "reads stdin.",
)
@click.option(
    "--parameters", metavar="JSON", default="", help="Parameters for the model, a JSON object."
)
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    default=STAGES[-1],
    show_default=True,
    help="Last stage to run; its result is shown.",
)
@content_options
@with_settings("store", "device", "threads", "allow_code", "cache", *ENVIRONMENTS, *LOGS)
@json_option
@examples(
    'batchfleet models try model.py --text "hello world"',
    "batchfleet models try model.py:Sentiment --input x.json --stage preprocess",
    "batchfleet models try minilm/1 --text hello --json",
)
def try_model(loaded: Loaded, *, source: str, stage: str, as_json: bool, **given: Any) -> None:
    """Run one request through a version, without a fleet and without Redis.

    The code of a worker loads the version, prepares the rows, runs them and encodes the reply, all
    in this process, so breakpoint() in your class stops at this terminal. Exceptions of your class
    are shown with their traceback; its output goes to stderr. A ValueError in preprocess means
    invalid input; its traceback is shown with --log-level debug.
    """
    texts, file = given.pop("texts"), given.pop("file")
    inputs = read_inputs(texts, file)
    wanted = TrialRequest(inputs=inputs, parameters=given.pop("parameters"), stage=stage)
    with _candidate(loaded, source, given) as candidate:
        trial = try_candidate(candidate, wanted, loaded.settings, loaded.environ)
    longest = max(trial.lengths, default=1)
    if warning := what_keeps_batches_small(candidate.manifest.limits, longest):
        warn(warning)
    if as_json:
        print_json(asdict(trial))
        return
    name = f"{candidate.manifest.model}/{candidate.manifest.version}"
    say(*_lines(name, trial, stage))


@contextmanager
def _candidate(loaded: Loaded, source: str, given: dict[str, Any]) -> Iterator[Candidate]:
    if ".py" in source:
        path, class_name = split_class(source)
        with candidate_of_file(path, parse_publish_options(class_name, given)) as candidate:
            yield candidate
        return
    if any(given.values()):
        raise click.UsageError(
            "--limit and --file are for FILE.py; a version in the store has its own"
        )
    manifest = find_version(Store(loaded.settings.store), source)
    yield candidate_of_store(loaded.settings, manifest)


def _lines(name: str, trial: Trial, stage: str) -> Iterator[str]:
    rows = len(trial.lengths)
    lengths = " ".join(map(str, trial.lengths[:20])) + (" …" if rows > 20 else "")
    yield f"{name}  loaded in {trial.load_ms:.0f} ms, {rows} rows"
    cut = f", {trial.truncated_tokens} tokens cut off" if trial.truncated_tokens else ""
    yield f"preprocess   {trial.preprocess_ms:8.2f} ms   lengths {lengths}{cut}"
    if stage != STAGES[0]:
        sizes = " ".join(map(str, trial.batches))
        yield f"predict      {trial.predict_ms:8.2f} ms   rows by batch {sizes}"
    if stage == STAGES[-1]:
        yield f"postprocess  {trial.postprocess_ms:8.2f} ms   with encoding"
        yield from describe_outputs(decode_columns(trial.outputs))
    else:
        yield f"{stage} returned"
        yield from (f"  {value}" for value in trial.values)
