"""Which versions a router counts as served."""

import orjson

from batchfleet.router.view import FleetView, ModelView, UnservedWatch, served_versions
from batchfleet.wire.deployment import Deployment, VersionRecord
from batchfleet.wire.keys import ModelKeys

PATIENCE_MS = 10_000
CONTACT_MS = PATIENCE_MS


def announced(**states):
    return {"lanes": orjson.dumps({version: {"state": one} for version, one in states.items()})}


def view_of(announcement):
    record = VersionRecord(version="v1")
    model = ModelView(
        keys=ModelKeys("ns", "m"),
        record={},
        deployment=Deployment(model="m", stable="v1", versions={"v1": record}),
        tenants=(),
        served=frozenset(served_versions(announcement)),
    )
    return FleetView(models={"m": model})


def test_a_version_that_is_loading_counts_and_a_refused_one_does_not():
    assert served_versions(announced(v1="ready", v2="loading", v3="refused")) == ["v1", "v2"]
    assert served_versions({}) == []


def test_loading_again_for_longer_than_the_patience_abandons_nothing():
    watch = UnservedWatch(PATIENCE_MS, CONTACT_MS)
    assert watch.observe(view_of(announced(v1="loading")), 0) == frozenset()
    assert watch.observe(view_of(announced(v1="loading")), PATIENCE_MS) == frozenset()
    assert watch.observe(view_of(announced(v1="loading")), 2 * PATIENCE_MS) == frozenset()
    assert watch.observe(view_of(announced(v1="refused")), 2 * PATIENCE_MS) == frozenset()
    assert watch.observe(view_of(announced(v1="refused")), 3 * PATIENCE_MS) == {("m", "v1")}


def test_a_gap_between_two_looks_begins_the_watch_again():
    """A worker may have served while the router was frozen."""
    watch, unserved = UnservedWatch(PATIENCE_MS, contact_ms=1_000), view_of(announced())
    assert watch.observe(unserved, 0) == frozenset()
    thawed_ms = PATIENCE_MS + 1
    assert watch.observe(unserved, thawed_ms) == frozenset()
    looks = range(thawed_ms + 1_000, thawed_ms + PATIENCE_MS, 1_000)
    assert {watch.observe(unserved, at) for at in looks} == {frozenset()}
    assert watch.observe(unserved, thawed_ms + PATIENCE_MS) == {("m", "v1")}
    assert watch.observe(unserved, thawed_ms + PATIENCE_MS + 1_001) == frozenset()
