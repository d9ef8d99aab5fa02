"""Removing a version from a store."""

import secrets
import shutil

from ..wire.errors import StoreError
from ..wire.names import require_name
from .files import MANIFEST_NAME
from .listing import inside
from .store import Store, storage


def remove_version(store: Store, model: str, version: str) -> None:
    """Remove a version and its files; a link in its place goes, and what it leads to stays.

    Whoever has the files open keeps them. In a folder of this machine, the version goes at once or
    not at all; elsewhere its manifest goes first, without which it is none.

    Raises:
        StoreError: there is no such version, or the storage refused.
    """
    name = f"{require_name('model', model)}/{require_name('version', version)}"
    if not store.has(model, version):
        raise StoreError(f"store {store.root} has no version {name}")
    folder = store.version_folder(model, version)
    files, root = store.place
    with storage(f"cannot remove {name}"):
        if folder is None:
            files.rm_file(f"{root}/{name}/{MANIFEST_NAME}")
            files.rm(f"{root}/{name}", recursive=True)
            return
        # A link to a folder elsewhere would have us move what is not ours.
        home = inside(folder.parents[1], folder.parent)
        scratch = home / f".removed-{secrets.token_hex(8)}"
        (home / version).rename(scratch)
        if scratch.is_symlink():
            scratch.unlink()
        else:
            shutil.rmtree(scratch)
