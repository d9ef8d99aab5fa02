"""`batchfleet models environment`."""

from pathlib import Path

import click

from ...models.cache import default_cache
from ...models.environment_rule import LOCKED, EnvironmentRule
from ...models.environments import build_locked, python_of
from ...models.manifest import Manifest
from ...models.store import Store
from ...wire.errors import StoreError
from ._shared.finding import find_version
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import print_json, say


@click.group()
@examples(
    "batchfleet models environment build sentiment/3",
    "batchfleet models environment show sentiment/3",
)
def environment() -> None:
    """Build and inspect the Python environments that versions need.

    A version can be published with a lock file (--requirements) or the path of a virtual
    environment (--environment). A worker that does not have the environment refuses the version.
    """


@environment.command("build", short_help="Build the environment of a version on this machine.")
@click.argument("name", metavar="NAME[/VERSION]")
@with_settings("store", "cache", *LOGS)
@json_option
@examples(
    "batchfleet models environment build sentiment/3",
    "batchfleet models environment build sentiment --cache /var/cache/batchfleet",
)
def build(loaded: Loaded, *, name: str, as_json: bool) -> None:
    """Build the environment of a version on this machine, from the lock file in the version.

    Creates a virtual environment with the Python that runs this command and installs the lock file
    with `pip install --require-hashes`, wheels only. It is stored in the cache folder under the
    digest of the lock file, so versions with the same lock file share it. Run this on each machine
    whose workers serve the version, with the Python and the --cache of those workers. The lock
    file need not include batchfleet.
    """
    store, manifest = _find(loaded, name)
    if not manifest.environment.startswith(LOCKED):
        raise StoreError(
            f"{manifest.model}/{manifest.version} has no lock file: "
            + (f"its environment is {manifest.environment}" if manifest.environment else "it runs "
               "in the worker's own Python")
        )  # fmt: skip
    folder = build_locked(manifest.environment, _lock_file(store, manifest), _cache(loaded))
    if as_json:
        print_json({"environment": manifest.environment, "folder": str(folder)})
    else:
        say(f"the environment of {manifest.model}/{manifest.version} is in {folder}")


@environment.command("show", short_help="Show which Python a version would use here.")
@click.argument("name", metavar="NAME[/VERSION]")
@with_settings("store", "cache", "allow_environments", *LOGS)
@json_option
@examples("batchfleet models environment show sentiment/3")
def show(loaded: Loaded, *, name: str, as_json: bool) -> None:
    """Show which Python a version would use on this machine, or why it cannot run."""
    _, manifest = _find(loaded, name)
    python = ""
    if manifest.environment:
        version = f"{manifest.model}/{manifest.version}"
        rule = EnvironmentRule.parse(loaded.settings.allow_environments)
        python = str(python_of(manifest.environment, version, rule, _cache(loaded)))
    if as_json:
        print_json({"environment": manifest.environment, "python": python})
    else:
        say(python or "the worker's own Python")


def _find(loaded: Loaded, name: str) -> tuple[Store, Manifest]:
    cache = loaded.settings.cache
    store = Store(loaded.settings.store, Path(cache) if cache else None)
    return store, find_version(store, name)


def _cache(loaded: Loaded) -> Path:
    return Path(loaded.settings.cache) if loaded.settings.cache else default_cache()


def _lock_file(store: Store, manifest: Manifest) -> Path:
    digest = manifest.environment.removeprefix(LOCKED)
    folder = store.fetch(manifest.model, manifest.version)
    for name, entry in manifest.files.items():
        if entry.sha256 == digest:
            return folder / name
    raise StoreError(
        f"{manifest.model}/{manifest.version} does not contain the lock file {manifest.environment}"
    )
