"""What breaks between a process and its server: F5, F6, F7, F17 (the network's part) and F26."""

import random
from functools import partial

from batchfleet.broker.commands import script
from tests.support.fleet import until

from .arena import LEASE_MS
from .moments import WORK, kill_at_work
from .provoking import provoked
from .run import Run

PROBES = 8
DELAY_MS = 200
# Longer than any time-out of a connection: what hangs has to be noticed by then.
PATIENT_MS = 25_000
SWIZZLE_STEP_S = 0.3
SWIZZLE_SEEDS = (1, 2, 3)
_BURST = 8
_TIMES = 3


def _sha(name):
    return script(name).sha.encode()


# The stream that the requests of these runs lie in.
_QUEUE = b":q:1:normal:0"
# Exchange → (whose it is, what its request contains, belongs to the quick part).
EXCHANGES = {
    "router.read": ("router", b"XREADGROUP", True),
    "router.accept": ("router", _sha("accept"), True),
    "router.sweep": ("router", _sha("overdue"), False),
    "worker.beat": ("consumer", _sha("beat"), False),
    "worker.take": ("consumer", _sha("take"), True),
    "worker.finish": ("consumer", _sha("finish"), True),
}
OF_HEIRS = {
    "worker.bury": ((_sha("bury"),), False),
    "worker.recover": ((_sha("recover"), _QUEUE), True),
    "worker.retire": ((_sha("retire"),), False),
}
WAYS = ("cut-before", "swallow")


def runs():
    """All of them."""
    found = []
    for name, (kind, needle, quick) in EXCHANGES.items():
        for way in WAYS:
            play = partial(lose_exchange, kind, needle, way)
            found.append(Run(name=f"{name}.{way}", play=play, quick=quick and way == "swallow"))
    for name, (needles, quick) in OF_HEIRS.items():
        for way in WAYS:
            play = partial(lose_exchange_of_heir, needles, way)
            found.append(Run(name=f"{name}.{way}", play=play, quick=quick and way == "swallow"))
    for kind in ("router", "consumer"):
        for way in ("cut", "reset", "refuse"):
            quick = way == "reset"
            found.append(
                Run(name=f"f5.{way}.{kind}", play=partial(break_all, kind, way), quick=quick)
            )
        found += [
            Run(name=f"f6.hole.{kind}", play=partial(black_hole, kind), quick=kind == "consumer"),
            Run(name=f"f6.hole-for-ever.{kind}", play=partial(black_hole_for_ever, kind)),
        ]
    found.append(Run(name="f17.slow-network", play=slow_network, quick=True))
    found += [
        Run(name=f"f26.swizzle-{seed}", play=partial(swizzle, seed), quick=seed == 1)
        for seed in SWIZZLE_SEEDS
    ]
    return found


def _trap(proxy, needles, way, times=1):
    set_trap = proxy.swallow_reply if way == "swallow" else proxy.cut_request
    return set_trap(*needles, times=times)


def lose_exchange(kind, needle, way, stage):
    """Exchanges are lost under load, before the server has them or after; thrice, so that one of
    them carries something.
    """
    _, proxy = stage.proxied(kind)
    for _ in range(_TIMES):
        stage.fault(f"{way} {needle!r}")
    sprung = _trap(proxy, [needle], way, _TIMES)
    stage.load.submit_until(sprung.is_set, "the exchange takes place", switch=WORK)
    stage.load.submit(PROBES)


def lose_exchange_of_heir(needles, way, stage):
    """One exchange is lost of a worker that takes over from a killed one."""
    _, proxy = stage.proxied("consumer")
    sprung = _trap(proxy, needles, way)
    kill_at_work(stage)
    stage.fault(f"{way} {needles!r}")
    provoked(sprung.is_set, "the exchange takes place")
    stage.load.submit(PROBES)


def alone(stage, kind):
    """A victim behind a proxy, without another of its kind beside it."""
    victim, proxy = stage.proxied(kind)
    others = {"routers": 0} if kind == "router" else {"workers": 0}
    stage.arena.ensure(**others)
    return victim, proxy


def break_all(kind, way, stage):
    """All connections of the only router, or the only worker, end again and again."""
    victim, proxy = alone(stage, kind)
    for _ in range(_TIMES):
        stage.load.submit(_BURST, switch=WORK)
        stage.fault(way)
        getattr(proxy, way)()
        stage.load.submit(_BURST, switch=WORK)
        if way == "refuse":
            stage.load.pause(LEASE_MS / 1000)
            proxy.admit()
    assert victim.is_running()


def black_hole(kind, stage):
    """For three leases nothing gets through in either direction; then all of it does."""
    victim, proxy = stage.proxied(kind)
    stage.load.submit(_BURST, switch=WORK)
    stage.fault("a black hole")
    proxy.freeze()
    stage.load.submit(_BURST, switch=WORK)
    if kind == "consumer":
        stage.wait_until_buried(victim)
    stage.load.pause(3 * LEASE_MS / 1000)
    proxy.thaw()
    if kind == "consumer":
        until(lambda: victim.events("worker.fenced"), "it has noticed that it was buried")
    stage.load.submit(PROBES)


def black_hole_for_ever(kind, stage):
    """The connections that there are never speak again; new ones work."""
    victim, proxy = alone(stage, kind)
    stage.load.submit(_BURST, switch=WORK, timeout_ms=PATIENT_MS)
    stage.fault("a black hole for ever")
    proxy.freeze_present()
    stage.load.submit(_BURST, switch=WORK, timeout_ms=PATIENT_MS)
    # Answers to these come through new connections alone.
    stage.load.collect()
    until(lambda: victim.events("server.lost"), "it has noticed")
    stage.load.submit(PROBES)
    assert victim.is_running()


def slow_network(stage):
    """Every message takes 200 ms, each way, to the only router and the only worker."""
    slowed = [alone(stage, "router"), alone(stage, "consumer")]
    for _, proxy in slowed:
        proxy.delay(DELAY_MS, DELAY_MS)
    stage.load.submit(2 * _BURST, switch=WORK)
    stage.load.collect()
    assert not any(victim.events("worker.fenced") for victim, _ in slowed)


def swizzle(seed, stage):
    """Links stop one by one and are released in another order, under load."""
    chance = random.Random(seed)
    pairs = [stage.proxied(kind) for kind in ("router", "router", "consumer", "consumer")]
    stage.arena.ensure(routers=0, workers=0)
    proxies = [proxy for _, proxy in pairs]
    for _ in range(2):
        clogged = chance.sample(proxies, chance.randint(1, len(proxies)))
        for proxy in clogged:
            stage.fault("a link stops")
            proxy.freeze()
            _load_a_while(stage)
        for proxy in chance.sample(clogged, len(clogged)):
            proxy.thaw()
            _load_a_while(stage)
    stage.load.collect()
    stage.load.submit(PROBES)
    assert all(program.is_running() for program, _ in pairs)


def _load_a_while(stage):
    stage.load.submit(4, switch=WORK, timeout_ms=PATIENT_MS)
    stage.load.pause(SWIZZLE_STEP_S)
