"""Where a lane's class and files come from."""

from ...models.runtimes import resolve
from ...models.store import Store
from ..protocol import Load
from .loading import VersionFiles


def open_version(load: Load) -> VersionFiles:
    """Fetch a version from the store, check its files, and find its class.

    Raises:
        StoreError: it is missing or not what its manifest says.
    """
    store = Store(load.store)
    manifest = store.manifest(load.model, load.version)
    return VersionFiles(
        model_class=resolve(manifest.runtime),
        folder=store.fetch(load.model, load.version),
        parameters=manifest.parameters,
        lineage=manifest.lineage,
        golden=manifest.golden,
    )
