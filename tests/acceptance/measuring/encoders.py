"""MiniLM in one fleet under several names: exact, auto, the plain engine only, and others."""

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from batchfleet.models.code import RUNTIME, ModelCode
from batchfleet.models.importing import MINILM_AUTO, MINILM_EXACT, minilm_draft
from batchfleet.wire.deployment import EXACT
from tests.support.fleet import UNHURRIED, running_fleet
from tests.support.server import running_server

from .own_class import run
from .up import minilm_sources

PLAIN, BY_HAND, OLDEST_FIRST = "plain", "by-hand", "oldest-first"
READY_S = 120.0
# What an operator sets for this model who knows the CPU.
_HAND_LIMITS = {"max_batch_size": 32, "max_batch_tokens": 1024, "max_padding": 1.15}
_PLAIN_CODE = """\
from batchfleet.models.runtimes.torch_encoder import TorchEncoder


class Plain(TorchEncoder):
    def engines(self):
        return super().engines()[:1]
"""


@contextmanager
def encoder_fleet(*names):
    """A router and a worker of one thread with these models; yields the fleet and a `Judged`."""
    with encoder_store(*names) as (fleet, judged):
        fleet.bring_up(ready_s=READY_S)
        for model in names:
            fleet.wait_until_served(model)
        yield fleet, judged


@contextmanager
def encoder_store(*names):
    """The same without router and worker: the models are deployed, and nobody serves them."""
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-encoders-") as folder,
        running_server({}) as server,
        running_fleet(server, "encoders", Path(folder), **_settings(folder)) as fleet,
    ):
        for model in names:
            fleet.store.publish(*_version(model, Path(folder)))
        judged = Judged.of(fleet, names[0])
        for model in names:
            precision = judged.settled if model == MINILM_AUTO else EXACT
            record = fleet.store.manifest(model, "1").record()
            fleet.deploy_record(model, replace(record, precision=precision))
        yield fleet, judged


def _settings(folder):
    return {"threads": 1, "allow_code": "own", "cache": f"{folder}/cache", **UNHURRIED}


def _version(model, folder):
    """The draft of a model and its files."""
    sources = minilm_sources()
    if model in (MINILM_EXACT, MINILM_AUTO):
        return minilm_draft(model), sources
    draft = replace(minilm_draft(), model=model)
    if model == BY_HAND:
        return replace(draft, limits=replace(draft.limits, **_HAND_LIMITS)), sources
    if model == OLDEST_FIRST:
        return replace(draft, limits=replace(draft.limits, age_cap_ms=1)), sources
    assert model == PLAIN
    (path := folder / "model.py").write_text(_PLAIN_CODE)
    path.chmod(0o600)
    draft = replace(draft, runtime=RUNTIME, code=ModelCode(path.name, "Plain"))
    return draft, {**sources, path.name: path}


@dataclass(frozen=True, slots=True)
class Judged:
    """What `models judge` says here: what `auto` means, and which engine serves each precision."""

    settled: str
    serving: dict

    @staticmethod
    def of(fleet, model):
        options = ("--store", fleet.store.root, "--threads", "1", "--json")
        told = json.loads(run(fleet.folder, "batchfleet.ops", "models", "judge", model, *options))
        return Judged(told["settled"], told["serving"])


def engine_in_use(fleet, model):
    """The name of the engine that the worker announces."""
    (lanes,) = fleet.lanes(model).values()
    return lanes["1"]["engine"]
