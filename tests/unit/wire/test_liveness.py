"""A worker is buried for a counter that stands still, and for nothing else."""

from batchfleet.wire.liveness import LivenessWatch

LEASE_MS, BEAT_MS = 3000, 1000


def watch():
    return LivenessWatch(LEASE_MS, 1.5 * BEAT_MS)


def looks(observer, counters, times, server="run-1"):
    return [observer.look(counters, float(now), server) for now in times]


def test_a_counter_that_stands_still_for_a_lease_proves_a_death():
    verdicts = looks(watch(), {"w": 7.0}, range(0, 3001, 1000))
    assert verdicts == [{}, {}, {}, {"w": 7.0}]


def test_a_counter_that_moves_never_does():
    observer = watch()
    for beat in range(20):
        assert observer.look({"w": float(beat)}, beat * 1000.0, "run-1") == {}


def test_a_gap_in_contact_restarts_the_watch():
    observer = watch()
    looks(observer, {"w": 7.0}, [0, 1000, 2000])
    assert looks(observer, {"w": 7.0}, [6200, 7200, 8200]) == [{}, {}, {}]
    assert looks(observer, {"w": 7.0}, [9200]) == [{"w": 7.0}]


def test_another_run_of_the_server_restarts_the_watch():
    observer = watch()
    looks(observer, {"w": 7.0}, [0, 1000, 2000])
    assert looks(observer, {"w": 7.0}, [3000, 4000], "run-2") == [{}, {}]


def test_an_error_restarts_the_watch():
    observer = watch()
    looks(observer, {"w": 7.0}, [0, 1000, 2000])
    observer.interrupt()
    assert looks(observer, {"w": 7.0}, [3000]) == [{}]


def test_a_worker_that_left_and_came_back_is_new():
    observer = watch()
    looks(observer, {"w": 7.0}, [0, 1000, 2000])
    looks(observer, {}, [2500])
    assert looks(observer, {"w": 7.0}, [3000, 4000]) == [{}, {}]
