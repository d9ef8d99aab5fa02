"""`batchfleet result`."""

import click

from ...producer.async_client import AsyncClient
from ...producer.errors import WaitTimeoutError
from ...producer.options import WAIT_S
from ...producer.result import Result
from ...wire.errors import ErrorKind, RequestError
from ...wire.states import State
from ._shared.asking import ask, print_answer
from ._shared.options import (
    BoundedNumber,
    Loaded,
    examples,
    json_option,
    settings_of,
    with_settings,
)


@click.command()
@click.argument("model")
@click.argument("id", metavar="ID")
@click.option(
    "--timeout",
    type=BoundedNumber(WAIT_S),
    metavar="SECONDS",
    help="How long to wait.  [default: 65]",
)
@with_settings(*settings_of("client"))
@json_option
@examples(
    "batchfleet result minilm 5f0c6c9e5b0b4f0aa0cbe2e6a9e6a0c1",
    "batchfleet result minilm my-own-id --timeout 5 --json",
)
def result(loaded: Loaded, *, model: str, id: str, timeout: float | None, as_json: bool) -> None:  # noqa: A002 - the name of the contract
    """Wait for the reply to a submitted request.

    The server keeps the reply for the model's result_ttl_ms; until then you can read it again.
    """
    print_answer(
        lambda: ask(
            loaded.settings, lambda client: _result(client, (model, id), timeout), keep=True
        ),
        as_json=as_json,
    )


async def _result(client: AsyncClient, request: tuple[str, str], timeout_s: float | None) -> Result:
    try:
        return await client.result(request, timeout_s)
    except WaitTimeoutError:
        if await client.status(request) is not State.UNKNOWN:
            raise
    model, name = request
    raise RequestError.of(ErrorKind.UNKNOWN_REQUEST, f"{model} has no request {name}")
