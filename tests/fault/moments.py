"""Moments × actions: a victim that dies, stops, fails or dawdles at each of its fault points.

F1, F2 and F3 of the list are these: workers and routers killed, and frozen for longer than a lease.
"""

import signal
from functools import partial

from tests.support.fleet import until

from .arena import LEASE_MS
from .provoking import provoked
from .run import Run

DELAY_MS = 400
# Longer than a lease: peers bury a worker that is silent for so long.
SILENCE_MS = 3 * LEASE_MS
WORK = "!sleep:30"
LONG_WORK = "!sleep:250"
AFTERWARDS = 8
LATE_BEAT = 30
LATE_SWEEP = 10
PACE_MS = 25

# Point → (action, belongs to the quick part). `raise` stands where the server may fail; where no
# call to it is made, `crash` does.
ALWAYS = (("delay", False), ("crash", False))
ROUTER = {
    "router.after_read": (*ALWAYS, ("kill", True), ("stop", False), ("raise", False)),
    "router.before_accept": (*ALWAYS, ("kill", False), ("stop", False), ("raise", True)),
    "router.after_accept": (*ALWAYS, ("kill", True), ("stop", True), ("raise", False)),
    "router.before_sweep": (("kill", False), ("stop", False), ("raise", False), ("crash", False)),
}
WORKER = {
    "worker.after_take": (("kill", True), ("stop", False), ("raise", True), ("delay", False)),
    "worker.before_run": (("kill", False), ("stop", False), ("crash", True), ("delay", False)),
    "worker.while_running": (("kill", True), ("stop", True), ("crash", False), ("delay", False)),
    "worker.before_finish": (("kill", True), ("stop", True), ("raise", True), ("delay", False)),
    "worker.after_finish": (("kill", False), ("stop", False), ("raise", True), ("delay", True)),
    "worker.before_beat": (("kill", False), ("raise", False), ("silence", True), ("crash", False)),
}
HEIR = {
    "worker.before_bury": (("kill", True), ("stop", False), ("raise", False), ("delay", False)),
    "worker.after_recover": (("kill", False), ("stop", True), ("raise", True), ("delay", False)),
    "worker.before_retire": (("kill", False), ("stop", False), ("raise", False), ("delay", False)),
}
PARKING = (("kill", True), ("stop", False), ("raise", False), ("delay", False))
DRAINING = (("kill", True), ("stop", False), ("crash", False), ("delay", False))


def runs():
    """All of them."""
    found = []
    for points, play in ((ROUTER, break_router), (WORKER, break_worker), (HEIR, break_heir)):
        for point, actions in points.items():
            found += [
                Run(name=f"{point}.{action}", play=partial(play, point, action), quick=quick)
                for action, quick in actions
            ]
    second = partial(break_worker, "worker.before_run", "kill", at=2)
    found.append(Run(name="worker.before_run.kill-second", play=second))
    found += [
        Run(name=f"worker.before_park.{action}", play=partial(break_parking, action), quick=quick)
        for action, quick in PARKING
    ]
    found += [
        Run(name=f"worker.while_draining.{action}", play=partial(break_drain, action), quick=quick)
        for action, quick in DRAINING
    ]
    return found


def armed(point, action, at=1):
    """The text that arms a point."""
    lasting = {"delay": DELAY_MS, "silence": SILENCE_MS}.get(action)
    return f"{point}={action}@{at}" if lasting is None else f"{point}=delay:{lasting}@{at}"


def has_fired(program):
    return bool(program.events("fault.fired"))


def break_router(point, action, stage):
    """A router is struck while it shares the ingress with another one."""
    # The first sweep comes before it is ready.
    victim = stage.victim("router", armed(point, action, LATE_SWEEP if "sweep" in point else 1))
    stage.fault(f"{point} {action}")
    expected = ("ok", "internal") if action == "crash" else ("ok",)
    stage.load.submit_until(
        lambda: has_fired(victim), f"{point} is reached", switch=WORK, expected=expected
    )
    if action == "stop":
        stage.wait_until_stopped(victim)
        # Whatever it had read is claimed by the other one; it comes back after that.
        stage.load.submit(AFTERWARDS)
        stage.load.collect()
        victim.signal(signal.SIGCONT)
    if action == "crash":
        check_survived(victim)
    else:
        check_end(victim, action)
    stage.load.submit(AFTERWARDS)


def check_survived(router):
    """A router has told of what nobody expected, and lives on."""
    told = ("router.entry_failed", "router.step_failed")
    until(lambda: any(router.events(name) for name in told), "the router tells of it")
    assert router.is_running()


def break_worker(point, action, stage, at=1):
    """A worker is struck while it shares the work with another one."""
    # The first beats are over when it is ready, and a busy one is to be struck.
    at = LATE_BEAT if point == "worker.before_beat" else at
    victim = stage.victim("consumer", armed(point, action, at))
    stage.fault(f"{point} {action}")
    stage.load.submit_until(
        lambda: has_fired(victim), f"{point} is reached", pace_ms=PACE_MS, switch=WORK
    )
    end_worker(stage, victim, action)
    stage.load.submit(AFTERWARDS)


def break_parking(action, stage):
    """A worker is struck before it puts aside what failed and shall run again."""
    victim = stage.victim("consumer", armed("worker.before_park", action))
    stage.fault(f"worker.before_park {action}")
    stage.fault("the model raises, and is asked again")
    stage.load.submit_until(
        lambda: has_fired(victim),
        "a retry is to be put aside",
        switch="!raise",
        retries=1,
        expected=("attempts_exhausted",),
    )
    end_worker(stage, victim, action)
    stage.load.submit(AFTERWARDS)


def end_worker(stage, victim, action):
    """See through what the action does to a worker; one that was frozen comes back."""
    if action == "stop":
        stage.wait_until_stopped(victim)
        stage.wait_until_buried(victim)
        stage.load.collect()
        victim.signal(signal.SIGCONT)
    if action in ("stop", "silence"):
        until(lambda: victim.events("worker.fenced"), "it has noticed that it was buried")
    check_end(victim, action)


def check_end(victim, action):
    """A victim is dead, or has died loudly, or lives on, as the action has it."""
    if action == "kill":
        assert victim.wait() == -signal.SIGKILL
    elif action == "crash":
        assert victim.wait() not in (0, -signal.SIGKILL)
        assert "CrashError" in victim.log_text(), "it died without a word of why"
    else:
        assert victim.is_running()


def break_heir(point, action, stage):
    """A worker is struck while it takes over from another one that has just been killed."""
    heir = stage.victim("consumer", armed(point, action))
    kill_at_work(stage)
    stage.fault(f"{point} {action}")
    provoked(lambda: has_fired(heir), f"{point} is reached")
    if action in ("kill", "stop"):
        stage.arena.ensure()
    end_worker(stage, heir, action)
    stage.load.submit(AFTERWARDS)


def kill_at_work(stage):
    """Kill the worker that stays up while it runs something."""
    (prey,) = stage.arena.steady["consumer"]
    await_work(stage, prey, gate := stage.gate())
    stage.fault("the first worker is killed")
    prey.kill()
    gate.open()


def await_work(stage, worker, gate):
    """Submit work that waits at a gate until this worker runs some of it."""
    pid = worker.device_pid()
    stage.load.submit_until(
        lambda: gate.has_begun(pid), f"{worker.facts['worker']} has work", switch=gate.switch
    )


def break_drain(action, stage):
    """A worker is struck when it has been told to stop and holds work."""
    victim = stage.victim("consumer", armed("worker.while_draining", action))
    stage.fault(f"worker.while_draining {action}")
    await_work(stage, victim, gate := stage.gate())
    victim.signal(signal.SIGTERM)
    provoked(lambda: has_fired(victim), "it drains")
    gate.open()
    if action == "stop":
        stage.wait_until_stopped(victim)
        stage.wait_until_buried(victim)
        stage.load.collect()
        victim.signal(signal.SIGCONT)
        victim.wait()
    elif action == "delay":
        assert victim.wait() == 0
    else:
        check_end(victim, action)
    stage.load.submit(AFTERWARDS)
