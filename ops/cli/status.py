"""`batchfleet status`."""

from collections.abc import Iterator

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...service.lifecycle import StopSignal
from ...wire.texts import terminal_text
from ..deployment import Operator
from ..survey import FleetStatus, ModelStatus, VersionStatus, survey
from ._shared.connecting import connected
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import console, make_table, print_json

_WATCH_S = 1.0
_MEBIBYTE = 1024 * 1024
_ALL = 100.0
_PAUSED = {"hold": "requests wait, workers fetch nothing", "refuse": "new requests are refused"}


@click.command()
@with_settings("redis_url", "namespace", *LOGS)
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@json_option
@examples(
    "batchfleet status",
    "batchfleet status --watch",
    "batchfleet status --json",
)
def status(loaded: Loaded, *, watch: bool, as_json: bool) -> None:
    """Show models, queues, workers and problems."""
    with connected(loaded.settings) as operator:
        if watch:
            _watch(operator)
            return
        found = survey(operator.executor, operator.namespace)
    if as_json:
        print_json(found.to_json())
    else:
        console().print(render(found))


def _watch(operator: Operator) -> None:
    stop = StopSignal()
    stop.install()
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            found = survey(operator.executor, operator.namespace)
            live.update(render(found), refresh=True)
            if stop.wait(_WATCH_S):
                return


def render(found: FleetStatus) -> RenderableType:
    """The fleet for people."""
    limit = f" of {found.memory_bytes_max // _MEBIBYTE}" if found.memory_bytes_max else ""
    head = (
        f"fleet {found.namespace}   server {found.server_version}   "
        f"memory {found.memory_bytes // _MEBIBYTE}{limit} MiB   routers {len(found.routers)}"
    )
    if not found.models:
        hint = "no model is deployed; run `batchfleet deploy MODEL`"
        return Group(_line(head), Text(hint))
    tables = [_versions_table(found), _workers_table(found)]
    return Group(_line(head), *tables, *(_line(line) for line in _complaints(found)))


def _line(text: str) -> Text:
    return Text(terminal_text(text))


def _versions_table(found: FleetStatus) -> Table:
    table = make_table(
        "models",
        "model",
        "version",
        ">epoch",
        "intake",
        ">open",
        ">ready workers",
        ">answered",
        ">errors",
        ">p50 / p99",
        "entries by bucket",
    )
    for model in found.models:
        for version in model.versions:
            entries = "  ".join(f"{edge}: {count}" for edge, count in version.entries.items())
            table.add_row(
                model.model,
                f"{version.version} ({_role(version)})",
                str(model.epoch),
                model.intake,
                str(model.open_requests),
                str(version.ready_workers),
                str(version.answered),
                str(version.errors),
                _latency(version),
                entries,
            )
        for name in model.kept:
            table.add_row(model.model, f"{name} (kept)", *[""] * 8)
    return table


def _role(version: VersionStatus) -> str:
    if version.stable:
        return "stable" if version.share == _ALL else f"stable, {version.share:g} %"
    return f"canary, {version.share:g} %" if version.share else "offered"


def _latency(version: VersionStatus) -> str:
    if version.p50_ms is None or version.p99_ms is None:
        return ""
    return f"{version.p50_ms:.3g} / {version.p99_ms:.3g} ms"


def _workers_table(found: FleetStatus) -> Table:
    table = make_table("workers", "model", "worker", "versions", "announced")
    for model in found.models:
        for worker in model.workers:
            versions = "  ".join(
                f"{name}: {worker.state_of(name)}{worker.engine_of(name)}{worker.rows_of(name)}"
                for name in worker.versions
            )
            facts = "  ".join(f"{name} {value}" for name, value in worker.facts.items() if value)
            table.add_row(model.model, worker.name, versions, facts)
    return table


def _complaints(found: FleetStatus) -> Iterator[str]:
    if not found.routers:
        yield "no router is running; requests wait until one starts"
    for model in found.models:
        if model.fault:
            yield f"{model.model} cannot be served: {model.fault}"
        if model.intake in _PAUSED:
            yield f"{model.model} is paused: {_PAUSED[model.intake]}; `batchfleet resume` ends it"
        yield from _refusals(model)
        for worker in model.workers:
            if worker.stalled:
                yield f"{model.model} on {worker.name}: stalled: {worker.stalled}"
        for version in model.versions:
            if version.stable and not version.ready_workers:
                yield f"{model.model}/{version.version}: no worker serves it"


def _refusals(model: ModelStatus) -> Iterator[str]:
    for worker in model.workers:
        for version, said in worker.versions.items():
            if said.get("reason"):
                yield f"{model.model}/{version} on {worker.name}: {said['state']}: {said['reason']}"
