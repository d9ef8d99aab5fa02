"""A fleet of several models whose server, or one key of which, is taken away: it heals by itself.

What is done to one model is felt by no other: their deadlines and delays are kept throughout.
"""

import secrets
from contextlib import contextmanager

import pytest
from support.fleet import check_all_ok, draft_of, running_fleet, until
from support.neighbours import FOREIGN_VALUE, Neighbours, keys_of_kind, put_foreign, wait_healed
from support.ports import free_port
from support.server import delete_namespace

from batchfleet.broker.embedded import EmbeddedServer, ServerOptions

MODELS = HURT, CALM, PATIENT = ("a", "b", "c")
AGAIN_S = 5.0
# What routers restore; the rest comes back as it is needed.
MENDED = ("models", "deploy", "tenants", "in", "q")
LOST = (*MENDED, "workers", "due", "later", "parked", "lost")
FOREIGN = ("tenants", "models", "due", "workers", "deploy", "in", "q", "later", "parked", "lost")
# Requests to the neighbours: three each tenth of a second.
FEW, MANY = 18, 60


class ForgetfulServer:
    """A private server that dies on demand and comes back with nothing."""

    def __init__(self, program):
        self._options = ServerOptions(program=program, port=free_port())
        self._server = EmbeddedServer(self._options)
        self._server.start()

    @property
    def url(self):
        return self._server.url

    @property
    def socket_url(self):
        return self.url

    def die(self):
        self._server.stop()

    stop = die

    def live(self):
        self._server = EmbeddedServer(self._options)
        self._server.start()


@contextmanager
def served(server, namespace, folder, routers, models=MODELS):
    """A fleet of several models that is ready."""
    with running_fleet(server, namespace, folder) as fleet:
        fleet.bring_up(*(draft_of("echo", model) for model in models), routers=routers)
        check_all_ok([fleet.ask(model) for model in models])
        yield fleet


@pytest.fixture(scope="module")
def hurt_fleet(redis_server, tmp_path_factory):
    """Two routers and a worker, for all that is done to one model."""
    namespace = f"t{secrets.token_hex(6)}"
    with served(redis_server, namespace, tmp_path_factory.mktemp("fleet"), routers=2) as fleet:
        yield fleet
    delete_namespace(redis_server.socket_url, namespace)


@pytest.mark.parametrize("kind", LOST)
def test_a_key_that_was_taken_away_is_recreated_and_the_others_feel_nothing(hurt_fleet, kind):
    keys = keys_of_kind(hurt_fleet.keys(HURT), kind)
    with Neighbours(hurt_fleet, PATIENT, CALM) as neighbours:
        hurt_fleet.server.delete(*keys)
        if kind in MENDED:
            until(lambda: hurt_fleet.server.exists(*keys) == len(keys), "it is there", AGAIN_S)
        assert wait_healed(hurt_fleet, [HURT]) < AGAIN_S
        until(lambda: len(neighbours.asked) >= FEW, "others were asked all the while")
    neighbours.check()
    assert all(program.is_running() for program in hurt_fleet.programs)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_key_is_felt_by_no_other_model(hurt_fleet, kind):
    keys = keys_of_kind(hurt_fleet.keys(HURT), kind)
    with Neighbours(hurt_fleet, PATIENT, CALM) as neighbours:
        put_foreign(hurt_fleet.server, keys)
        until(lambda: len(neighbours.asked) >= MANY, "others were asked all the while")
        assert set(hurt_fleet.server.mget(keys)) == {FOREIGN_VALUE}, "it is not ours to remove"
        hurt_fleet.server.delete(*keys)
        assert wait_healed(hurt_fleet, [HURT]) < AGAIN_S
    neighbours.check()
    assert all(program.is_running() for program in hurt_fleet.programs)


def test_lost_tenants_keep_neither_a_new_model_nor_a_new_router_waiting(hurt_fleet):
    fleet = hurt_fleet
    fleet.server.set(fleet.keys(HURT).tenants, "foreign")
    late = fleet.start("router").wait_until_ready()
    assert late.facts["models"] == sorted(MODELS)
    fleet.deploy(draft_of("echo", "new"))
    assert wait_healed(fleet, ["new"]) < AGAIN_S
    fleet.server.delete(fleet.keys(HURT).tenants)
    assert wait_healed(fleet, [HURT]) < AGAIN_S
    late.stop()


@pytest.mark.parametrize("routers", [1, 2])
def test_a_server_that_comes_back_empty_is_filled_again(
    server_program, namespace, tmp_path, routers
):
    server = ForgetfulServer(server_program)
    try:
        with served(server, namespace, tmp_path, routers) as fleet:
            server.die()
            until(
                lambda: all(program.events("server.lost") for program in fleet.programs),
                "all have noticed",
            )
            server.live()
            assert wait_healed(fleet, MODELS) < AGAIN_S
    finally:
        server.stop()
