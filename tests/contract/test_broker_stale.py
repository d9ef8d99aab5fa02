"""What comes by an old deploy record is refused and changes nothing, on every server."""

import pytest
from support.broker_wire import RECORD, REFUSAL, TENANT, TTL_MS

from batchfleet.broker import fleet, later, membership, requests
from batchfleet.broker.errors import FencedError, StaleRecordError
from batchfleet.broker.requests import Accepted
from batchfleet.wire.deployment import Stamp


def configure(wire, **fields):
    """Change the record; returns the stamp of before."""
    before = wire.stamp()
    assert wire.run(fleet.configure(wire.keys, fields, (), "another"))
    return before


def take_out(wire):
    """Undeploy; returns the stamp of before."""
    before = wire.stamp()
    assert wire.run(fleet.undeploy(wire.keys, [], forced=True))[0]
    return before


def redeploy(wire):
    """Undeploy and deploy again: the epoch is the same again."""
    before = take_out(wire)
    streams = fleet.queue_streams(wire.keys, RECORD)
    assert wire.run(fleet.deploy(wire.keys, RECORD, streams, "again", [TENANT])) == before.epoch
    return before


def lose_nonce(wire):
    before = wire.stamp()
    wire.ask("HDEL", wire.keys.deploy, "nonce")
    return before


def lose_epoch(wire):
    before = wire.stamp()
    wire.ask("HDEL", wire.keys.deploy, "epoch")
    return before


def spoil(wire):
    before = wire.stamp()
    wire.ask("DEL", wire.keys.deploy)
    wire.ask("SET", wire.keys.deploy, "foreign", "PX", TTL_MS)
    return before


CHANGES = (configure, take_out, redeploy, lose_nonce, lose_epoch, spoil)
every_change = pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)


@every_change
def test_nothing_is_accepted_by_an_old_record(wire, change):
    entry = wire.enter("a")
    item = wire.item("a", entry)
    before = change(wire)
    with pytest.raises(StaleRecordError):
        wire.accept(item, stamp=before)
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert wire.ask("XLEN", wire.queue()) == 0
    assert not wire.ask("EXISTS", wire.bell)
    assert wire.ingress_left() == (1, 1), "the entry waits for whoever knows better"


@every_change
def test_nothing_is_refused_by_an_old_record(wire, change):
    """A router that has slept through `resume` would refuse what is welcome again."""
    item = wire.item("a", wire.enter("a"), refusal=REFUSAL)
    before = change(wire)
    with pytest.raises(StaleRecordError):
        wire.accept(item, stamp=before)
    assert wire.replies("a") == []
    assert wire.ingress_left() == (1, 1)


@every_change
def test_nothing_is_taken_by_an_old_record(wire, change):
    wire.open("a", "b")
    wire.join()
    before = change(wire)
    with pytest.raises(StaleRecordError):
        wire.take(stamp=before)
    assert wire.pending(wire.queue()) == 0
    assert wire.ask("XLEN", wire.queue()) == 2


@every_change
def test_nothing_is_taken_over_by_an_old_record(wire, change):
    wire.open("a")
    wire.take(wire.join("gone"))
    wire.join("heir")
    wire.run(membership.leave(wire.keys, "gone"))
    before = change(wire)
    with pytest.raises(StaleRecordError):
        wire.run(requests.recover(wire.keys, "heir", before, "gone", wire.queue(), 10))
    ((_, owner, _, _),) = wire.ask("XPENDING", wire.queue(), "worker", "-", "+", 10)
    assert owner == b"gone"


@every_change
def test_nothing_is_promoted_by_an_old_record(wire, change):
    wire.open("a", delay_ms=60_000)
    wire.be_ripe()
    ripe = wire.run(later.ripe(wire.keys, 10))
    before, parked = change(wire), wire.parked()
    with pytest.raises(StaleRecordError):
        wire.run(later.promote(wire.keys, before, ripe))
    assert wire.parked() == parked
    assert wire.ask("XLEN", wire.queue()) == 0


def test_who_reads_the_record_again_continues(wire):
    item = wire.item("a", wire.enter("a"))
    configure(wire, intake=b"open")
    assert wire.accept(item) == [Accepted.OK]
    wire.join()
    configure(wire)
    assert [work.id for work in wire.take()] == ["a"]


def test_a_worker_that_is_buried_is_told_so_first(wire):
    """It must start over, not read the record again."""
    before = configure(wire)
    with pytest.raises(FencedError):
        wire.take("nobody", stamp=before)


@pytest.mark.parametrize(
    ("fields", "stamp"),
    [
        ({"stable": "1", "epoch": "7", "nonce": "n"}, Stamp(7, "n")),
        ({"stable": "1", "epoch": "7"}, Stamp(7, "")),
        ({"stable": "1", "nonce": "n"}, Stamp(0, "n")),
        ({"stable": "1", "nonce": b"\xff\xfe"}, None),
        ({"stable": "1", "epoch": "007"}, None),
        ({"stable": "1", "epoch": "-1"}, None),
        ({"epoch": "7", "nonce": "n"}, None),
    ],
)
def test_a_stamp_is_read_as_the_scripts_compare_it(wire, fields, stamp):
    """Records that others wrote: by one whose stamp cannot be read, nobody acts."""
    wire.ask("DEL", wire.keys.deploy)
    wire.ask("HSET", wire.keys.deploy, *(part for pair in fields.items() for part in pair))
    assert wire.run(fleet.deploy_stamp(wire.keys)) == stamp
    if stamp is not None:
        assert wire.accept(wire.item("a", wire.enter("a")), stamp=stamp) == [Accepted.OK]
