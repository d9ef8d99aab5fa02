"""`batchfleet dev`."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...models.manifest import Manifest
from ...service.clock import SystemClock
from ...service.events import Events
from ...service.lifecycle import StopSignal
from ...service.logs import configure_logs
from ...service.settings import Settings
from ..developing import Development, DevelopmentWorker, VersionSeries, development_settings
from ..local_fleet import LocalFleet, ProcessContext
from ._shared.connecting import connected
from ._shared.options import (
    ENVIRONMENTS,
    LOGS,
    Loaded,
    examples,
    json_option,
    port_option,
    with_settings,
)
from ._shared.output import print_json, say
from ._shared.publishing import parse_publish_options, publish_options, split_class

_POLL_S = 0.2


@click.command()
@click.argument("source", metavar="FILE.py[:CLASS]")
@publish_options
@port_option
@with_settings("namespace", "tenant", "device", "threads", "cache", *ENVIRONMENTS, *LOGS)
@json_option
@examples(
    "batchfleet dev model.py",
    "batchfleet dev model.py:Sentiment --name sentiment --port 6380",
    "batchfleet dev model.py --file weights.safetensors --limit max_batch_size=8",
)
def dev(loaded: Loaded, *, source: str, port: int | None, as_json: bool, **given: Any) -> None:
    """Serve a model from its source file; reload it on save.

    Starts a private server, a router and a worker. When you save the file, it is loaded in a new
    process, which takes over when it is ready. If it fails to load, the traceback is shown and the
    previous code keeps serving. A ValueError in preprocess means invalid input: its location is
    shown once, its traceback with --log-level debug. breakpoint() stops at this terminal, and time
    limits are off. debugpy works too; use another port after each change. Ctrl-C stops everything.
    """
    path, class_name = split_class(source)
    named = {**given, "model": given["model"] or class_name or path.stem}
    wishes = parse_publish_options(class_name, named)
    stop = StopSignal()
    stop.install()
    with tempfile.TemporaryDirectory(prefix="batchfleet-dev-") as store:
        settings = development_settings(_quiet(loaded), store, wishes.environment)
        process = ProcessContext(
            environ=loaded.environ, clock=SystemClock(), events=Events(), stop=stop
        )
        series = VersionSeries(path, wishes, settings)
        with LocalFleet(settings, port, process) as local:
            local.start_server()
            _serve(local, series, process, path.resolve().parent, as_json=as_json)


def _quiet(loaded: Loaded) -> Settings:
    """The developer's own errors are what this terminal is for, unless more was asked for."""
    if loaded.origins["log_level"] != "default":
        return loaded.settings
    configure_logs("warning", loaded.settings.log_format)
    return replace(loaded.settings, log_level="warning")


def _serve(
    local: LocalFleet,
    series: VersionSeries,
    process: ProcessContext,
    sources: Path,
    *,
    as_json: bool,
) -> None:
    with connected(local.settings) as operator:
        development = Development(local, operator, series, process.clock, _report)
        first = development.begin()
        worker = DevelopmentWorker(local.settings, process, sources)
        worker.start()
        try:
            if local.start_programs():
                _print_address(local, first, as_json=as_json)
            while not process.stop.wait(_POLL_S):
                development.poll()
        finally:
            process.stop.set()
            worker.join()


def _report(sentence: str) -> None:
    say(*sentence.split("\n"), err=True)


def _suggestions(manifest: Manifest) -> list[str]:
    """Commands that ask the model for something that it takes, as far as its signature tells."""
    model, inputs = manifest.model, manifest.signature.inputs
    if inputs and [(spec.name, spec.datatype) for spec in inputs] != [("text", "BYTES")]:
        named = ", ".join(f'"{spec.name}": {spec.datatype} {list(spec.shape)}' for spec in inputs)
        return [f"  batchfleet infer {model} --input x.json      # {{{named}}}"]
    return [
        f'  batchfleet infer {model} "hello world"',
        "  python -c 'from batchfleet import Client; "
        f"""print(Client().infer("{model}", "hi").outputs)'""",
    ]


def _print_address(local: LocalFleet, manifest: Manifest, *, as_json: bool) -> None:
    model = manifest.model
    if as_json:
        print_json(
            {**local.access.to_json(), "model": model, "namespace": local.settings.namespace}
        )
        return
    say(
        "",
        f"serving {model} from {manifest.code.source if manifest.code else ''}; save to reload",
        f"  {local.access.export}",
        *_suggestions(manifest),
        "Ctrl-C stops everything.",
    )
