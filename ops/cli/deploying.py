"""`batchfleet deploy` and `batchfleet undeploy`."""

from dataclasses import asdict
from functools import partial

import click

from ...broker import membership
from ...models.store import Store
from ...service.clock import SystemClock
from ...service.lifecycle import StopSignal
from .. import deployment
from ..deployment import Deployed, parse_overrides
from ..following import Following
from ..store_deployment import deploy_version, keep_copy, remove_copy
from ..verdict import Verdict, await_verdict, read_verdict
from .connecting import changing
from .finding import find_version
from .following import follow, programs_json, report_following, wait_option
from .options import LOGS, Loaded, examples, json_option, seconds, with_settings
from .output import print_json, say

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


@click.group(cls=DeployGroup, subcommand_metavar="MODEL[/VERSION] | set MODEL KEY=VALUE…")
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy set minilm backlog=500 max_batch_delay_ms=5",
    "batchfleet deploy set minilm backlog=           takes the override back",
)
def deploy() -> None:
    """Put a model version in service.

    The newest version in the store where none is named. The version becomes the stable one: every
    request that names no version gets it. Running it again is harmless.
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
    help="How long to wait for a worker to serve it; 0 = not at all.",
)
@with_settings("redis_url", "namespace", "tenant", "store", *LOGS)
@json_option
@examples(
    "batchfleet deploy minilm",
    "batchfleet deploy minilm/1 --tenant acme",
    "batchfleet deploy minilm/2 --wait 120",
)
def deploy_one(loaded: Loaded, *, name: str, wait_s: float, as_json: bool) -> None:
    """Put a model version in service, for one tenant at a time.

    Where workers are alive, it waits a moment for one of them to serve the version. If all refuse
    it, their reasons are told and the exit code is 1; the version stays deployed all the same, and
    deploying the one before goes back. Exit code 1 as well where a router or worker that is alive
    does not follow.
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
    _report(done, f"{model}/{version} is in service", found, as_json=as_json)
    if verdict.is_open:
        say("no worker serves it yet; `batchfleet status` shows how far they are", err=True)
    report_following(found, wait_s)


@deploy.command("set", short_help="Override limits of a deployed model.")
@click.argument("model")
@click.argument("assignments", metavar="KEY=VALUE…", nargs=-1, required=True)
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
    """Override limits of a deployed model; `KEY=` takes an override back.

    They hold once the command returns: all routers and workers that are alive follow by then.
    Where one does not within --wait, it is named, and the exit code is 1; they hold all the same.
    Buckets that are taken away drain first.
    `batchfleet settings --model MODEL` lists the limits with their meaning.
    """
    changes = parse_overrides(assignments)
    with changing(loaded.settings) as operator:
        done = deployment.override(operator, model, changes)
        kept = keep_copy(operator, Store(loaded.settings.store), model)
        found = follow(operator, model, wait_s)
    if not kept:
        say(f"no copy was kept: {loaded.settings.store} has no model {model}", err=True)
    _report(done, f"limits of {done.model} are set", found, as_json=as_json)
    report_following(found, wait_s)


def _report(done: Deployed, sentence: str, found: Following, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done) | programs_json(found))
    else:
        say(f"{sentence} (epoch {done.epoch})")


@click.command()
@click.argument("model")
@click.option("--force", is_flag=True, help="Even if requests are open; they are forgotten.")
@wait_option
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet undeploy minilm",
    "batchfleet undeploy minilm --force",
)
def undeploy(loaded: Loaded, *, model: str, force: bool, wait_s: float, as_json: bool) -> None:
    """Take a model out of service.

    Its streams go away, so that callers learn at once that it is not there; kept replies stay until
    their time is over. Versions stay in the store. Once the command returns, all routers and
    workers that are alive have let go of the model; where one has not within --wait, it is named,
    and the exit code is 1.
    """
    with changing(loaded.settings) as operator:
        workers = operator.executor.run(membership.living(operator.keys(model)))
        forgotten = deployment.undeploy(operator, model, forced=force)
        remove_copy(Store(loaded.settings.store), model)
        found = follow(operator, model, wait_s, workers)
    if as_json:
        left = {"model": model, "forgotten_requests": forgotten}
        print_json(left | programs_json(found))
    else:
        say(f"{model} is out of service; {forgotten} open requests were forgotten")
    report_following(found, wait_s)
