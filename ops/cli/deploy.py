"""`batchfleet deploy`."""

from functools import partial

import click

from ...models.store import Store
from ...service.clock import SystemClock
from ...service.lifecycle import StopSignal
from .. import deployment
from ..deployment import parse_overrides
from ..store_deployment import deploy_version, keep_copy
from ..verdict import Verdict, await_verdict, read_verdict
from ._shared.connecting import changing
from ._shared.finding import find_version
from ._shared.following import follow, print_change, report_following, wait_option
from ._shared.options import LOGS, Loaded, examples, json_option, seconds, with_settings
from ._shared.output import say

_VERSION_COMMAND = "MODEL[/VERSION]"
_WAIT_S = 5.0


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


@click.group(cls=DeployGroup, subcommand_metavar="MODEL[/VERSION] | set MODEL LIMIT=VALUE…")
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy set minilm backlog=500 max_batch_delay_ms=5",
    "batchfleet deploy set minilm backlog=           remove the override",
)
def deploy() -> None:
    """Put a model version in service.

    Without VERSION, deploy the newest version in the store. The deployed version becomes the
    active one: it serves all requests that name no version. Deploying the same version again is
    safe. For the options, run `batchfleet deploy MODEL --help`.
    """


@deploy.command(_VERSION_COMMAND, short_help="Put this version in service.")
@click.argument("name", metavar="")
@click.option(
    "--wait",
    "wait_s",
    type=seconds(0, 3600),
    default=_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a worker to be ready, and then for all routers and workers to read "
    "the change; 0 = do not wait.",
)
@with_settings("redis_url", "namespace", "tenant", "store", *LOGS)
@json_option
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy minilm/2 --wait 120",
)
def deploy_one(loaded: Loaded, *, name: str, wait_s: float, as_json: bool) -> None:
    """Put a model version in service.

    Without VERSION, deploy the newest version in the store. Also create the request stream of the
    tenant (--tenant); other tenants keep theirs. The command waits until a worker is ready to serve
    the version; if none is ready after --wait, it says so and stops waiting, which is no error. If
    all workers refuse it, their reasons are printed and the exit code is 1; the version stays
    active. To roll back, deploy the previous version. The exit code is also 1 if a live router or
    worker has not read the new deploy record in time.
    """
    store = Store(loaded.settings.store)
    manifest = find_version(store, name)
    model, version = manifest.model, manifest.version
    with changing(loaded.settings) as operator:
        read = partial(read_verdict, operator, model, version)
        before = read()
        done = deploy_version(operator, store, manifest, [loaded.settings.tenant])
        verdict = Verdict()
        if wait_s:
            pause = StopSignal().wait
            verdict = await_verdict(read, before, wait_s * 1000, SystemClock(), pause)
        verdict.raise_if_all_refuse(model, version)
        found = follow(operator, model, wait_s)
    print_change(done, f"{model}/{version} is in service", found, as_json=as_json)
    if verdict.is_open:
        say("no worker is ready to serve it yet; see `batchfleet status`", err=True)
    report_following(found, wait_s)


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
