"""`batchfleet submit`."""

from typing import IO, Any

import click

from ._shared.answers import read_inputs
from ._shared.asking import ask, option_fields, request_options
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings
from ._shared.output import print_json, say


@click.command()
@request_options
@with_settings(*settings_of("client"))
@json_option
@examples(
    'batchfleet submit minilm "hello world"',
    'batchfleet submit minilm "hello world" --delay 60',
    'batchfleet result minilm $(batchfleet submit minilm "hello world")',
)
def submit(
    loaded: Loaded,
    *,
    model: str,
    texts: tuple[str, ...],
    file: IO[bytes] | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Send a request and print its id.

    Fetch the reply later with `batchfleet result MODEL ID`.
    """
    inputs, fields = read_inputs(texts, file), option_fields(given)
    handle = ask(loaded.settings, lambda client: client.submit(model, inputs, **fields), keep=True)
    if as_json:
        print_json({"model": handle.model, "id": handle.id})
    else:
        say(handle.id)
