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
from ....wire.keys import PRIORITIES
from ....wire.numbers import Range
from ....wire.reply import Reply
from ....wire.request import FIELD_RANGES
from .answers import describe_outputs, describe_service, reply_json, result_json
from .options import (
    BoundedNumber,
    seconds,
)
from .output import print_json, say, warn

Command = Callable[..., Any]


def _in_seconds(milliseconds: Range) -> BoundedNumber:
    return seconds(milliseconds.lowest / 1000, milliseconds.highest / 1000)


_TIMEOUT = _in_seconds(FIELD_RANGES["timeout_ms"])
_DELAY = _in_seconds(FIELD_RANGES["delay_ms"])
_RETRIES = BoundedNumber(FIELD_RANGES["retries"])


def request_options(command: Command) -> Command:
    """Give a command the inputs of a request and what may be said about it."""
    options = (
        click.argument("model"),
        click.argument("texts", metavar="[TEXT]…", nargs=-1),
        click.option(
            "--input",
            "file",
            type=click.File("rb"),
            help="JSON file with the inputs instead of TEXT: a text, a list of texts, an object "
            "{name: array}, or a list of tensors (docs/protocol.md); - reads stdin.",
        ),
        click.option(
            "--id",
            "id",
            help="Id of the request. If a request has this id, wait for its reply instead.",
        ),
        click.option("--version", "version", help="Version to run; default: the deployed one."),
        click.option(
            "--parameters", metavar="JSON", help="Parameters for the model, a JSON object."
        ),
        click.option("--outputs", metavar="NAME,NAME", help="Return only these outputs."),
        click.option("--priority", type=click.Choice(PRIORITIES), help="Queue priority."),
        click.option(
            "--truncate",
            type=click.Choice(["end", "refuse"]),
            help="Cut texts over max_length (end) or refuse them.",
        ),
        click.option(
            "--timeout",
            type=_TIMEOUT,
            metavar="SECONDS",
            help="Time until the deadline; default: the model's timeout_ms.",
        ),
        click.option(
            "--delay",
            type=_DELAY,
            metavar="SECONDS",
            help="Wait this long before running; the timeout begins then.",
        ),
        click.option("--retries", type=_RETRIES, help="Maximum number of retries after a failure."),
        click.option("--meta", help="Text that is returned with the reply."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def option_fields(given: dict[str, Any]) -> OptionFields:
    """The client's keyword options for what was typed.

    Raises:
        BadParameter: the parameters are not a JSON object.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    if "timeout" in fields:
        fields["timeout_ms"] = round(fields.pop("timeout") * 1000)
    if "outputs" in fields:
        fields["outputs"] = [name.strip() for name in fields["outputs"].split(",")]
    if "delay" in fields:
        fields["delay_ms"] = round(fields.pop("delay") * 1000)
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
