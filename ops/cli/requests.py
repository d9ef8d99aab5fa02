"""`batchfleet requests`."""

from collections.abc import Sequence
from typing import Any

import click

from ...broker import fleet
from ...wire.errors import ErrorKind, RequestError
from ...wire.names import require_name
from ...wire.states import State
from ..deployment import require_deployment
from ..open_requests import Cancelled, OpenRequest, Place, cancel, open_requests
from ..request_view import RequestView, view_request
from ._shared.answers import reply_json
from ._shared.choosing import (
    ask_first,
    limit_option,
    older_than_option,
    tenant_option,
    yes_option,
)
from ._shared.connecting import changing, connected
from ._shared.options import LOGS, Loaded, examples, json_option, settings_of, with_settings
from ._shared.output import json_text, make_table, moment, print_json, print_table, say
from ._shared.progress import counting_bar


@click.group()
@examples(
    "batchfleet requests list minilm",
    "batchfleet requests show minilm my-own-id",
    "batchfleet requests cancel minilm my-own-id",
    "batchfleet requests purge minilm --older-than 60",
)
def requests() -> None:
    """Inspect and cancel open requests.

    A request is open from the moment a router accepts it until it is answered.
    """


@requests.command("list", short_help="List the open requests of a model.")
@click.argument("model")
@tenant_option
@click.option(
    "--place", type=click.Choice([place.value for place in Place]), help="Only those in this place."
)
@limit_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet requests list minilm",
    "batchfleet requests list minilm --place parked --tenant acme",
    "batchfleet requests list minilm --limit 1000 --json",
)
def list_requests(
    loaded: Loaded,
    *,
    model: str,
    tenant: str | None,
    place: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the open requests of a model and their places, earliest deadline first.

    Places are `waiting` (in the queue of a priority and bucket), `taken` (fetched by a worker),
    `parked` (until its delay or retry pause is over) and `nowhere` (its entry is moving or was
    deleted by somebody; such a request is answered at its deadline).
    """
    with connected(loaded.settings) as operator:
        keys = operator.keys(model)
        deployment = require_deployment(model, operator.deploy_hash(model))
        found = _chosen(open_requests(operator.executor, keys, deployment), tenant)
        now_ms = operator.executor.run(fleet.server_time())
    found = [request for request in found if place in (None, request.place.value)]
    more = max(0, len(found) - limit)
    if as_json:
        print_json({"requests": [request.to_json() for request in found[:limit]], "more": more})
        return
    _print_list(found[:limit], now_ms)
    say(f"{len(found)} open requests" + (f", {more} not shown" if more else ""))


def _chosen(found: Sequence[OpenRequest], tenant: str | None) -> list[OpenRequest]:
    return [request for request in found if tenant in (None, request.tenant)]


def _print_list(found: Sequence[OpenRequest], now_ms: float) -> None:
    texts, numbers = ("id", "tenant", "version", "where"), (">age s", ">due in s", ">attempt")
    table = make_table(None, *texts, *numbers, ">attempts left")
    for request in found:
        since_ms = request.since_ms
        age = "" if since_ms is None else f"{(now_ms - since_ms) / 1000:.1f}"
        due = f"{(request.deadline_ms - now_ms) / 1000:.1f}"
        table.add_row(
            request.id,
            request.tenant,
            request.version,
            where(request),
            age,
            due,
            str(request.attempt),
            str(request.retries_left),
        )
    if found:
        print_table(table)


def where(request: OpenRequest) -> str:
    """Where an open request lies, in words."""
    if request.place is Place.WAITING:
        return f"waiting in {request.queue}"
    if request.place is Place.TAKEN:
        return f"taken by {request.worker}"
    if request.place is Place.PARKED:
        until_ms = request.until_ms
        return "parked" if until_ms is None else f"parked until {moment(until_ms)}"
    return "nowhere"


@requests.command("show", short_help="Show one request.")
@click.argument("model")
@click.argument("id", metavar="ID")
@with_settings(*settings_of("client"))
@json_option
@examples(
    "batchfleet requests show minilm my-own-id",
    "batchfleet requests show minilm my-own-id --json",
)
def show(loaded: Loaded, *, model: str, id: str, as_json: bool) -> None:  # noqa: A002 - the name of the contract
    """Show state, place, deadline, reply and journal entry of a request; removes nothing."""
    tenant = loaded.settings.tenant
    with connected(loaded.settings) as operator:
        view = view_request(operator.executor, operator.keys(model), tenant, require_name("id", id))
    if view.state is State.UNKNOWN:
        raise RequestError.of(
            ErrorKind.UNKNOWN_REQUEST,
            f"{model} has no request {id} of tenant {tenant}: it was never submitted, its reply "
            "has expired, or no router has read it yet",
        )
    if as_json:
        print_json(_view_json(view))
    else:
        say(*_view_lines(view))


def _view_json(view: RequestView) -> dict[str, Any]:
    return {
        "model": view.model,
        "tenant": view.tenant,
        "id": view.id,
        "state": view.state.value,
        "deadline_ms": view.deadline_ms,
        "open": None if view.open is None else view.open.to_json(),
        "reply": None if view.reply is None else reply_json(view.reply),
        "journal": view.journal,
    }


def _view_lines(view: RequestView) -> list[str]:
    lines = [
        f"request   {view.id} of {view.model} for {view.tenant}",
        f"state     {view.state.value}",
    ]
    if view.open is not None:
        lines.append(f"where     {where(view.open)}")
        lines.append(f"attempt   {view.open.attempt}, {view.open.retries_left} left")
    if view.deadline_ms is not None:
        lines.append(f"deadline  {moment(view.deadline_ms)}")
    if view.reply is not None:
        shown = {name: part for name, part in reply_json(view.reply).items() if name != "outputs"}
        lines.append(f"reply     {json_text(shown)}")
    if view.journal is not None:
        lines.append(f"journal   {json_text(view.journal)}")
    return lines


@requests.command("cancel", short_help="Cancel requests.")
@click.argument("model")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@with_settings(*settings_of("client"))
@json_option
@examples(
    "batchfleet requests cancel minilm my-own-id",
    "batchfleet requests cancel minilm first second third --tenant acme",
)
def cancel_requests(loaded: Loaded, *, model: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Cancel open requests: they are answered `cancelled`.

    A request that is running on a device runs to its end and its result is discarded. An unknown id
    changes nothing. The exit code is 1 if none of the requests was open.
    """
    tenant = loaded.settings.tenant
    named = [(tenant, require_name("id", id)) for id in dict.fromkeys(ids)]  # noqa: A001 - as above
    with changing(loaded.settings) as operator:
        deployment = require_deployment(model, operator.deploy_hash(model))
        outcomes = cancel(operator.executor, operator.keys(model), deployment, named)
    if as_json:
        print_json([_cancelled_json(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            say(f"{outcome.id}  {outcome_text(outcome)}")
    if not any(outcome.was_open for outcome in outcomes):
        click.get_current_context().exit(1)


def _cancelled_json(outcome: Cancelled) -> dict[str, Any]:
    return {
        "tenant": outcome.tenant,
        "id": outcome.id,
        "cancelled": outcome.was_open,
        "state": outcome.state.value,
    }


def outcome_text(outcome: Cancelled) -> str:
    """What became of a request that was to be cancelled, in words."""
    if outcome.was_open:
        return "cancelled"
    state = outcome.state
    return "unknown" if state is State.UNKNOWN else f"already ended: {state.value}"


@requests.command("purge", short_help="Cancel all open requests of a model.")
@click.argument("model")
@tenant_option
@older_than_option
@yes_option
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet requests purge minilm",
    "batchfleet requests purge minilm --tenant acme --older-than 60 --yes",
)
def purge(
    loaded: Loaded,
    *,
    model: str,
    tenant: str | None,
    older_than: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel all open requests of a model, or those chosen by the options.

    The age of a request is the time since it was queued or parked. Run
    `batchfleet pause MODEL --refuse` first if no new ones shall be accepted.
    """
    with changing(loaded.settings) as operator:
        keys = operator.keys(model)
        deployment = require_deployment(model, operator.deploy_hash(model))
        found = _chosen(open_requests(operator.executor, keys, deployment), tenant)
        latest_ms = operator.executor.run(fleet.server_time()) - 1000 * (older_than or 0)
        if older_than is not None:
            found = [request for request in found if (request.since_ms or latest_ms) < latest_ms]
        if found:
            ask_first(f"cancel {len(found)} open requests of {model}?", yes=yes)
        named = [(request.tenant, request.id) for request in found]
        with counting_bar("cancelling", len(named)) as advance:
            outcomes = cancel(operator.executor, keys, deployment, named, advance)
    cancelled = sum(outcome.was_open for outcome in outcomes)
    if as_json:
        print_json({"model": model, "cancelled": cancelled, "ended": len(named) - cancelled})
    else:
        say(f"{cancelled} cancelled, {len(named) - cancelled} had already ended")
