"""Which CPU this is: some bounds are those of the CPU on which they were measured first."""

from pathlib import Path

_INFO = Path("/proc/cpuinfo")
_FLAGS = {"avx512f", "avx512_vnni", "avx512_bf16"}


def is_first_cpu(info):
    """Whether it is an AMD with AVX-512, VNNI and bf16, by the text of `/proc/cpuinfo`."""
    facts = dict(line.partition(":")[::2] for line in info.split("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    return (
        facts.get("vendor_id") == "AuthenticAMD" and set(facts.get("flags", "").split()) >= _FLAGS
    )


def here():
    """The same of this machine; False where there is nothing to read."""
    return _INFO.exists() and is_first_cpu(_INFO.read_text())
