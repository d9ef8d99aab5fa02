"""Where a version's class and files come from."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...models.agreement import disagreement
from ...models.cache import default_cache
from ...models.code import code_files
from ...models.code_loading import CodePlace, load_class
from ...models.code_rule import CodeRule, check_allowed
from ...models.files import MANIFEST_NAME
from ...models.manifest import Manifest
from ...models.measurements import measurements_of
from ...models.model import Model
from ...models.runtimes import resolve
from ...models.store import Store
from ...service.ownership import why_not_ours
from ...wire.deployment import VersionRecord
from ...wire.errors import StoreError
from ..link.protocol import Load
from .load_pace import LoadPace
from .opened import Opener, OpeningOptions, VersionFiles

# Files of a version that are read in no time; to give way to others would take longer.
_LIGHT_BYTES = 8 * 1024 * 1024


def store_opener(options: OpeningOptions) -> Opener:
    """An opener of versions in stores that runs users' code as far as `options` allow."""

    def open_version(load: Load, pace: LoadPace) -> VersionFiles:
        return _open(load, options, pace)

    return open_version


def _open(load: Load, options: OpeningOptions, pace: LoadPace) -> VersionFiles:
    """Fetch a version, check its files, and import its class.

    Users' code is imported on this thread, which will run it, and at its own time: it may set what
    a library reads when it is imported.

    Raises:
        StoreError: it is missing, not what its manifest says or what was deployed, or its code
            must not run here.
    """
    store = Store(load.store, options.cache)
    manifest = store.manifest(load.model, load.version)
    if options.own_store and (why := store.why_not_ours(load.model, load.version)):
        raise StoreError(f"{why}; `shared_store` can allow a store by its path")
    if why := disagreement(VersionRecord.from_wire(load.record, {}), manifest):
        raise StoreError(why)
    size_bytes = sum(entry.size_bytes for entry in manifest.files.values())
    fetch = partial(_fetch, store, manifest)
    folder = pace.aside(fetch) if size_bytes > _LIGHT_BYTES else fetch()
    return VersionFiles(
        model_class=_class_of(store, manifest, folder, options),
        folder=folder,
        parameters=manifest.parameters,
        lineage=manifest.lineage,
        size_bytes=size_bytes,
        golden=manifest.golden,
        measurements=measurements_of(manifest, options.cache),
    )


def _fetch(store: Store, manifest: Manifest) -> Path:
    """The folder of a version's checked files; its runtime is imported, where it has one.

    Raises:
        StoreError: as of `_open`.
    """
    folder = store.fetch_files(manifest)
    if manifest.code is None:
        resolve(manifest.runtime)
    return folder


def _class_of(
    store: Store, manifest: Manifest, folder: Path, options: OpeningOptions
) -> type[Model]:
    if manifest.code is None:
        return resolve(manifest.runtime)
    check_allowed(CodeRule.parse(options.allow_code), manifest, _why_code_not_ours(store, manifest))
    cache = options.cache or default_cache()
    return load_class(manifest, CodePlace(folder=folder, cache=cache, shown_as=options.sources))


def _why_code_not_ours(store: Store, manifest: Manifest) -> str:
    folder = store.version_folder(manifest.model, manifest.version)
    if folder is None:
        return f"the store {store.root} is not a folder of this machine"
    return why_not_ours(_written_to_run(folder, manifest))


def _written_to_run(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """The files that choose what runs."""
    yield folder / MANIFEST_NAME
    yield from (folder / name for name in code_files(manifest.files))
