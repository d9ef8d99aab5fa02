import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.service.identity import new_worker_name
from batchfleet.wire.names import is_name


def test_name_shows_host_pid_and_nonce():
    assert new_worker_name("gpu-3", 4711, "9f2c01") == "gpu-3-4711-9f2c01"


@pytest.mark.parametrize(
    ("hostname", "expected"),
    [
        ("db..internal", "db-internal-1-abcdef"),
        ("_.host", "host-1-abcdef"),
        ("", "host-1-abcdef"),
        ("größe\n{x}", "gr-e-x-1-abcdef"),
        ("a" * 64, "a" * 40 + "-1-abcdef"),
    ],
)
def test_foreign_hosts_become_names(hostname, expected):
    assert new_worker_name(hostname, 1, "abcdef0123") == expected


@given(hostname=st.text(max_size=100), pid=st.integers(0, 2**22), nonce=st.integers(0, 2**24 - 1))
def test_every_host_gives_a_name(hostname, pid, nonce):
    assert is_name(new_worker_name(hostname, pid, f"{nonce:06x}"))


@pytest.mark.parametrize(("pid", "nonce"), [(-1, "abcdef"), (1, "abc"), (1, "ab:def"), (1, "")])
def test_what_cannot_be_a_name_is_refused(pid, nonce):
    with pytest.raises(ValueError, match="no worker name"):
        new_worker_name("host", pid, nonce)
