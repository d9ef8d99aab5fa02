"""What a router does for tensors of 1 MB that lie under a blob key, beside 1 kB in the entry.

Both at one pace, in turns: a process that is woken more seldom finds its caches colder, whatever
it is woken for.
"""

from threading import Event
from time import perf_counter

import numpy as np

from batchfleet.producer.client import Client
from tests.support.cpu_time import process_cpu_s
from tests.support.fleet import draft_of, until

from .own_fleet import own_fleet
from .promise import at_most, equals

MODEL = "large"
_SMALL_BYTES, _LARGE_BYTES = 1_000, 1_000_000
_ROUNDS, _ROUNDS_QUICK = 4, 1
_REQUESTS = 100
_PACE_S = 0.025
_IDLE_S = 3.0


def router_cpu_by_blob(*, quick):
    """Router CPU of each request, one after the other, without what the router does anyway."""
    used_s = dict.fromkeys((_SMALL_BYTES, _LARGE_BYTES), 0.0)
    with own_fleet(draft_of("echo", MODEL)) as fleet:
        router = next(program for program in fleet.programs if program.kind == "router")
        with Client(fleet.url, namespace=fleet.namespace, tenant="default") as client:
            for size in used_s:
                _send(client, size, 10)
            idle_share = _idle_share(router.pid)
            for _ in range(_ROUNDS_QUICK if quick else _ROUNDS):
                for size in used_s:
                    used_s[size] += _used_s(client, router.pid, size, idle_share)
        pattern = f"{fleet.keys(MODEL).prefix}blob:*"
        until(lambda: not list(fleet.server.scan_iter(pattern)), "no blob is left")
        left = len(list(fleet.server.scan_iter(pattern)))
    return [
        at_most(
            "1 MB by blob ÷ 1 kB: router CPU of a request",
            used_s[_LARGE_BYTES] / used_s[_SMALL_BYTES],
            1.5,
        ),
        equals("… blobs left behind", left, 0),
    ]


def _send(client, size, count):
    numbers = np.zeros((1, size // 4), np.float32)
    pace, next_at = Event(), perf_counter()
    for at in range(count):
        numbers[0, 0] = at
        client.infer(MODEL, {"x": numbers})
        next_at += _PACE_S
        pace.wait(max(0.0, next_at - perf_counter()))


def _used_s(client, pid, size, idle_share):
    began, before = perf_counter(), process_cpu_s(pid)
    _send(client, size, _REQUESTS)
    return process_cpu_s(pid) - before - idle_share * (perf_counter() - began)


def _idle_share(pid):
    """CPU seconds a second of a router that has nothing to do."""
    began, before = perf_counter(), process_cpu_s(pid)
    until(lambda: perf_counter() - began > _IDLE_S, "some time has passed")
    return (process_cpu_s(pid) - before) / (perf_counter() - began)
