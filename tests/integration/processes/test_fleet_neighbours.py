"""Callers of one model at the same time, on a fleet of processes: each is answered as alone."""

import json

import pytest
from support.fleet import check_all_ok, running_fleet

MODELS = """\
import numpy as np
from batchfleet import Model


class Summing(Model):
    stack = True

    def predict(self, batch, context):
        return list(batch["x"].reshape(len(batch["x"]), -1).sum(axis=1))


class Halving(Model):
    def predict(self, rows, context):
        for row in rows:
            row["x"][...] /= 2
        if len(rows) > 2:
            raise MemoryError
        return [row["x"] for row in rows]


class Popping(Model):
    def predict(self, rows, context):
        outputs = []
        while rows:
            outputs.append(rows.pop(0)["x"] / 2)
        return outputs


class Buffered(Model):
    def load(self, context):
        self.buffer = np.zeros((64, 50_000))

    def predict(self, rows, context):
        for at, row in enumerate(rows):
            self.buffer[at] = row["x"] / 2
        return self.buffer[: len(rows)]


class Polished(Buffered):
    def load(self, context):
        self.buffer = np.zeros((64, 1))

    def postprocess(self, row):
        return {"half": row}
"""


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    with running_fleet(redis_server, namespace, tmp_path, allow_code="own") as fleet:
        fleet.bring_up()
        yield fleet


def serve(fleet, kind):
    fleet.deploy_code(MODELS, "m", class_name=kind)
    fleet.wait_until_served("m")


def inputs(*values):
    """A tensor that names no datatype."""
    return json.dumps([{"name": "x", "shape": [len(values)], "data": values}])


def outputs(fleet, requests):
    """Ask all at once; the one output of each request."""
    entries = [{"text": None, "inputs": raw} for raw in requests]
    ids = fleet.submit_all("m", entries, together=True)
    replies = fleet.replies("m", ids)
    check_all_ok(replies)
    return [reply.outputs[0] for reply in replies]


def test_rows_of_other_datatypes_are_none_of_mine(fleet):
    serve(fleet, "Summing")
    requests = [inputs(1, 2), inputs(0.5, 0.7, 0.9), inputs(True), inputs(2**60 + 1)]
    expected = [
        ("INT64", [1, 2]),
        ("FP64", [0.5, 0.7, 0.9]),
        ("INT64", [1]),
        ("INT64", [2**60 + 1]),
    ]
    found = outputs(fleet, requests * 8)
    assert [(one["datatype"], one["data"]) for one in found] == expected * 8


@pytest.mark.parametrize("kind", ["Halving", "Popping", "Buffered", "Polished"])
def test_what_a_model_does_with_its_rows_and_buffers_is_its_own_business(fleet, kind):
    serve(fleet, kind)
    requests = [inputs(*(8.0 * at + part for part in range(at % 4 + 1))) for at in range(48)]
    found = outputs(fleet, requests)
    for raw, one in zip(requests, found, strict=True):
        halves = [x / 2 for x in json.loads(raw)[0]["data"]]
        width = len(one["data"]) // len(halves)
        assert one["data"] == [x for x in halves for _ in range(width)]
