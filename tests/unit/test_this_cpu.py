"""Some bounds of `make acceptance` are those of one CPU."""

import pytest
from acceptance.measuring.this_cpu import here, is_first_cpu

FLAGS = "fpu avx512f avx512_vnni avx512_bf16"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", FLAGS, True),
        ("AuthenticAMD", "fpu avx512f", False),
        ("GenuineIntel", FLAGS, False),
    ],
)
def test_the_cpu_is_told_by_vendor_and_flags(vendor, flags, expected):
    one = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
    assert is_first_cpu(one) is expected


def test_a_machine_that_tells_nothing_is_another_one():
    assert not is_first_cpu("")
    assert here() in (True, False)
