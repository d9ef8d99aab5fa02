"""`batchfleet up`."""

from collections.abc import Sequence
from dataclasses import replace

import click

from ...broker import fleet as fleet_commands
from ...models.store import Store
from ...service.clock import SystemClock
from ...service.descendants import adopt_orphans
from ...service.events import Events
from ...service.lifecycle import StopSignal
from ...service.settings import OWN_CODE
from ...wire.keys import ModelKeys
from ..local_fleet import LocalFleet, ProcessContext
from ..store_deployment import deploy_missing
from ._shared.connecting import changing
from ._shared.finding import require_own_store, warn_left_out
from ._shared.options import Loaded, examples, json_option, port_option, settings_of, with_settings
from ._shared.output import print_json, say


@click.command()
@with_settings(*settings_of("up"))
@port_option
@json_option
@examples(
    "batchfleet up",
    "batchfleet up --workers 2 --port 6380",
    "batchfleet up --json      print one line of JSON when ready, then keep running",
)
def up(loaded: Loaded, *, port: int | None, as_json: bool) -> None:
    """Start a whole fleet on this machine.

    Starts a private server (unless --redis-url or BATCHFLEET_REDIS_URL names one), a router and
    workers. Deploys the newest version of each model in the store that is not deployed yet.
    After startup, programs that exit are restarted. Ctrl-C stops everything; the private
    server keeps no data.
    """
    require_own_store(loaded.settings)
    stop = StopSignal()
    stop.install()
    adopt_orphans()
    process = ProcessContext(
        environ=loaded.environ, clock=SystemClock(), events=Events(), stop=stop, adopts=True
    )
    # A user who starts a fleet may run code that only this user can have written to the store.
    settings = replace(loaded.settings, allow_code=loaded.settings.allow_code or OWN_CODE)
    with LocalFleet(settings, port, process) as local:
        local.start_server()
        with changing(local.settings) as operator:
            settings = local.settings
            store, tenants = Store(settings.store), [settings.tenant]
            warn_left_out(deploy_missing(operator, store, settings.models, tenants))
            deployed = operator.executor.run(fleet_commands.models(settings.namespace))
        if local.start_programs(lambda sentence: say(sentence, err=True)):
            _announce(local, deployed, as_json=as_json)
            local.supervise()
        if not as_json:
            say("stopping …", err=True)


def _announce(local: LocalFleet, deployed: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                **local.access.to_json(),
                "namespace": local.settings.namespace,
                "models": list(deployed),
                "pids": local.pids.to_json(),
            }
        )
        return
    say(*_greeting(local, deployed))


def _greeting(local: LocalFleet, deployed: Sequence[str]) -> list[str]:
    access, pids = local.access, local.pids
    workers = ", ".join(str(pid) for pid in pids.consumers) or "none"
    lines = [
        "",
        f"The fleet {local.settings.namespace!r} is ready on {access.url}",
        f"  models    {', '.join(deployed) or 'none'}",
        f"  processes server {pids.server or 'external'}, router {pids.router}, workers {workers}",
        "",
    ]
    if not deployed:
        lines += [
            f"The store {local.settings.store} is empty. In another terminal:",
            f"  {access.export}",
            "  batchfleet models import minilm",
            "  batchfleet deploy minilm",
        ]
    else:
        lines += _how_to_try(deployed, local)
    return [*lines, "", "Ctrl-C stops everything."]


def _how_to_try(deployed: Sequence[str], local: LocalFleet) -> list[str]:
    model = "minilm" if "minilm" in deployed else deployed[0]
    keys = ModelKeys(local.settings.namespace, model)
    tenant = local.settings.tenant
    reply = keys.reply(tenant, "hello-1")
    return [
        "Try it from another terminal:",
        f"  {local.access.export}",
        f'  batchfleet infer {model} "hello world"',
        "",
        "or with redis-cli:",
        f"  {local.access.redis_cli} XADD '{keys.ingress(tenant)}' NOMKSTREAM '*' "
        """id hello-1 inputs '{"text": ["hello world"]}'""",
        f"  {local.access.redis_cli} BLMOVE '{reply}' '{reply}' LEFT LEFT 30",
    ]
