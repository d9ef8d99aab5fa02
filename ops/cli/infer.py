"""`batchfleet infer`."""

from typing import IO, Any

import click

from ._shared.answers import read_inputs
from ._shared.asking import ask, option_fields, print_answer, request_options
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings


@click.command()
@request_options
@with_settings(*settings_of("client"))
@json_option
@examples(
    'batchfleet infer minilm "hello world" "good morning"',
    "batchfleet infer minilm --input texts.json --json",
    "echo '{\"pixels\": [[0.1, 0.2], [0.3, 0.4]]}' | batchfleet infer echo --input -",
)
def infer(
    loaded: Loaded,
    *,
    model: str,
    texts: tuple[str, ...],
    file: IO[bytes] | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Send a request and wait for the reply.

    With --json, print the whole reply as JSON to stdout, also if it is an error. The exit code of
    an error reply is 1.
    """
    inputs, fields = read_inputs(texts, file), option_fields(given)
    print_answer(
        lambda: ask(
            loaded.settings, lambda client: client.infer(model, inputs, **fields), keep=False
        ),
        as_json=as_json,
    )
