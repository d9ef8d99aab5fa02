"""Asking a model as a client does: what is typed, and how the answer is printed."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, cast

import click

from ....producer.async_client import AsyncClient
from ....producer.options import OptionFields
from ....producer.result import Result
from ....service.settings import Settings
from ....wire.codec import strict_shallow_json
from ....wire.errors import RequestError
from ....wire.numbers import Range
from ....wire.reply import Reply
from ....wire.request import FIELDS, Field
from .answers import describe_outputs, describe_service, reply_json, result_json
from .options import (
    BoundedNumber,
    seconds,
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
            help="JSON file with the inputs instead of TEXT: a text, a list of texts, an object "
            "{name: array}, or a list of tensors (docs/protocol.md); - reads stdin.",
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


def print_answer(wait: Callable[[], Result], *, as_json: bool) -> None:
    """Wait for an answer and print it, or the reply that holds the error."""
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
