import pytest

from benchmarks.bursts import Burst, Load
from benchmarks.contest import interleave

LOAD = Load(requests=10, callers=2)


class Numbered:
    """Counts the bursts of all contestants in one list."""

    def __init__(self, name, order):
        self.name = name
        self.order = order

    def run(self, load):
        self.order.append(self.name)
        return Burst(requests=load.requests, duration_s=len(self.order), p50_ms=1.0, p99_ms=1.0)


def test_contestants_take_turns_and_the_first_round_does_not_count():
    order, reported = [], []
    contestants = [Numbered("a", order), Numbered("b", order)]
    found = interleave(contestants, LOAD, 2, lambda name, _: reported.append(name))
    assert order == ["a", "b"] * 3
    assert reported == ["a", "b"] * 2
    assert [burst.duration_s for burst in found["a"]] == [3, 5]
    assert [burst.duration_s for burst in found["b"]] == [4, 6]


@pytest.mark.parametrize(("names", "rounds"), [("", 1), ("a", 0), ("aa", 1)])
def test_a_contest_without_sense_is_refused(names, rounds):
    contestants = [Numbered(name, []) for name in names]
    with pytest.raises(ValueError, match="contest"):
        interleave(contestants, LOAD, rounds, lambda *_: None)
