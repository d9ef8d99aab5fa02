"""Claiming on every kind of server: what is old is found behind whatever is fresh."""

from batchfleet.broker import ingress


def test_claiming_continues_from_where_it_stopped(served_wire):
    """One look sees ten times its count at most: what is old may lie behind what is fresh."""
    wire = served_wire
    for at in range(40):
        wire.enter(f"r{at}")
    fresh = [entry for entry, _ in wire.ask("XRANGE", wire.ingress, "-", "+")][:-2]
    wire.ask("XCLAIM", wire.ingress, "router", "r1", 0, *fresh, "IDLE", 0, "JUSTID")
    old = [entry for entry, _ in wire.ask("XRANGE", wire.ingress, "-", "+")][-2:]
    wire.ask("XCLAIM", wire.ingress, "router", "r1", 0, *old, "IDLE", 60_000, "JUSTID")
    found, after, looks = [], "0-0", 0
    while after is not None:
        command = ingress.claim(wire.ingress, "r2", 30_000, 1, after)
        entry_ids, after = wire.run(command)
        found += entry_ids
        looks += 1
    assert found == old
    assert looks > 1
