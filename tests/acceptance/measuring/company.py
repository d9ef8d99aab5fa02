"""The real model in a real device process, in batches of a chosen make-up."""

import tempfile
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from batchfleet.consumer.link.protocol import Ready
from batchfleet.models.importing import minilm_draft
from batchfleet.models.store import Store
from batchfleet.wire.codec import JSON, decode_body
from batchfleet.wire.tensors import decode_columns
from tests.support.device_process import REAL, running_device, texts

from .embedding import TOLERANCE, docstrings
from .plain_minilm import PlainMinilm
from .promise import at_most, equals
from .up import minilm, minilm_sources

_SIZES = (10, 2, 10, 1, 32, 3, 32)
_NEIGHBOURS = 7
_WIDE = {"max_batch_size": 32, "max_batch_tokens": 1_000_000}


def alone_and_in_company():
    """A text of each bucket alone, with seven short and with seven long neighbours."""
    _, folder = minilm()
    by_bucket = _by_bucket(PlainMinilm(folder))
    short, long = (
        by_bucket[edge][1 : 1 + _NEIGHBOURS] for edge in (min(by_bucket), max(by_bucket))
    )
    promises = []
    for side in ("right", "left"):
        with _loaded(side) as device:
            distances = {}
            for edge, found in by_bucket.items():
                alone = _run(device, found[:1])
                for name, neighbours in (("short", short), ("long", long)):
                    beside = _run(device, [found[0], *neighbours])
                    distances[edge, name] = float(np.abs(beside[0] - alone[0]).max())
        promises.append(
            at_most(
                f"alone, with 7 short, with 7 long, {len(by_bucket)} buckets, padded {side}: "
                "largest difference",
                max(distances.values()),
                TOLERANCE,
            )
        )
    return promises


def many_batch_sizes():
    """Batches of many sizes, one after the other, every row another text."""
    _, folder = minilm()
    judge = PlainMinilm(folder)
    rows = docstrings(judge, 64)[: sum(_SIZES)]
    right = 0
    with _loaded("right") as device:
        for at, size in enumerate(_SIZES):
            start = sum(_SIZES[:at])
            batch = rows[start : start + size]
            found = _run(device, batch)
            expected = np.stack([judge.embed(row) for row in batch])
            right += int((np.abs(found - expected).max(axis=1) <= TOLERANCE).sum())
    named = ", ".join(map(str, _SIZES))
    return [equals(f"batches of {named}: rows that got their own answer", right, sum(_SIZES))]


def _by_bucket(judge):
    """Bucket → at least eight real texts whose exact length lies in it."""
    edges = minilm_draft().limits.buckets
    found = {edge: [] for edge in edges}
    for text in docstrings(judge, edges[-1]):
        length = judge.token_count(text)
        found[next(edge for edge in edges if length <= edge)].append(text)
    assert all(len(listed) > _NEIGHBOURS for listed in found.values())
    return found


@contextmanager
def _loaded(side):
    """A device process that has loaded the model, padding at one side."""
    draft = minilm_draft()
    draft = replace(
        draft,
        parameters={**draft.parameters, "pad_side": side},
        limits=replace(draft.limits, **_WIDE),
    )
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-own-") as root,
        running_device(REAL) as device,
    ):
        ready = device.load_published(root, Store(root).publish(draft, minilm_sources()))
        assert isinstance(ready, Ready), ready
        yield device


def _run(device, rows):
    """The embeddings of these texts, run as one batch."""
    items = [device.item(texts(row)) for row in rows]
    done = device.prepare_run(items)
    assert len(done.rows) == len(rows), "they did not run as one batch"
    ends = {answer.request: answer for answer in done.answers}
    if len(ends) < len(items):
        ends |= device.ends_of([item.request for item in items if item.request not in ends])
    outputs = [decode_columns(decode_body(ends[item.request].outputs, JSON)) for item in items]
    return np.stack([output["embedding"][0] for output in outputs])
