"""`batchfleet undeploy`."""

import click

from ...broker import membership
from ...models.store import Store
from .. import deployment
from ..clearing import Place, withdraw_version
from ..deployment import Operator
from ..store_deployment import keep_copy, remove_copy
from ._shared.connecting import changing
from ._shared.following import (
    drain_option,
    follow,
    programs_json,
    report_following,
    wait_option,
)
from ._shared.options import (
    LOGS,
    Loaded,
    examples,
    json_option,
    split_version,
    with_settings,
)
from ._shared.output import print_json, say
from ._shared.waiting import progress_line


@click.command()
@click.argument("name", metavar="MODEL[/VERSION]")
@click.option("--force", is_flag=True, help="Undeploy even if requests are open; they are dropped.")
@drain_option("How long a VERSION may take to answer what it has.")
@wait_option
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet undeploy minilm",
    "batchfleet undeploy minilm --force",
    "batchfleet undeploy minilm/1",
)
def undeploy(
    loaded: Loaded, *, name: str, force: bool, drain_s: float, wait_s: float, as_json: bool
) -> None:
    """Take a model, or one version of it, out of service.

    The streams of a MODEL are deleted, so new requests fail at once. Replies are kept until they
    expire, and versions stay in the store. A VERSION that is not the active one answers what it has
    first, and is then unloaded; it is not kept for going back either. New requests that name it
    fail at once.

    The command returns when all live routers and workers have dropped what is out of service. If
    one has not within --wait, it is named and the exit code is 1.
    """
    model, version = split_version(name)
    store = Store(loaded.settings.store)
    with changing(loaded.settings) as operator:
        workers = operator.executor.run(membership.living(operator.keys(model)))
        if version is None:
            dropped = deployment.undeploy(operator, model, forced=force)
            remove_copy(store, model)
        else:
            dropped = _withdraw(operator, model, version, force=force, drain_s=drain_s)
            keep_copy(operator, store, model)
        found = follow(operator, model, wait_s, workers)
    if as_json:
        of_version = {} if version is None else {"version": version}
        left = {"model": model, **of_version, "forgotten_requests": dropped}
        print_json(left | programs_json(found))
    else:
        say(f"{name} is out of service; {dropped} open requests were dropped")
    report_following(found, wait_s)


def _withdraw(operator: Operator, model: str, version: str, *, force: bool, drain_s: float) -> int:
    with progress_line(f"withdrawing {model}/{version}") as waiting:
        place = Place(operator, model, waiting)
        return withdraw_version(place, version, drain_ms=1000 * drain_s, forced=force)
