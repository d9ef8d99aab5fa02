"""What batches take and what is free, on a host with and without cgroups, and on a GPU."""

import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from batchfleet.consumer.device import batch_memory
from batchfleet.consumer.device.batch_memory import PeakMemory, free_bytes, free_host_bytes

MIB = 1 << 20


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host of 64 MiB, and a function that gives one of its cgroups a limit."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * MIB))
    root = tmp_path / "cgroup"
    membership = tmp_path / "membership"
    membership.write_text("1:name=systemd:/else\n0::/fleet/worker\n")
    (root / "fleet" / "worker").mkdir(parents=True)

    def limited(folder, limit, used_mib, reclaimable_mib=0):
        (root / folder / "memory.max").write_text(f"{limit}\n")
        (root / folder / "memory.current").write_text(f"{used_mib * MIB}\n")
        stat = f"anon 1\ninactive_file {reclaimable_mib * MIB}\n"
        (root / folder / "memory.stat").write_text(stat)

    limited.free_mib = lambda: free_host_bytes(membership, root) / MIB
    limited.membership = membership
    return limited


def test_without_cgroups_the_host_counts(host):
    assert host.free_mib() == 64
    host.membership.unlink()
    assert host.free_mib() == 64


@pytest.mark.parametrize("folder", ["", "fleet", "fleet/worker"])
def test_the_tightest_cgroup_above_the_process_counts(host, folder):
    host("fleet/worker", "max", 20)
    host(folder, 40 * MIB, 20)
    assert host.free_mib() == 20


def test_what_the_kernel_would_drop_counts_as_free(host):
    host("fleet/worker", 40 * MIB, 38, reclaimable_mib=30)
    assert host.free_mib() == 32


def test_a_cgroup_without_a_limit_or_with_a_wide_one_leaves_the_host(host):
    host("fleet/worker", "max", 20)
    host("fleet", 1000 * MIB, 20)
    assert host.free_mib() == 64


def test_a_cgroup_over_its_limit_has_nothing_left(host):
    host("fleet", 10 * MIB, 20)
    assert host.free_mib() == 0


def test_this_host_has_something_left():
    assert 0 < free_bytes("cpu") <= psutil.virtual_memory().total


def test_the_peak_of_this_process_counts_though_it_was_freed():
    memory = PeakMemory("cpu")
    np.ones(64 * MIB, np.uint8)
    grown = memory.grown_bytes()
    assert grown >= 60 * MIB
    assert PeakMemory("cpu").grown_bytes() < grown / 2, "a new one begins anew"


def test_a_system_that_does_not_tell_has_seen_no_growth(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_memory, "_OWN", tmp_path / "proc")
    assert PeakMemory("cpu").grown_bytes() == 0


def test_on_a_gpu_torch_says_both(monkeypatch):
    """Its own pool counts as free as far as nothing lies in it."""
    asked = []
    cuda = SimpleNamespace(
        mem_get_info=lambda device: (asked.append(device) or 50 * MIB, 100 * MIB),
        memory_reserved=lambda _: 30 * MIB,
        memory_allocated=lambda _: 10 * MIB,
        max_memory_allocated=lambda _: 25 * MIB,
        reset_peak_memory_stats=asked.append,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert free_bytes("cuda:1") == 70 * MIB
    assert PeakMemory("cuda:1").grown_bytes() == 15 * MIB
    assert asked == ["cuda:1"] * 2
    assert free_bytes("cpu") != 70 * MIB
