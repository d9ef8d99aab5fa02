"""A real fleet that serves the same weights exactly and in bf16: answers, receipts, `status`."""

import json
import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.commands import batchfleet
from support.fleet import check_all_ok, running_fleet

from batchfleet.models.engines import TOLERANCE, Engine, answers_digest
from batchfleet.models.importing import MINILM_AUTO, MINILM_EXACT, import_minilm
from batchfleet.models.manifest import JUDGED
from batchfleet.models.store import Store
from batchfleet.wire.codec import MSGPACK
from batchfleet.wire.deployment import BF16, EXACT
from batchfleet.wire.tensors import decode_columns

pytestmark = pytest.mark.slow
# Kept beside the tree, since the model is large.
STORE = Path(__file__).parents[3] / ".cache" / "store"
PRECISIONS = {MINILM_EXACT: EXACT, MINILM_AUTO: BF16}
TEXTS = [" ".join(["word"] * count) + f" {count}." for count in (1, 3, 9, 20, 45, 90, 2, 4)]


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    namespace = f"t{secrets.token_hex(6)}"
    store = Store(str(STORE))
    with running_fleet(redis_server, namespace, folder, cache=str(folder / "cache")) as found:
        found.store = store
        for model, precision in PRECISIONS.items():
            record = import_minilm(store, name=model).record()
            found.deploy_record(model, replace(record, precision=precision))
        found.bring_up(ready_s=60)
        for model in PRECISIONS:
            found.wait_until_served(model)
        yield found
        found.server.unlink(*found.server.scan_iter(f"{namespace}:*", count=1000))


@pytest.fixture(scope="module")
def replies(fleet):
    """Replies to the texts by model; those of one model ran together."""
    requests = [{"text": text, "accept": MSGPACK} for text in TEXTS]
    found = {model: fleet.replies(model, fleet.submit_all(model, requests)) for model in PRECISIONS}
    check_all_ok([reply for replies in found.values() for reply in replies])
    return found


def engine_of(fleet, model):
    """What the worker announces."""
    (lanes,) = fleet.lanes(model).values()
    return Engine(lanes["1"]["engine"], lanes["1"]["precision"])


def test_bf16_answers_are_others_and_as_near_as_is_judged(replies):
    exact, half = (
        np.concatenate([decode_columns(reply.outputs)["embedding"] for reply in replies[model]])
        for model in PRECISIONS
    )
    assert np.abs(half - exact).max() > TOLERANCE
    assert (half * exact).sum(axis=1).min() >= JUDGED
    assert np.allclose(np.linalg.norm(half, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("model", PRECISIONS)
def test_a_receipt_names_version_precision_and_engine_in_one_digest(fleet, replies, model):
    lineage = fleet.store.manifest(model, "1").lineage
    engine = engine_of(fleet, model)
    assert engine.precision == PRECISIONS[model]
    digests = {reply.receipt["lineage"] for reply in replies[model]}
    assert digests == {answers_digest(lineage, PRECISIONS[model], engine)}


def test_receipts_of_the_two_differ(replies):
    exact, half = (replies[model][0].receipt["lineage"] for model in PRECISIONS)
    assert exact != half


def test_status_shows_the_engines_in_use(fleet):
    options = ("--redis-url", fleet.url, "--namespace", fleet.namespace)
    shown = batchfleet("status", *options).stdout
    told = json.loads(batchfleet("status", *options, "--json").stdout)
    for model in PRECISIONS:
        engine = engine_of(fleet, model)
        assert engine.name in shown
        (found,) = (one for one in told["models"] if one["model"] == model)
        (worker,) = found["workers"]
        assert worker["versions"]["1"]["engine"] == engine.name
