"""`batchfleet deploy`."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from ...models.store import Store
from ...wire.deployment import PRECISIONS, Deployment, VersionRecord
from ...wire.numbers import Range
from .. import deployment
from ..deployment import Operator
from ..model_limits import parse_overrides
from ..precision import settle
from ..store_deployment import keep_copy
from ..taking_over import STRATEGIES, Takeover, Terms
from ..trying import judge_precision
from ._shared.connecting import changing
from ._shared.finding import find_version
from ._shared.following import (
    FOLLOW_S,
    drain_option,
    follow,
    print_change,
    programs_json,
    report_following,
    wait_option,
)
from ._shared.options import (
    ENVIRONMENTS,
    LOGS,
    BoundedNumber,
    Loaded,
    examples,
    json_option,
    seconds,
    with_settings,
)
from ._shared.output import print_json, say, warn
from ._shared.waiting import progress_line
from .deploy_restore import restore_lost

_VERSION_COMMAND = "MODEL[/VERSION]"
_WAIT_S = 120.0
_KEEP = 2


class DeployGroup(click.Group):
    """A group whose first argument may also be the model to deploy.

    The command that deploys bears a name that no model can have, so that only a model called like
    another command of the group (`set`) is out of reach.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the deploying command where the first argument names none."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_VERSION_COMMAND, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=DeployGroup, subcommand_metavar="MODEL[/VERSION] | set MODEL LIMIT=VALUE… | restore"
)
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy set minilm backlog=500 max_batch_delay_ms=5",
    "batchfleet deploy set minilm backlog=           remove the override",
    "batchfleet deploy restore                       after the server has lost its data",
)
def deploy() -> None:
    """Put a model version in service.

    Without VERSION, deploy the newest version in the store. Once workers have loaded it, it becomes
    the active one: it serves all requests that name no version. Deploying the same version again is
    safe. For the options, run `batchfleet deploy MODEL --help`.
    """


deploy.add_command(restore_lost)


@deploy.command(_VERSION_COMMAND, short_help="Put this version in service.")
@click.argument("name", metavar="")
@click.option(
    "--wait",
    "wait_s",
    type=seconds(0, 86_400),
    default=_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long workers may take to load it; 0 = as --now, without waiting for anything.",
)
@click.option(
    "--min-ready",
    type=BoundedNumber(Range(1, 10_000)),
    metavar="WORKERS",
    help="How many workers have to be ready before it takes over.  [default: as many as serve the "
    "active version, except those that refuse this one]",
)
@drain_option("How long the version before may take to answer what it has, before it is unloaded.")
@click.option(
    "--keep",
    type=BoundedNumber(Range(0, 1000)),
    default=_KEEP,
    show_default=True,
    metavar="VERSIONS",
    help="How many earlier versions are kept for going back: not loaded, but known.",
)
@click.option("--warm", is_flag=True, help="Leave the version before loaded, to go back at once.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="Load it beside the active version on all workers, or worker by worker, each of which "
    "unloads the active version first.  [default: beside, where memory suffices]",
)
@click.option(
    "--now",
    is_flag=True,
    help="Let it take over before any worker has loaded it; requests wait meanwhile. Versions "
    "before stay loaded.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Precision of a version published with auto.  [default: as deployed before, else as "
    "measured here]",
)
@with_settings(
    *("redis_url", "namespace", "tenant", "store", "device", "threads", "allow_code", "cache"),
    *ENVIRONMENTS,
    *LOGS,
)
@json_option
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy minilm/2 --wait 600 --warm",
    "batchfleet deploy minilm/2 --strategy worker-by-worker",
    "batchfleet deploy minilm/1 --now",
)
def deploy_one(loaded: Loaded, *, name: str, precision: str | None, **given: Any) -> None:
    """Put a model version in service.

    Without VERSION, deploy the newest version in the store. Workers load it while the active
    version goes on serving. When enough of them are ready, it takes over: it serves all requests
    that name no version, also those that wait. The version before answers what workers hold, and
    requests that name it, and is then unloaded; its record is kept. To roll back, deploy it again.

    If the workers refuse the version, or too few are ready after --wait, everything stays as it
    was, the reasons are printed, and the exit code is 1. The exit code is also 1 if a live router
    or worker does not read the new deploy record within 10 s, or requests are left for the version
    before after --drain: then the new version is active all the same. If nothing of the model is
    deployed yet, or no worker is running, there is nothing to wait for, and it takes over at once.

    Also create the request stream of the tenant (--tenant); other tenants keep theirs. A version
    published with precision auto is measured on this machine when it is first deployed, as
    `batchfleet models judge` does. Its precision then stays until you name another one.
    """
    store = Store(loaded.settings.store)
    manifest = find_version(store, name)
    with changing(loaded.settings) as operator:
        deployed = Deployment.from_hash(manifest.model, operator.deploy_hash(manifest.model))
        judge = partial(judge_precision, manifest, loaded.settings, loaded.environ)
        record = settle(manifest, deployed, precision or "", judge)
        _take_over(operator, store, manifest.model, record, _terms(loaded, given), given)


def _terms(loaded: Loaded, given: Mapping[str, Any]) -> Terms:
    return Terms(
        tenants=(loaded.settings.tenant,),
        wait_ms=1000 * given["wait_s"],
        drain_ms=1000 * given["drain_s"],
        min_ready=given["min_ready"] or 0,
        keep=given["keep"],
        is_warm=given["warm"],
        is_now=given["now"] or not given["wait_s"],
        strategy=given["strategy"] or "",
    )


def _take_over(
    operator: Operator,
    store: Store,
    model: str,
    record: VersionRecord,
    terms: Terms,
    given: Mapping[str, Any],
) -> None:
    """Put a version in service, have all programs follow, and withdraw the versions before."""
    name = f"{model}/{record.version}"
    with progress_line(f"deploying {name}") as waiting:
        takeover = Takeover(operator, model, record, terms, waiting)
        done = takeover.run()
    keep_copy(operator, store, model)
    found = follow(operator, model, min(given["wait_s"], FOLLOW_S))
    with progress_line(f"withdrawing the versions before {name}") as waiting:
        cleared = takeover.clear(waiting)
    if cleared.withdrawn:
        keep_copy(operator, store, model)
    if given["as_json"]:
        print_json(asdict(done) | programs_json(found) | {"withdrawn": cleared.withdrawn})
    else:
        say(f"{name} is in service (epoch {done.epoch})")
    if not takeover.has_waited:
        say(f"no worker serves {model}: it took over at once", err=True)
    elif takeover.verdict.is_open:
        say("no worker is ready to serve it yet; see `batchfleet status`", err=True)
    for worker, why in sorted(takeover.verdict.refused.items()):
        warn(f"worker {worker} refuses {name}: {why}")
    report_following(found, min(given["wait_s"], FOLLOW_S))
    cleared.require_cleared(model)


@deploy.command("set", short_help="Override limits of a deployed model.")
@click.argument("model")
@click.argument("assignments", metavar="LIMIT=VALUE…", nargs=-1, required=True)
@wait_option
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet deploy set minilm backlog=500 max_batch_delay_ms=5",
    "batchfleet deploy set minilm buckets=16,32,64,128,256",
    "batchfleet deploy set minilm backlog=",
)
def deploy_set(
    loaded: Loaded, *, model: str, assignments: tuple[str, ...], wait_s: float, as_json: bool
) -> None:
    """Override limits of a deployed model; `LIMIT=` removes an override.

    The command returns when all live routers and workers follow the change. If one does not within
    --wait, it is named and the exit code is 1; the change stays active. Buckets that you remove are
    drained first. `batchfleet settings --model MODEL` lists the limits and their meaning.
    """
    changes = parse_overrides(assignments)
    with changing(loaded.settings) as operator:
        done = deployment.override(operator, model, changes)
        kept = keep_copy(operator, Store(loaded.settings.store), model)
        found = follow(operator, model, wait_s)
    if not kept:
        say(f"no copy was written: {loaded.settings.store} has no model {model}", err=True)
    print_change(done, f"limits of {done.model} are set", found, as_json=as_json)
    report_following(found, wait_s)
