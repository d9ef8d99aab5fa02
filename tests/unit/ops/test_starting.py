"""How long `up` waits for its programs, and what it says meanwhile."""

from batchfleet.broker.errors import UnreachableError
from batchfleet.ops import starting
from batchfleet.ops.starting import START_MS, Progress, loading_in, ready_timeout_ms
from batchfleet.ops.survey import FleetStatus, ModelStatus, VersionStatus, WorkerStatus
from batchfleet.wire.deployment import Deployment, Limits, VersionRecord

MINUTE_MS = 60_000


def deployment(*load_ms):
    records = [
        VersionRecord(version=str(at), limits=Limits(load_ms=each))
        for at, each in enumerate(load_ms)
    ]
    return Deployment(model="m", stable="0", versions={one.version: one for one in records})


def status(**states):
    """A fleet whose one worker says this of the versions of the model `m`."""
    versions = {f"{name}": {"state": state} for name, state in states.items()}
    return FleetStatus(
        namespace="bf",
        server_version="7",
        memory_bytes=0,
        memory_bytes_max=0,
        routers=[],
        models=[
            ModelStatus(
                model="m",
                versions=[VersionStatus(version=name, stable=True, ready_workers=0, entries={})
                          for name in versions],
                workers=[WorkerStatus(name="w", versions=versions, facts={})],
            )
        ],
    )  # fmt: skip


def test_each_version_may_load_for_as_long_as_its_limit_says():
    assert ready_timeout_ms([]) == START_MS
    assert ready_timeout_ms([deployment(600_000)]) == START_MS + 600_000
    assert ready_timeout_ms([deployment(1000, 2000), deployment(7_200_000)]) == START_MS + 7_203_000


def test_what_is_loading_is_named():
    assert loading_in(status(a="loading", b="ready", c="refused")) == ["m/a"]


def test_it_is_told_every_ten_seconds(monkeypatch):
    told = []
    monkeypatch.setattr(starting, "survey", lambda *_: status(a="loading"))
    progress = Progress(None, "bf", told.append)
    for waited_ms in (0, 9_999, 10_000, 15_000, 20_000, 95_000, 96_000, 106_000):
        progress.after(waited_ms, ["consumer 1"])
    assert told == [f"loading m/a, {seconds} s" for seconds in (10, 20, 95, 106)]


def test_programs_are_named_where_nothing_is_known_of_models(monkeypatch):
    def away(*_):
        raise UnreachableError("away")

    told = []
    progress = Progress(None, "bf", told.append)
    monkeypatch.setattr(starting, "survey", away)
    progress.after(MINUTE_MS, ["consumer 1", "consumer 2"])
    monkeypatch.setattr(starting, "survey", lambda *_: status(a="ready"))
    progress.after(2 * MINUTE_MS, ["router"])
    assert told == ["loading consumer 1 and consumer 2, 60 s", "loading router, 120 s"]
