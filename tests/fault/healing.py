"""A fleet of three models that loses what the server had, all of it or one model's: F27.

It is served again within seconds, by what its routers remember. Where one model is hurt, requests
to the other two are made and measured all the while: none is answered later than it should be.
"""

import shutil
from contextlib import contextmanager
from functools import partial

from batchfleet.ops import deployment
from tests.support.fleet import draft_of, until
from tests.support.neighbours import Neighbours, keys_of_kind, put_foreign, wait_healed

from .arena import MODEL
from .moments import LONG_WORK, WORK
from .run import Run
from .server_faults import LogWatch, wait_reached

PROBES = 8
AGAIN_S = 5.0
CALM, PATIENT = "calm", "patient"
MODELS = (MODEL, CALM, PATIENT)
KINDS = (
    *("models", "deploy", "tenants", "in", "q"),
    *("workers", "due", "later", "parked", "lost"),
)
# Requests to the neighbours, three each tenth of a second, while a foreign key lies there.
_ASKED = 30
_BURST = 8


def runs():
    """All of them."""
    plays = {
        "server-empty": (come_back_empty, True),
        "flushall": (flush_all, True),
        "keys-gone": (lose_keys, True),
        "key-foreign": (spoil_keys, False),
    }
    return [
        Run(
            name=f"f27.{name}.{routers}-router{'s' * (routers > 1)}",
            play=partial(play, routers=routers),
            quick=quick and routers == 1,
        )
        for name, (play, quick) in plays.items()
        for routers in (1, 2)
    ]


@contextmanager
def three_models(stage, routers):
    """The model of the arena and two more, served by one worker; the two are gone afterwards."""
    arena, fleet = stage.arena, stage.arena.fleet
    for model in (CALM, PATIENT):
        fleet.deploy(draft_of("echo", model))
    arena.ensure(routers=routers)
    for model in MODELS:
        fleet.wait_until_served(model)
    try:
        yield fleet
    finally:
        for model in (CALM, PATIENT):
            deployment.undeploy(fleet.operator, model, forced=True)


def check_healed(stage, models):
    """What was taken away was recreated in time, and new requests are run."""
    took_s = wait_healed(stage.arena.fleet, models)
    assert took_s <= AGAIN_S, f"served again after {took_s:.1f} s"
    stage.load.forget()
    stage.load.submit(PROBES)
    stage.load.collect()


def come_back_empty(stage, *, routers):
    """The server is killed, and comes back without its data."""
    arena = stage.arena
    with three_models(stage, routers):
        stage.load.submit(_BURST, switch=LONG_WORK)
        quiet = LogWatch(stage)
        stage.fault("the server is killed and its data removed")
        arena.kill_server()
        shutil.rmtree(arena.server.folder / "appendonlydir")
        stage.history.tell("wiped")
        arena.server.start()
        wait_reached(arena)
        check_healed(stage, MODELS)
        quiet.check_quiet()


def flush_all(stage, *, routers):
    """Everything is gone at once, and no operator deploys again."""
    with three_models(stage, routers) as fleet:
        stage.load.submit(_BURST, switch=LONG_WORK)
        quiet = LogWatch(stage)
        stage.fault("FLUSHALL")
        fleet.server.flushall()
        stage.history.tell("wiped")
        check_healed(stage, MODELS)
        quiet.check_quiet()


def lose_keys(stage, *, routers):
    """All keys of one model are gone at once."""
    with three_models(stage, routers) as fleet:
        with Neighbours(fleet, PATIENT, CALM) as neighbours:
            # A full batch of it takes a tenth of a second of the device that all models share: the
            # neighbours wait for that, and it must stay far below what counts as late.
            stage.load.submit(_BURST, switch=WORK)
            stage.fault("all keys of one model are deleted")
            names = list(fleet.server.scan_iter(match=f"{stage.arena.keys.prefix}*", count=1000))
            fleet.server.delete(*names)
            stage.history.tell("wiped")
            check_healed(stage, [MODEL])
            until(lambda: len(neighbours.asked) >= _ASKED, "others were asked all the while")
        neighbours.check()


def spoil_keys(stage, *, routers):
    """A key of each kind, one after the other, is of a foreign type for a while."""
    with three_models(stage, routers) as fleet:
        with Neighbours(fleet, PATIENT, CALM) as neighbours:
            for kind in KINDS:
                keys = keys_of_kind(stage.arena.keys, kind)
                asked = len(neighbours.asked)
                stage.fault(f"{kind} is of the wrong type")
                put_foreign(fleet.server, keys)
                until(
                    lambda asked=asked: len(neighbours.asked) >= asked + _ASKED,
                    "others were asked all the while",
                )
                fleet.server.delete(*keys)
                stage.history.tell("wiped")
                check_healed(stage, [MODEL])
        neighbours.check()
