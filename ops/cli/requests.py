"""`batchfleet infer`, `submit` and `result`."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import IO, Any, cast

import click

from ...producer.async_client import AsyncClient
from ...producer.errors import WaitTimeoutError
from ...producer.options import WAIT_S, OptionFields
from ...producer.result import Result
from ...service.settings import Settings
from ...wire.codec import strict_shallow_json
from ...wire.errors import ErrorKind, RequestError
from ...wire.numbers import Range
from ...wire.reply import Reply
from ...wire.request import FIELDS, Field
from ...wire.states import State
from .answers import describe_outputs, describe_service, read_inputs, reply_json, result_json
from .options import (
    BoundedNumber,
    Loaded,
    examples,
    json_option,
    seconds,
    settings_of,
    with_settings,
)
from .output import print_json, say, warn

Command = Callable[..., Any]

_METAVARS = {"parameters": "JSON", "outputs": "NAME,NAME"}


def _option(field: Field) -> Callable[[Command], Command]:
    """The option for a field of a request; times are typed in seconds."""
    kind, name = field.kind, field.name.removesuffix("_ms")
    wanted: Any = str
    if isinstance(kind, tuple):
        wanted = click.Choice(kind)
    elif isinstance(kind, Range) and name != field.name:
        wanted = seconds(kind.lowest / 1000, kind.highest / 1000)
    elif isinstance(kind, Range):
        wanted = BoundedNumber(kind)
    metavar = "SECONDS" if name != field.name else _METAVARS.get(name)
    return click.option(f"--{name}", name, type=wanted, metavar=metavar, help=field.meaning)


def request_options(command: Command) -> Command:
    """Give a command the inputs of a request and what may be said about it."""
    options: tuple[Callable[[Command], Command], ...] = (
        click.argument("model"),
        click.argument("texts", metavar="[TEXT]…", nargs=-1),
        click.option(
            "--input",
            "file",
            type=click.File("rb"),
            help="JSON instead of texts: a text, a list of texts, an object name → array, or a "
            "list of tensors of the contract; - reads stdin.",
        ),
        *(_option(field) for field in FIELDS.values() if field.meaning),
    )
    for option in reversed(options):
        command = option(command)
    return command


def option_fields(given: dict[str, Any]) -> OptionFields:
    """The client's keyword options for what was typed.

    Raises:
        BadParameter: the parameters are not a JSON object.
    """
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            in_ms = f"{name}_ms" in FIELDS
            fields |= {f"{name}_ms": round(value * 1000)} if in_ms else {name: value}
    if "outputs" in fields:
        fields["outputs"] = [name.strip() for name in fields["outputs"].split(",")]
    if "parameters" in fields:
        fields["parameters"] = _parse_object(fields["parameters"])
    return cast("OptionFields", fields)


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = strict_shallow_json(os.fsencode(text))
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--parameters") from error
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--parameters")
    return value


def ask(
    settings: Settings, question: Callable[[AsyncClient], Coroutine[Any, Any, Any]], *, keep: bool
) -> Any:
    """Run one question with a client of its own; replies stay on the server if `keep`."""

    async def run() -> Any:
        client = AsyncClient(
            settings.require_redis_url(),
            namespace=settings.namespace,
            tenant=settings.tenant,
            keep=keep,
        )
        async with client:
            return await question(client)

    return asyncio.run(run())


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
    """Ask a model and wait for the answer.

    With --json the whole reply is printed, an error reply too; the exit code is 1 then.
    """
    inputs, fields = read_inputs(texts, file), option_fields(given)
    _print_answer(
        lambda: ask(
            loaded.settings, lambda client: client.infer(model, inputs, **fields), keep=False
        ),
        as_json=as_json,
    )


def _print_answer(wait: Callable[[], Result], *, as_json: bool) -> None:
    try:
        result = wait()
    except RequestError as error:
        if as_json and isinstance(error.reply, Reply):
            print_json(reply_json(error.reply))
        raise
    if as_json:
        print_json(result_json(result))
        return
    say(*describe_outputs(result.outputs))
    for warning in result.warnings:
        warn(warning)
    say(describe_service(result), dim=True)


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
    """Ask a model and print the request's id without waiting."""
    inputs, fields = read_inputs(texts, file), option_fields(given)
    handle = ask(loaded.settings, lambda client: client.submit(model, inputs, **fields), keep=True)
    if as_json:
        print_json({"model": handle.model, "id": handle.id})
    else:
        say(handle.id)


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
    """Wait for the answer to a request that was submitted.

    The answer stays on the server until its time is over, so that it can be read again.
    """
    _print_answer(
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
    raise RequestError.of(
        ErrorKind.UNKNOWN_REQUEST, f"nothing is known of request {name} of {model}"
    )
