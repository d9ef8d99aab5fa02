"""Handing a model over worker by worker, and where there is room for two copies of a version."""

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.takeover_scene import SECOND, THIRD, Scene

from batchfleet.broker import fleet
from batchfleet.ops import deployment
from batchfleet.ops.clearing import StillServedError
from batchfleet.ops.handing_over import fits_beside
from batchfleet.ops.taking_over import BY_WORKER
from batchfleet.ops.verdict import AllRefuseError
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.announcements import WorkerAnnouncement
from batchfleet.wire.canary import Canary
from batchfleet.wire.errors import SettingsError


@pytest.fixture
def scene():
    with wired(MemoryBroker(MemoryServer()), "n") as wire:
        yield Scene(wire)


def test_worker_by_worker_all_but_one_serve_all_the_time(scene):
    crew = scene.with_crew("a", "b", "c")
    crew.loads["2"] = 3
    scene.deploy(SECOND, strategy=BY_WORKER)
    for _ in range(6):
        crew.look()
    assert (scene.record.stable, set(scene.record.versions)) == ("2", {"2"})
    assert (scene.record.workers, scene.record.canary) == ({}, None)
    assert crew.fewest == 2
    assert all(lanes == {"2": 0} for lanes in crew.lanes.values())


def test_no_worker_ever_has_two_copies_and_the_share_grows_with_the_workers(scene):
    crew, weights, most = scene.with_crew("a", "b", "c", "d"), [], []
    look = crew.look

    def watch():
        look()
        weights.append(scene.record.canary.weight if scene.record.canary else None)
        most.append(max(map(crew.copies, crew.names)))

    crew.look = watch
    scene.enqueue("1")
    with pytest.raises(StillServedError):
        scene.deploy(SECOND, strategy=BY_WORKER)
    assert [w for at, w in enumerate(weights) if w not in weights[:at]] == [None, 33.3, 66.7]
    assert max(most) == 1
    assert scene.record.workers["2"].named == {"a", "b", "c"}, "the last one has the old version"


def test_it_is_chosen_where_memory_does_not_suffice_for_two(scene):
    crew = scene.with_crew("a", "b", host="h", device="cpu", free_bytes="2100")
    scene.deploy(SECOND)
    assert crew.fewest == 1
    crew.facts["free_bytes"] = "2400"
    for _ in range(3):
        crew.look()
    crew.fewest = 2
    scene.deploy(THIRD)
    assert crew.fewest == 2


def test_a_worker_that_refuses_it_gets_back_what_it_had(scene):
    crew = scene.with_crew("a", "b", "c")
    crew.refuses["b"] = {"2"}
    before = scene.raw
    with pytest.raises(AllRefuseError, match="1 of 3 workers refuse it: no wheel"):
        scene.deploy(SECOND, strategy=BY_WORKER)
    assert scene.raw == before


def test_worker_by_worker_a_tenant_is_added_as_well(scene):
    scene.with_crew("a", "b")
    scene.deploy(SECOND, strategy=BY_WORKER, tenants=("acme",))
    assert set(scene.wire.run(fleet.tenants(scene.wire.keys))) == {"acme", TENANT}
    scene.wire.ask("DEL", scene.wire.keys.ingress("acme"))


def test_worker_by_worker_nothing_stays_warm(scene):
    scene.with_crew("a", "b")
    with pytest.raises(SettingsError, match="leave out --warm"):
        scene.deploy(SECOND, strategy=BY_WORKER, is_warm=True)


@pytest.mark.parametrize("min_ready", [0, 2])
def test_it_needs_another_worker_to_serve_meanwhile(scene, min_ready):
    scene.with_crew(*"ab"[: min_ready or 1])
    with pytest.raises(SettingsError, match="start another one, or use --strategy beside"):
        scene.deploy(SECOND, strategy=BY_WORKER, min_ready=min_ready)
    assert set(scene.record.versions) == {"1"}


def test_what_a_killed_command_has_left_is_cleared_by_the_next(scene):
    crew = scene.with_crew("a", "b", "c")
    fields = {
        "workers:1": b'{"except": ["a"]}',
        "workers:2": b'{"only": ["a"]}',
        "version:2": SECOND.to_wire(),
        "canary": Canary("2", 50.0, "2").to_wire(),
    }
    deployment.reconfigure(scene.operator, scene.record, fields)
    crew.look()
    assert scene.deploy(RECORD) == ["2"]
    assert (scene.record.workers, scene.record.canary) == ({}, None)
    assert set(scene.record.versions) == {"1"}


# Room for two.


def worker(host="h", device="cpu", free="3000", memory="1000"):
    versions = {"1": {"state": "ready", "memory_bytes": memory}}
    facts = {"host": host, "device": device, "free_bytes": free}
    return WorkerAnnouncement(versions=versions, facts=facts)


@pytest.mark.parametrize(
    ("workers", "fits"),
    [
        ([], True),
        ([worker()], True),
        ([worker(free="1050")], False),
        ([worker(), worker()], True),
        ([worker(), worker(), worker()], False),  # they share what is free
        ([worker(host="a"), worker(host="b"), worker(host="c")], True),
        ([worker(device=f"cuda:{at}", free="1200") for at in range(3)], True),
        ([worker(device="cuda:0", free="1200"), worker(device="cuda:0", free="1200")], False),
        ([worker(free="")] * 3, True),  # it is not known
        ([worker(free="nonsense")] * 3, True),
        ([worker(memory="")] * 3, True),
    ],
)
def test_each_machine_needs_room_for_a_copy_a_worker(workers, fits):
    said = {f"w{at}": one for at, one in enumerate(workers)}
    assert fits_beside("1", said) is fits
