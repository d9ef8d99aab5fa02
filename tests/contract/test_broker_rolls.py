"""What rolls keep beside the deploy record: their past, counts, and who takes their steps."""

from batchfleet.broker import rolls


def test_the_past_of_a_model_is_kept_newest_first_and_bounded(wire):
    assert wire.run(rolls.past(wire.keys)) == []
    names = [b"roll-%d" % at for at in range(rolls.ROLLS_MAX + 2)]
    for name in names:
        for command in rolls.record_end(wire.keys, name):
            wire.run(command)
    assert wire.run(rolls.past(wire.keys)) == names[:1:-1]


def test_the_first_counts_of_a_moment_stay_until_they_are_forgotten(wire):
    for raw in (b"first", b"second"):
        for command in rolls.keep_counts(wire.keys, "r:1:01", raw, ()):
            wire.run(command)
    assert wire.run(rolls.counts(wire.keys)) == {"r:1:01": b"first"}
    for command in rolls.keep_counts(wire.keys, "r:1:02", b"later", ["r:1:01"]):
        wire.run(command)
    assert wire.run(rolls.counts(wire.keys)) == {"r:1:02": b"later"}


def test_a_jobs_worker_lives_until_it_leaves_or_is_silent(wire):
    namespace, now_ms = wire.keys.namespace, wire.now_ms()

    def announce(name, at_ms):
        for command in rolls.announce_jobs(namespace, name, at_ms):
            wire.run(command)

    def living(at_ms):
        return wire.run(rolls.jobs_workers(namespace, at_ms))

    announce("j1", now_ms)
    announce("j2", now_ms + 10)
    assert living(now_ms + 10) == ["j1", "j2"]
    assert living(now_ms + rolls.JOBS_TTL_MS + 5) == ["j2"]
    announce("j2", now_ms + rolls.JOBS_TTL_MS + 5)
    assert living(now_ms) == ["j2"], "a silent one is forgotten"
    wire.run(rolls.leave_jobs(namespace, "j2"))
    assert living(now_ms) == []
