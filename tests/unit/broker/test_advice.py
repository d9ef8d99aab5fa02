"""T7, T16: which values of the server's settings are worth a word, and which is the right one."""

import pytest

from batchfleet.broker.advice import bytes_of, on_settings

GOOD = {
    "proto-max-bulk-len": "68157440",
    "client-query-buffer-limit": "1073741824",
    "maxmemory-clients": "268435456",
}
HOLDS_UP = "lets one client fill the server's memory and hold up all others"
TOO_SMALL = "is too small for outputs of up to 64 MiB"


def test_the_documented_values_are_good():
    assert [*on_settings(GOOD, is_shared=True)] == []


@pytest.mark.parametrize(
    ("name", "value", "harm", "good"),
    [
        ("proto-max-bulk-len", "536870912", HOLDS_UP, "65mb"),
        ("proto-max-bulk-len", "1048576", TOO_SMALL, "65mb"),
        ("client-query-buffer-limit", "1048576", TOO_SMALL, "1gb"),
        ("maxmemory-clients", "0", HOLDS_UP, "256mb"),
        ("maxmemory-clients", "2147483648", HOLDS_UP, "256mb"),
        ("maxmemory-clients", "1048576", TOO_SMALL, "256mb"),
    ],
)
def test_the_others_are_one_sentence_that_names_the_fix(name, value, harm, good):
    said = f"{name} is {value}, which {harm}: set `{name} {good}`"
    assert [*on_settings(GOOD | {name: value}, is_shared=True)] == [said]
    is_told_alone = harm == TOO_SMALL
    assert [*on_settings(GOOD | {name: value}, is_shared=False)] == [said] * is_told_alone


def test_a_server_without_a_setting_or_with_a_share_of_its_memory_is_left_alone():
    assert [*on_settings({"maxmemory-clients": "25%"}, is_shared=True)] == []


@pytest.mark.parametrize(
    ("value", "size"),
    [("65mb", 65 << 20), ("1GB", 1 << 30), ("7", 7), ("-5", None), ("", None), ("mb", None)],
)
def test_sizes(value, size):
    assert bytes_of(value) == size
