"""`batchfleet up` as somebody runs it in a terminal, and the store that it serves from."""

import secrets
from contextlib import contextmanager
from dataclasses import dataclass

from batchfleet.models.importing import import_minilm
from batchfleet.models.store import Store
from benchmarks.processes import ROOT, Conversation

START_TIMEOUT_S = 240.0
# Outlives the run, since the real model is large; tests/unit/models uses the same one.
STORE = str(ROOT / ".cache" / "store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Where a fleet is reached."""

    url: str
    namespace: str


def minilm():
    """Manifest and folder of the real model, fetched where it is not there yet."""
    store = Store(STORE)
    manifest = import_minilm(store)
    return manifest, store.fetch(manifest.model, manifest.version)


def minilm_sources():
    """Files of the real model by name, as a store publishes them."""
    _, folder = minilm()
    return {path.name: path for path in folder.iterdir() if path.name != "manifest.json"}


@contextmanager
def up(*, models, workers):
    """Run `batchfleet up` in a namespace of its own until the block ends."""
    namespace = f"acceptance{secrets.token_hex(4)}"
    options = {
        "--store": STORE,
        "--models": models,
        "--workers": str(workers),
        "--namespace": namespace,
        "--log-level": "warning",
    }
    arguments = [word for option in options.items() for word in option]
    with Conversation("batchfleet.ops", "up", "--json", *arguments) as program:
        facts = program.start(START_TIMEOUT_S)
        yield Running(url=facts["redis_url"], namespace=namespace)
