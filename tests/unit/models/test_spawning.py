"""A version's modules in children of `multiprocessing` that start afresh."""

import sys
from multiprocessing.reduction import ForkingPickler

import pytest

from batchfleet.models.spawning import ForChildren
from batchfleet.wire.errors import StoreError

ADOPTED = []


def adopt(package, *arguments):
    ADOPTED.append((package, arguments))


def test_a_child_adopts_what_its_parent_has_and_hands_it_on():
    handed = ForChildren(adopt)
    handed.add("first", (1, "one"))
    handed.add("second", ())
    handed.add("first", (2, "two"))
    received = ForkingPickler.loads(ForkingPickler.dumps(handed))
    assert ADOPTED == [("first", (2, "two")), ("second", ())]
    ForkingPickler.loads(ForkingPickler.dumps(received))
    assert ADOPTED[2:] == ADOPTED[:2]


def test_a_child_that_could_not_import_batchfleet_is_refused_with_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(StoreError, match=r'use multiprocessing.get_context\("fork"\)'):
        ForkingPickler.dumps(ForChildren(adopt))
