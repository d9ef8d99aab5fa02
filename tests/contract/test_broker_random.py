"""Random sequences of the contract's commands do the same on the twin and on real servers."""

import secrets

import hypothesis
import pytest
from support.broker_play import Player
from support.broker_steps import STEPS
from support.broker_wire import wired
from support.server import delete_namespace

from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.server import MemoryServer


@pytest.fixture(scope="module")
def family(server_url):
    """The beginning of the namespaces of all examples."""
    name = f"t{secrets.token_hex(6)}"
    yield name
    delete_namespace(server_url, f"{name}*")


@pytest.mark.slow
@hypothesis.settings(max_examples=150)
@hypothesis.given(steps=STEPS)
def test_the_twin_answers_as_the_server_does(server_url, family, steps):
    namespace = f"{family}{secrets.token_hex(4)}"
    with (
        wired(MemoryBroker(MemoryServer()), namespace) as memory,
        wired(RedisBroker(server_url), namespace) as served,
    ):
        twin, real = Player(memory), Player(served)
        for step in steps:
            assert twin.play(step) == real.play(step), step
        assert twin.remains() == real.remains()


@pytest.mark.slow
def test_random_plays_reach_every_outcome():
    """Or comparing them would prove little."""
    seen = set()
    wanted = {
        *(
            f"accept {name}"
            for name in ("OK", "DUP", "REFUSED", "BUSY", "LATE", "CLOCK", "STALE", "GONE")
        ),
        *(f"finish {name}" for name in ("ANSWERED", "CLOSED", "NOT_MINE")),
        *(f"promote {name}" for name in ("MOVED", "CLOSED", "GONE", "STALE")),
        *(f"move {name}" for name in ("MOVED", "TAKEN", "GONE", "STALE")),
        *(f"retry {name}" for name in ("PARKED", "CLOSED", "NOT_MINE")),
        "finish KEPT",
        *(f"{name} some" for name in ("replay", "list_letters", "mend")),
        "take FENCED",
        "take some",
        "read_ingress NOGROUP",
        "be_late some",
    }

    @hypothesis.settings(max_examples=800, database=None, derandomize=True)
    @hypothesis.given(steps=STEPS)
    def play(steps):
        if wanted <= seen:
            return
        with wired(MemoryBroker(MemoryServer()), "n") as wire:
            player = Player(wire)
            for step in steps:
                seen.update(_outcomes(step[0], player.play(step)))

    play()
    assert wanted - seen == set(), sorted(seen)


def _outcomes(name, record):
    if name in _PARTS and isinstance(record, list):
        parts = zip(_PARTS[name], record, strict=True)
        return {outcome for part, one in parts for outcome in _outcomes(part, one)}
    if name in ("accept", "admit") and isinstance(record, list):
        return {f"accept {outcome.name}" for outcome in record[1]}
    if name in ("finish", "move") and isinstance(record, list):
        return {f"{name} {outcome}" for outcome in record}
    if name == "replay":
        return {"replay some"} if isinstance(record, str) else set()
    if name == "promote" and isinstance(record, list):
        return {f"promote {outcome}" for _, outcome in record}
    if isinstance(record, str):
        return {f"{name} {record}"}
    return {f"{name} some"} if record else set()


# Steps that are made of others.
_PARTS = {
    "fail": ("admit", "serve", "retry"),
    "give_up": ("admit", "serve", "finish", "list_letters", "replay"),
    "lose_parked": ("lost", "promote"),
    "pass_on": ("admit", "list_waiting", "serve", "expire", "move"),
    "spoil_letters": ("admit", "serve", "finish"),
    "uproot": ("fail", "remove_queue", "promote"),
}
