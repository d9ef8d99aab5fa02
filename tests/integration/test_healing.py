"""A fleet of several models whose server, or one key of which, is taken away: it heals by itself.

What is done to one model is felt by no other: their deadlines and delays are kept throughout.
"""

import json
from contextlib import contextmanager
from functools import partial
from time import monotonic

import pytest
import redis
from support.fleet import check_all_ok, draft_of, running_fleet, until

from batchfleet.broker.embedded import EmbeddedServer, ServerOptions, free_port
from batchfleet.wire.keys import DEFAULT_TENANT
from batchfleet.wire.reply import decode_reply

MODELS = ("a", "b", "c")
HURT, OTHERS = "a", ("b", "c")
AGAIN_S = 5.0
LINES_MAX = 20


class ForgetfulServer:
    """A private server that dies on demand and comes back with nothing."""

    def __init__(self, program):
        self._options = ServerOptions(program=program, port=free_port())
        self._server = EmbeddedServer(self._options)
        self._server.start()

    @property
    def url(self):
        return self._server.url

    socket_url = url

    def die(self):
        self._server.stop()

    def live(self):
        self._server = EmbeddedServer(self._options)
        self._server.start()

    stop = die


@contextmanager
def served(server, namespace, folder, routers, models=MODELS):
    """A fleet of several models that is ready."""
    with running_fleet(server, namespace, folder) as fleet:
        for model in models:
            fleet.deploy(draft_of("echo", model))
        programs = [fleet.start(kind) for kind in (*["router"] * routers, "consumer")]
        for program in programs:
            program.wait_until_ready()
        for model in models:
            fleet.wait_served(model)
            fleet.wait_routed(model)
        check_all_ok([fleet.ask(model) for model in models])
        yield fleet


def answers(fleet, model):
    """Whether a new request is run; one that gets lost is not waited for."""
    entry = {"id": f"x{monotonic()}", "inputs": json.dumps({"text": ["x"]})}
    keys = fleet.keys(model)
    try:
        if fleet.server.xadd(keys.ingress(DEFAULT_TENANT), entry, nomkstream=True) is None:
            return False
        key = keys.reply(DEFAULT_TENANT, entry["id"])
        raw = fleet.server.blmove(key, key, 0.5, "LEFT", "LEFT")
    except (redis.ConnectionError, redis.ResponseError):
        return False
    return raw is not None and decode_reply(raw).status == "ok"


def wait_healed(fleet, models=MODELS):
    """Wait until new requests to all models are answered."""
    began = monotonic()
    for model in models:
        until(partial(answers, fleet, model), f"{model} is served again", 3 * AGAIN_S)
    return monotonic() - began


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
            took = wait_healed(fleet)
            assert took < AGAIN_S
    finally:
        server.stop()
