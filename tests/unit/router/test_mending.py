"""What routers restore of what the server has lost, on its twin: some know, some do not."""

import pytest
from support.broker_wire import RECORD, TENANT, wired
from support.loops import Lines, Watch

from batchfleet.broker import fleet
from batchfleet.broker.errors import UnusableKeyError
from batchfleet.router.mending import Mending
from batchfleet.router.view import FleetView, read_view
from batchfleet.service.events import Events
from batchfleet.service.steps import StepFaults, Steps
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer
from batchfleet.wire.keys import ModelKeys, models_key

NS = "n"
OTHER = ModelKeys(NS, "other")
ACME = "acme"


class Looker:
    """What a router's keeper does of this: it reads, mends, and reads again."""

    def __init__(self, wire, clock):
        self.log = Lines()
        events = Events(self.log)
        self.steps = Steps(Watch().outage, StepFaults(events, clock))
        self.mending = Mending(events, self.steps, lambda: "x")
        self.view = FleetView()
        self._executor = wire.broker.connect("looker")
        self._clock = clock

    def look(self):
        self.view = read_view(self._executor, NS, self.steps, self.view)
        mended = self.mending.look(self._executor, self.view, self._clock.monotonic_ms())
        if mended:
            self.view = read_view(self._executor, NS, self.steps, self.view)
        return mended


@pytest.fixture
def clock():
    return Watch().clock


@pytest.fixture
def wire(clock):
    with wired(MemoryBroker(MemoryServer(clock)), NS) as found:
        streams = fleet.queue_streams(OTHER, RECORD)
        found.run(fleet.deploy(OTHER, RECORD, streams, "n", [TENANT, ACME]))
        found.run(fleet.enlist_models(NS, ["m", "other"]))
        yield found


@pytest.fixture
def looker(wire, clock):
    found = Looker(wire, clock)
    assert not found.look(), "nothing is missing"
    return found


def put_foreign(wire, key):
    wire.ask("DEL", key)
    wire.ask("SET", key, "x")


def keys_of(wire, keys):
    return [keys.deploy, keys.tenants, keys.ingress(TENANT), *fleet.queue_streams(keys, RECORD)]


def test_tenants_that_were_lost_are_remembered(wire, looker):
    wire.ask("DEL", OTHER.tenants)
    assert looker.look()
    assert wire.run(fleet.tenants(OTHER)) == [ACME, TENANT]
    assert looker.view.models["other"].tenants == (ACME, TENANT)
    assert looker.log.names() == ["model.mended"]
    assert not looker.look()


def test_tenants_are_remembered_however_long_they_cannot_be_made(wire, looker):
    put_foreign(wire, OTHER.tenants)
    for _ in range(3):
        looker.look()
        assert looker.view.models["other"].tenants == (ACME, TENANT), "they are served on"
        assert looker.view.foreign == {"other": OTHER.tenants}
    wire.ask("DEL", OTHER.tenants)
    assert looker.look()
    assert wire.run(fleet.tenants(OTHER)) == [ACME, TENANT]


def test_tenants_are_served_on_while_nothing_can_be_recreated(wire, looker):
    wire.ask("DEL", OTHER.tenants)
    wire.broker.server.is_full = True
    assert not looker.look()
    assert looker.view.models["other"].tenants == (ACME, TENANT)
    wire.broker.server.is_full = False
    assert looker.look()


@pytest.mark.parametrize("which", range(5))
def test_any_key_that_was_lost_is_recreated(wire, looker, which):
    wire.ask("DEL", keys_of(wire, OTHER)[which])
    assert looker.look()
    assert all(wire.ask("EXISTS", key) for key in keys_of(wire, OTHER))


def test_a_server_that_lost_everything_gets_all_models_back_at_once(wire, looker):
    wire.ask("DEL", models_key(NS), *keys_of(wire, OTHER), *keys_of(wire, wire.keys))
    assert looker.look()
    assert sorted(looker.view.models) == ["m", "other"]
    assert wire.run(fleet.models(NS)) == ["m", "other"]
    assert looker.log.names() == ["model.restored"] * 2


def test_a_router_that_started_after_the_loss_knows_nothing_and_breaks_nothing(wire, clock, looker):
    wire.ask("DEL", OTHER.tenants)
    late = Looker(wire, clock)
    assert not late.look()
    assert late.view.models["other"].tenants == ()
    assert sorted(late.view.models) == ["m", "other"]
    assert late.log.names() == []
    assert looker.look(), "one that knows recreates them"
    assert not late.look()
    assert late.view.models["other"].tenants == (ACME, TENANT)


def test_who_knows_more_has_the_last_word(wire, clock, looker):
    """One has not seen the last deploy when all is lost, and comes first."""
    better = Looker(wire, clock)
    wire.run(fleet.configure(wire.keys, {"set:backlog": b"7"}, [], "n2"))
    better.look()
    wire.ask("DEL", models_key(NS), *keys_of(wire, wire.keys))
    assert looker.look()
    assert "set:backlog" not in wire.run(fleet.deploy_hash(wire.keys))
    assert better.look()
    for one in (looker, better, looker, better):
        assert not one.look(), "they agree"
        assert one.view.models["m"].deployment.overrides == {"backlog": 7}


def test_what_an_operator_took_out_of_service_meanwhile_stays_so(wire, clock, looker):
    away = Looker(wire, clock)
    away.look()
    others = [*fleet.queue_streams(OTHER, RECORD), OTHER.ingress(TENANT), OTHER.ingress(ACME)]
    assert wire.run(fleet.undeploy(OTHER, others, forced=False))[0]
    for one in (looker, away):
        assert not one.look()
        assert list(one.view.models) == ["m"]
    wire.ask("DEL", wire.keys.deploy)
    assert looker.look()
    assert not wire.ask("EXISTS", OTHER.deploy)


@pytest.mark.parametrize("name", ["deploy", "tenants", "workers", "due"])
def test_a_foreign_key_of_one_model_is_reported_and_costs_the_others_nothing(wire, looker, name):
    put_foreign(wire, getattr(OTHER, name))
    wire.ask("DEL", wire.keys.tenants)
    assert looker.look(), "the other one is mended"
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]
    assert looker.view.foreign == {"other": getattr(OTHER, name)}
    assert sorted(looker.view.models) == ["m", "other"], "it is served as it was known"


def test_a_foreign_key_in_the_place_of_the_list_hides_no_model(wire, clock, looker):
    put_foreign(wire, models_key(NS))
    assert not looker.look()
    assert sorted(looker.view.models) == ["m", "other"]
    assert models_key(NS) in str(looker.view.list_fault)
    with pytest.raises(UnusableKeyError, match="models"):
        read_view(wire.executor, NS, Steps(Watch().outage))
    wire.ask("DEL", models_key(NS))
    assert looker.look()
    assert wire.run(fleet.models(NS)) == ["m", "other"]


def test_a_model_whose_record_is_ill_formed_is_set_aside_and_not_forgotten(wire, looker):
    before = looker.view.models["other"]
    wire.ask("HSET", OTHER.deploy, "intake", "what?")
    for _ in range(2):
        assert not looker.look()
        assert list(looker.view.models) == ["m"]
        assert looker.view.aside == {"other": before}
        assert list(looker.view.faults) == ["other"]
    wire.ask("DEL", OTHER.deploy)
    assert looker.look()
    assert sorted(looker.view.models) == ["m", "other"]


def test_an_announcement_that_no_worker_wrote_says_nothing(wire, looker):
    for at, lanes in enumerate(("no json", "[1]", '{"1": "ready"}')):
        wire.join(f"w{at}")
        wire.ask("HSET", wire.keys.worker(f"w{at}"), "lanes", lanes)
    looker.look()
    assert looker.view.models["m"].served == frozenset()
    assert looker.log.names() == []
