"""What is free of a machine's memory, and of the control groups around a process."""

import psutil

from batchfleet.service.memory import free_host_bytes


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(str(text))


def test_the_least_of_the_machine_and_of_all_groups_counts(tmp_path):
    write(tmp_path / "proc/self", cgroup="0::/pod/one\n")
    groups = tmp_path / "sys/fs/cgroup"
    write(groups / "pod/one", memory__max="max", memory__current=5, memory__stat="")
    write(groups / "pod", memory__max=9000, memory__current=8000, memory__stat="inactive_file 500")
    assert free_host_bytes(tmp_path) == 1500


def test_groups_of_the_first_kind_are_read_as_well(tmp_path):
    write(tmp_path / "proc/self", cgroup="5:devices:/a\n4:memory:/a\n")
    files = {"memory__limit_in_bytes": 100, "memory__usage_in_bytes": 130, "memory__stat": "a 1"}
    write(tmp_path / "sys/fs/cgroup/memory/a", **files)
    assert free_host_bytes(tmp_path) == 0


def test_without_groups_the_machine_counts(tmp_path):
    free = free_host_bytes(tmp_path)
    assert 0 < free <= psutil.virtual_memory().total
