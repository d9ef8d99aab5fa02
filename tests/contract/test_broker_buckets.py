"""Removing buckets: their streams go once nothing lies in them, and never before."""

from support.broker_wire import ANSWER

from batchfleet.broker import fleet
from batchfleet.broker.requests import Accepted

FIELD = "draining:1"


def drain(wire, *edges):
    wire.ask("HSET", wire.keys.deploy, FIELD, "[" + ",".join(map(str, edges)) + "]")


def remove(wire, edge):
    return wire.run(fleet.remove_bucket(wire.keys, "1", edge))


def test_an_empty_bucket_goes_with_its_place_in_the_record(wire):
    drain(wire, 16, 64)
    before = int(wire.ask("HGET", wire.keys.deploy, "epoch"))
    assert remove(wire, 64)
    assert not wire.ask("EXISTS", *(wire.queue(64, p) for p in ("high", "normal", "low")))
    assert wire.ask("HGET", wire.keys.deploy, FIELD) == b"[16]"
    assert int(wire.ask("HGET", wire.keys.deploy, "epoch")) == before + 1
    assert remove(wire, 16)
    assert wire.ask("HGET", wire.keys.deploy, FIELD) is None
    assert not remove(wire, 16)
    assert wire.ask("EXISTS", wire.queue(32))


def test_a_bucket_in_service_stays(wire):
    assert not remove(wire, 64)
    drain(wire, 16)
    assert not remove(wire, 64)
    assert wire.ask("EXISTS", wire.queue(64))


def test_a_bucket_stays_until_what_lies_there_is_settled(wire):
    wire.open("a", bucket=64)
    drain(wire, 64)
    assert not remove(wire, 64)
    wire.join()
    (work,) = wire.take()
    assert not remove(wire, 64)
    wire.settle(work, ANSWER)
    assert remove(wire, 64)


def test_a_router_that_comes_after_finds_no_stream_and_one_before_keeps_it(wire):
    drain(wire, 16, 64)
    wire.open("a", bucket=64)
    assert not remove(wire, 64)
    assert remove(wire, 16)
    assert wire.send("b", bucket=16) is Accepted.STALE
    assert wire.ask("ZCARD", wire.keys.due) == 1


def test_a_stream_that_is_gone_already_does_not_hold_it_up(wire):
    drain(wire, 64)
    wire.ask("DEL", wire.queue(64))
    assert remove(wire, 64)
    assert wire.ask("HGET", wire.keys.deploy, FIELD) is None
