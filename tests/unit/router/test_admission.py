"""Where a router places an entry whose inputs lie elsewhere, and which it refuses."""

from dataclasses import replace

import pytest

from batchfleet.router.admission import Situation, admit
from batchfleet.router.view import ModelView
from batchfleet.wire.canary import Canary
from batchfleet.wire.deployment import Deployment, Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.reply import decode_reply

KEYS = ModelKeys("ns", "m")
BUCKETS = (16, 64, 256)


def situation(**limits):
    record = VersionRecord(
        version="1", bytes_per_token=4.0, limits=Limits(buckets=BUCKETS, **limits)
    )
    deployment = Deployment(model="m", stable="1", versions={"1": record})
    view = ModelView(
        keys=KEYS, record={}, deployment=deployment, tenants=("t",), served=frozenset({"1"})
    )
    return Situation(model=view)


def admitted(fields, **limits):
    flat = [part.encode() for pair in fields.items() for part in pair]
    return admit(b"1-0", flat, "t", situation(**limits))


def refused_as(item):
    return decode_reply(item.refusal).error["name"]


@pytest.mark.parametrize(("size", "bucket"), [("60", 16), ("250", 64), ("70000", 256)])
def test_inputs_elsewhere_are_placed_by_their_size(size, bucket):
    item = admitted({"id": "a", "inputs_at": "blob", "inputs_bytes": size})
    assert item.queue == KEYS.queue("1", "normal", bucket)
    assert (item.inputs, item.inputs_at) == (b"", "blob")


def test_a_size_that_nobody_said_is_taken_for_the_largest():
    item = admitted({"id": "a", "inputs_at": "blob"}, max_request_bytes=5000)
    assert item.queue == KEYS.queue("1", "normal", BUCKETS[-1])
    assert item.fields[item.fields.index(b"inputs_bytes") + 1] == b"5000"


def test_a_length_that_was_said_goes_before_the_size():
    item = admitted({"id": "a", "inputs_at": "blob", "length": "17"})
    assert item.queue == KEYS.queue("1", "normal", 64)


def test_a_url_is_passed_on_where_the_deployment_allows_it():
    fields = {"id": "a", "inputs_at": "https://data.example/in/1"}
    item = admitted(fields, input_prefixes=("https://data.example/in/",))
    assert (item.refusal, item.inputs_at) == (b"", "https://data.example/in/1")
    assert refused_as(admitted(fields)) == "forbidden_reference"
    other = admitted(fields, input_prefixes=("https://data.example/other/",))
    assert refused_as(other) == "forbidden_reference"


def test_a_blob_that_claims_more_than_the_bound_is_refused():
    fields = {"id": "a", "inputs_at": "blob", "inputs_bytes": "101"}
    assert refused_as(admitted(fields, max_request_bytes=100)) == "too_large"


def test_a_server_that_is_nearly_full_gets_no_new_work():
    """What is accepted must be finished, and finishing needs room."""
    full = replace(situation(), memory_full=True, retry_after_ms=700)
    item = admit(b"1-0", [b"id", b"a", b"inputs", b"{}"], "t", full)
    error = decode_reply(item.refusal).error
    assert (error["name"], error["retryable"], error["retry_after_ms"]) == ("busy", True, 700)
    assert item.queue == ""


# How long the reply is kept.


@pytest.mark.parametrize(
    ("asked", "noted"), [({}, 0), ({"result_ttl_ms": "1000"}, 1000), ({"result_ttl_ms": "7"}, 0)]
)
def test_a_ttl_that_was_asked_for_is_passed_on(asked, noted):
    item = admitted({"id": "a", "inputs": "x", **asked})
    assert item.result_ttl_ms == noted
    assert bool(item.refusal) == (asked.get("result_ttl_ms") == "7"), "a refusal promises nothing"


@pytest.mark.parametrize(("version", "noted"), [("1", 0), ("2", 5000)])
def test_a_ttl_of_a_versions_own_is_passed_on_where_the_model_has_another(version, noted):
    own = VersionRecord(version="2", limits=Limits(result_ttl_ms=5000))
    known = situation()
    versions = {**known.model.deployment.versions, "2": own}
    deployment = replace(known.model.deployment, versions=versions)
    both = replace(known, model=replace(known.model, deployment=deployment))
    flat = [b"id", b"a", b"inputs", b"x", b"version", version.encode()]
    assert admit(b"1-0", flat, "t", both).result_ttl_ms == noted


# Canaries, and what a refusal counts as.


def with_canary(weight, **changes):
    known = situation()
    second = VersionRecord(version="2", limits=Limits(buckets=(512,), max_rows_per_request=3))
    deployment = replace(
        known.model.deployment,
        versions={**known.model.deployment.versions, "2": second},
        canary=Canary("2", weight, "ab12"),
    )
    return replace(known, model=replace(known.model, deployment=deployment), **changes)


def admitted_by(found, request_id, **fields):
    values = {"id": request_id, "inputs": "x", **fields}
    flat = [part.encode() for pair in values.items() for part in pair]
    return admit(b"1-0", flat, "t", found)


def test_a_canary_gets_its_share_of_requests_without_a_version():
    found = with_canary(10)
    ids = [f"request-{number}" for number in range(2000)]
    queues = [admitted_by(found, request_id).queue for request_id in ids]
    at_canary = KEYS.queue("2", "normal", 512)
    assert 160 <= queues.count(at_canary) <= 240
    assert {*queues} == {at_canary, KEYS.queue("1", "normal", 16)}
    again = [admitted_by(found, request_id).queue for request_id in ids]
    assert again == queues, "each router decides alike, and so does a repeat"


@pytest.mark.parametrize("weight", [0, 10, 100])
def test_whoever_names_a_version_gets_it_whatever_the_canary(weight):
    found = with_canary(weight)
    for version, edge in (("1", 16), ("2", 512)):
        queue = KEYS.queue(version, "normal", edge)
        assert admitted_by(found, "a", version=version).queue == queue


@pytest.mark.parametrize(
    ("fields", "changes", "counter"),
    [
        ({}, {"abandoned": frozenset({"2"})}, "2:fleet"),
        ({"version": "1"}, {"abandoned": frozenset({"1"})}, "1:fleet"),
        ({"rows": "4"}, {}, "2:caller"),
        ({"inputs_at": "https://other.example/x"}, {}, "2:caller"),
        ({"version": "3"}, {}, ""),
        ({"priority": "urgent"}, {}, ""),
        ({}, {"memory_full": True}, ""),
        ({}, {"memory_full": True, "abandoned": frozenset({"2"})}, ""),
    ],
)
def test_a_refusal_counts_for_the_version_that_it_concerns(fields, changes, counter):
    if "inputs_at" in fields:
        fields = {"id": "a", **fields}
        flat = [part.encode() for pair in fields.items() for part in pair]
        item = admit(b"1-0", flat, "t", with_canary(100, **changes))
    else:
        item = admitted_by(with_canary(100, **changes), "a", **fields)
    assert item.refusal
    assert item.counter == counter
