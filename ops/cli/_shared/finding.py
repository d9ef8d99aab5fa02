"""Versions of the store as commands name them, and what they say of those that cannot be used."""

from collections.abc import Iterable

from ....models.listing import LeftOut
from ....models.manifest import Manifest
from ....models.store import Store
from ....service.settings import Settings
from ....wire.errors import StoreError
from .options import split_version
from .output import warn


def find_version(store: Store, name: str) -> Manifest:
    """The version that is named `MODEL/VERSION`, or the newest of `MODEL` that can be used.

    Raises:
        StoreError: there is none.
    """
    model, version = split_version(name)
    if version is not None:
        return store.manifest(model, version)
    newest = store.newest(model)
    warn_left_out(newest.left_out)
    return newest.manifest


def require_own_store(settings: Settings) -> None:
    """Check that only this user can write to the store, or that it is allowed as shared.

    Raises:
        StoreError: others may write to it; the text says which folder, its mode and the remedy.
    """
    why = "" if settings.shares_store else Store(settings.store).why_not_ours()
    if why:
        raise StoreError(
            f"{why}; to use a store that others can write to, allow its path with "
            f"--shared-store {settings.store}"
        )


def warn_left_out(left_out: Iterable[LeftOut]) -> None:
    """Warn about what of the store cannot be used, and why."""
    for one in left_out:
        warn(f"store: {one}")
