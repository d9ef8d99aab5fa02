from hashlib import blake2b

import pytest

from batchfleet.wire.canary import Canary, WorkerChoice

IDS = {
    "counted": [f"request-{number:05}" for number in range(10_000)],
    "hashed": [blake2b(b"%d" % number, digest_size=12).hexdigest() for number in range(10_000)],
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("weight", [1, 10, 33.3, 50, 90])
@pytest.mark.parametrize("salt", ["", "ab12", "another"])
def test_a_canary_takes_its_share_of_any_ids(kind, weight, salt):
    canary = Canary("2", weight, salt)
    share = sum(map(canary.takes, IDS[kind])) / len(IDS[kind])
    # Five standard deviations of a fair draw.
    assert abs(share - weight / 100) < 5 * (weight * (100 - weight)) ** 0.5 / 100 / 100


def test_who_goes_to_the_canary_stays_with_it_as_the_weight_grows():
    ids = IDS["counted"]
    before: set[str] = set()
    for weight in (0, 1, 10, 50, 100):
        taken = {name for name in ids if Canary("2", weight, "ab12").takes(name)}
        assert before <= taken
        before = taken
    assert before == {*ids}


def test_another_salt_chooses_others():
    first, second = (
        {name for name in IDS["counted"] if Canary("2", 10, salt).takes(name)}
        for salt in ("ab12", "cd34")
    )
    assert 50 < len(first & second) < 200


def test_the_choice_is_that_of_the_protocol():
    """8 bytes of BLAKE2b over salt and id, as docs/protocol.md shows it."""
    digest = blake2b(b"ab127f3c91d2a40b", digest_size=8).hexdigest()
    assert digest == "511fc75464724c07"
    share = int(digest, 16) / 2**64 * 100
    assert Canary("2", share + 0.01, "ab12").takes("7f3c91d2a40b")
    assert not Canary("2", share - 0.01, "ab12").takes("7f3c91d2a40b")


def test_a_canary_survives_the_wire():
    canary = Canary("2", 12.5, "ab12")
    assert Canary.from_wire(canary.to_wire()) == canary


@pytest.mark.parametrize(
    "choice", [WorkerChoice(frozenset({"w1", "w2"})), WorkerChoice(frozenset({"w1"}), True)]
)
def test_a_choice_of_workers_survives_the_wire(choice):
    assert WorkerChoice.from_wire("workers:2", choice.to_wire()) == choice


def test_a_choice_names_who_is_in_it_or_who_is_not():
    assert [WorkerChoice(frozenset({"w1"})).includes(name) for name in ("w1", "w2")] == [
        True,
        False,
    ]
    assert [WorkerChoice(frozenset({"w1"}), True).includes(n) for n in ("w1", "w2")] == [
        False,
        True,
    ]
