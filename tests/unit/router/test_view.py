"""Which versions a router counts as served."""

import orjson

from batchfleet.router.view import FleetView, ModelView, UnservedWatch, served_versions
from batchfleet.wire.deployment import Deployment, VersionRecord
from batchfleet.wire.keys import ModelKeys

PATIENCE_MS = 10_000


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


def test_loading_anew_for_longer_than_the_patience_abandons_nothing():
    watch = UnservedWatch(PATIENCE_MS)
    assert watch.observe(view_of(announced(v1="loading")), 0) == frozenset()
    assert watch.observe(view_of(announced(v1="loading")), 3 * PATIENCE_MS) == frozenset()
    assert watch.observe(view_of(announced(v1="refused")), 3 * PATIENCE_MS) == frozenset()
    assert watch.observe(view_of(announced(v1="refused")), 4 * PATIENCE_MS) == {("m", "v1")}
