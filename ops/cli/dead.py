"""`batchfleet dead`."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from ...broker import dead as dead_commands
from ...wire.codec import decode_body
from ...wire.errors import RequestError
from ...wire.names import require_name
from ...wire.tensors import decode_columns
from ..dead_letters import (
    Letter,
    NotReplayableError,
    find_letter,
    full_letter,
    letters,
    purge_letters,
    replay,
)
from ..deployment import Operator
from ._shared.answers import describe_outputs, reply_json
from ._shared.choosing import ask_first, limit_option, older_than_option, yes_option
from ._shared.connecting import changing, connected
from ._shared.options import LOGS, Loaded, examples, json_option, settings_of, with_settings
from ._shared.output import complain, json_text, make_table, moment, print_json, print_table, say
from ._shared.progress import counting_bar

_MESSAGE_CHARACTERS = 80


@click.group()
@examples(
    "batchfleet dead list minilm",
    "batchfleet dead show minilm my-own-id",
    "batchfleet dead replay minilm my-own-id",
    "batchfleet dead purge minilm --older-than 86400",
)
def dead() -> None:
    """Inspect dead letters (failed requests); send them again.

    A failed request becomes a dead letter if it ended one device process or worker after another
    (`poison`), or failed on every attempt that its caller allowed (`attempts_exhausted`). A letter
    holds the inputs and the error reply, which the caller has received. Each model keeps the newest
    10,000 letters, up to 64 MiB.
    """


@dead.command("list", short_help="List the dead letters of a model.")
@click.argument("model")
@limit_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet dead list minilm",
    "batchfleet dead list minilm --limit 1000 --json",
)
def list_letters(loaded: Loaded, *, model: str, limit: int, as_json: bool) -> None:
    """List the dead letters of a model, of all tenants, the newest first."""
    with connected(loaded.settings) as operator:
        keys = operator.keys(model)
        found = list(islice(letters(operator.executor, keys), limit))
        count = operator.executor.run(dead_commands.count_letters(keys))
    more = max(0, count - len(found))
    if as_json:
        print_json({"letters": [one.to_json() for one in found], "more": more})
        return
    _print_letters(found)
    say(f"{count} dead letters" + (f", {more} not shown" if more else ""))


def _print_letters(found: list[Letter]) -> None:
    table = make_table(None, "when", "id", "tenant", "version", "error", ">attempts", "message")
    for one in found:
        facts = one.to_json()
        table.add_row(
            moment(one.written_ms),
            one.entry.id,
            one.entry.tenant,
            one.queue.version,
            facts["error"],
            str(one.attempts),
            facts["message"][:_MESSAGE_CHARACTERS],
        )
    if found:
        print_table(table)


@dead.command("show", short_help="Show a dead letter with its inputs.")
@click.argument("model")
@click.argument("id", metavar="ID")
@with_settings(*settings_of("client"))
@json_option
@examples(
    "batchfleet dead show minilm my-own-id",
    "batchfleet dead show minilm my-own-id --tenant acme --json",
)
def show(loaded: Loaded, *, model: str, id: str, as_json: bool) -> None:  # noqa: A002 - the name of the contract
    """Show the newest dead letter of a request: its options, inputs and reply."""
    with connected(loaded.settings) as operator:
        tenant = loaded.settings.tenant
        keys = operator.keys(model)
        letter = find_letter(operator.executor, keys, tenant, require_name("id", id))
    if as_json:
        print_json({**letter.to_json(), **_details(letter), "reply": reply_json(letter.reply)})
    else:
        say(*_letter_lines(model, letter))


def _details(letter: Letter) -> dict[str, Any]:
    entry = letter.entry
    facts = {
        "rows": entry.rows,
        "parameters": entry.parameters and entry.parameters.decode(errors="replace"),
        "outputs": entry.outputs,
        "timeout_ms": entry.timeout_ms,
        "meta": entry.meta,
        "traceparent": entry.traceparent,
        "inputs_at": entry.inputs_at,
        "inputs_bytes": len(entry.inputs) or entry.inputs_bytes,
        "inputs": describe_inputs(letter),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _letter_lines(model: str, letter: Letter) -> Iterator[str]:
    facts = letter.to_json()
    yield f"request   {letter.entry.id} of {model}/{letter.queue.version} for {letter.entry.tenant}"
    yield f"failed    {moment(letter.written_ms)} after {letter.attempts} attempts"
    yield f"error     {facts['error']}: {facts['message']}"
    for name, value in _details(letter).items():
        if name != "inputs":
            yield f"{name:9} {value}"
    for line in describe_inputs(letter):
        yield f"  {line}"
    yield f"reply     {json_text(reply_json(letter.reply))}"


def describe_inputs(letter: Letter) -> list[str]:
    """The inputs of a letter: its texts, or name, datatype and shape of its tensors."""
    entry = letter.entry
    if not entry.inputs:
        return [f"at {entry.inputs_at}"]
    try:
        return describe_outputs(decode_columns(decode_body(entry.inputs, entry.content_type)))
    except RequestError as error:
        # They may be what the request was given up for.
        return [f"{len(entry.inputs)} bytes that cannot be decoded: {error.message}"]


@dead.command("replay", short_help="Send dead letters again with new ids.")
@click.argument("model")
@click.argument("ids", metavar="[ID]…", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All dead letters of the model, of all tenants.")
@with_settings(*settings_of("client"))
@json_option
@examples(
    "batchfleet dead replay minilm my-own-id",
    "batchfleet dead replay minilm --all",
)
def replay_letters(
    loaded: Loaded, *, model: str, ids: tuple[str, ...], every: bool, as_json: bool
) -> None:
    """Send dead letters again, each with a new id: ID.r1, ID.r2 and so on.

    The new id is needed because the old one already has a reply. The request may run as
    often as at first, and its letter is removed. `batchfleet result MODEL ID.r1` waits for the
    reply. The exit code is 1 if a letter could not be sent.
    """
    if bool(ids) == every:
        raise click.UsageError("give either ids or --all")
    with changing(loaded.settings) as operator:
        names = [require_name("id", id) for id in dict.fromkeys(ids)]  # noqa: A001 - as above
        wanted = _wanted(operator, model, loaded.settings.tenant, names)
        sent, failed = _replay(operator, model, wanted)
    if as_json:
        print_json({"replayed": sent, "failed": failed})
    else:
        for one in sent:
            say(f"{one['id']} → {one['new_id']}")
    for text in failed:
        complain(text)
    if failed:
        click.get_current_context().exit(1)


def _wanted(operator: Operator, model: str, tenant: str, names: list[str]) -> list[Letter]:
    """The letters named, or the heads of all; the oldest first, as they came."""
    keys = operator.keys(model)
    if names:
        return [find_letter(operator.executor, keys, tenant, name) for name in names]
    return list(letters(operator.executor, keys))[::-1]


def _replay(
    operator: Operator, model: str, wanted: list[Letter]
) -> tuple[list[dict[str, str]], list[str]]:
    keys, executor = operator.keys(model), operator.executor
    sent: list[dict[str, str]] = []
    failed: list[str] = []
    used: set[str] = set()
    with counting_bar("replaying", len(wanted)) as advance:
        for head in wanted:
            letter = full_letter(executor, keys, head)
            try:
                new_id = replay(executor, keys, letter or head, used)
            except NotReplayableError as error:
                failed.append(str(error))
            else:
                entry = head.entry
                sent.append({"tenant": entry.tenant, "id": entry.id, "new_id": new_id})
            advance(1)
    return sent, failed


@dead.command("purge", short_help="Delete dead letters.")
@click.argument("model")
@older_than_option
@yes_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet dead purge minilm --older-than 86400",
    "batchfleet dead purge minilm --yes",
)
def purge(
    loaded: Loaded, *, model: str, older_than: float | None, yes: bool, as_json: bool
) -> None:
    """Delete the dead letters of a model, of all tenants."""
    with changing(loaded.settings) as operator:
        keys = operator.keys(model)
        count = operator.executor.run(dead_commands.count_letters(keys))
        if count:
            some = "" if older_than is None else f" older than {older_than:g} s"
            ask_first(f"delete those of {count} dead letters of {model}{some}?", yes=yes)
        removed = purge_letters(operator.executor, keys, older_than or 0)
    if as_json:
        print_json({"model": model, "removed": removed})
    else:
        say(f"{removed} of {count} dead letters deleted")
