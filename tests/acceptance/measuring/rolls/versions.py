"""Versions of a model that differ in what a roll has to notice, each a file of its author's.

Those of `stub` count tokens and occupy a device as `device_stub` does; every answer holds a digest
of the version's name and the row, so that a reply under a wrong name is found.
"""

from dataclasses import dataclass, field
from pathlib import Path

STUB = """\
import time

import numpy as np
from batchfleet.models.runtimes.device_stub import DeviceStub

MANIFEST = {manifest!r}


class Version(DeviceStub):
    def load(self, context):
        {load}
        super().load(context)

    def predict(self, rows, context):
        {predict}
        return super().predict(rows, context)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stub:
    """One version: what it costs to load and to run, and what else it does.

    Attributes:
        base_ms: of each batch, however many rows it has.
        row_ms: of each row of it.
        batch: rows that a batch may have.
        load_s: how long it sleeps while it loads.
        load, predict: statements of its author's.
        holds_mb: of memory, once loaded.
    """

    base_ms: float = 1.0
    row_ms: float = 0.0
    batch: int = 8
    load_s: float = 0.0
    load: str = "pass"
    predict: str = "pass"
    holds_mb: int = 0
    manifest: dict = field(default_factory=dict)

    @property
    def source(self):
        """The text of its file."""
        steps = [f"time.sleep({self.load_s})", self.load]
        if self.holds_mb:
            steps.append(f"self.held = np.ones({self.holds_mb} << 20, np.uint8)")
        manifest = {
            "parameters": {"base_ms": self.base_ms, "per_token_ms": self.row_ms},
            "limits": {"max_batch_size": self.batch, "timeout_ms": 60_000, "backlog": 10_000},
            **self.manifest,
        }
        return STUB.format(manifest=manifest, load="; ".join(steps), predict=self.predict)


def publish(fleet, name, stub):
    """Publish one version as `model/version`; returns the folder of its files."""
    model, version = name.split("/")
    fleet.publish_code(stub.source, model, version, class_name="Version")
    return Path(fleet.store.root) / model / version
