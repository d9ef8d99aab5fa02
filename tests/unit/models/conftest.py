import os
from pathlib import Path

import numpy as np
import pytest

from batchfleet.models.importing import import_minilm
from batchfleet.models.model import LoadContext, PredictContext
from batchfleet.models.store import Store
from batchfleet.wire.deployment import Limits
from batchfleet.wire.signature import Signature

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def shared_store():
    """A store that outlives the run, since the real model is large."""
    return Store(os.environ.get("BATCHFLEET_TEST_STORE", str(ROOT / ".cache" / "store")))


@pytest.fixture(scope="session")
def minilm(shared_store):
    manifest = import_minilm(shared_store)
    return manifest, shared_store.fetch(manifest.model, manifest.version)


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "root"), tmp_path / "cache")


@pytest.fixture
def weights(tmp_path):
    """One small file to publish."""
    path = tmp_path / "weights.bin"
    path.write_bytes(np.arange(1000, dtype=np.uint8).tobytes())
    return path


@pytest.fixture
def load():
    """Make a model of a class and load it, as a device process does."""

    def load(model_class, parameters=None, limits=None, folder=Path()):
        model = model_class()
        model.load(
            LoadContext(
                model="m",
                version="1",
                device="cpu",
                threads=1,
                seed=0,
                parameters=parameters or {},
                signature=Signature(),
                limits=limits or Limits(),
                folder=folder,
            )
        )
        return model

    return load


@pytest.fixture
def batch():
    """The context of a batch of rows of these lengths."""

    def batch(*lengths):
        return PredictContext(lengths=lengths, parameters={}, device="cpu", batch=0)

    return batch
