"""What a program tells the operator at its start; none of it stops the program.

Rights that its user should not have, and settings of the server that lose requests or let one
client hold up all others. What the user may not ask the server is passed over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..service.events import Events
from ..service.settings import Settings
from ..wire.limits import OUTPUTS_BYTES_MAX
from .commands import Command, plain
from .errors import RefusedError
from .fleet import server_info
from .interface import Executor
from .rights import ADMINISTRATOR, SETTINGS_READER, missing_rights

_UNITS = {"kb": 2**10, "mb": 2**20, "gb": 2**30}


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting in bytes. `most` = 0: as many as one likes."""

    name: str
    least: int
    most: int
    good: str


# Outputs are written as one value, by one command. A command of many values is held in memory
# before it runs; only `maxmemory-clients` bounds that, and 0 there means no bound.
_SETTINGS = (
    _Setting("proto-max-bulk-len", OUTPUTS_BYTES_MAX, 2 * OUTPUTS_BYTES_MAX, "65mb"),
    _Setting("client-query-buffer-limit", OUTPUTS_BYTES_MAX, 0, "1gb"),
    _Setting("maxmemory-clients", 2 * OUTPUTS_BYTES_MAX, 8 * OUTPUTS_BYTES_MAX, "256mb"),
)


def advise(executor: Executor, events: Events, settings: Settings) -> None:
    """Emit `server.advice` for each thing that the operator should change.

    A server on a socket counts as one user's own, who need not be kept from filling it.

    Raises:
        ServerError: the server failed.
    """
    is_shared = not settings.redis_url.startswith("unix:")
    may_read = not executor.run(missing_rights(SETTINGS_READER, settings.namespace))
    advice = [
        *(_on_rights(executor, settings.namespace) if is_shared else ()),
        *_on_eviction(executor.run(server_info()).maxmemory_policy),
        *(on_settings(_read(executor), is_shared=is_shared) if may_read else ()),
    ]
    for reason in advice:
        events.emit("server.advice", reason=reason)


def _on_rights(executor: Executor, namespace: str) -> Iterable[str]:
    lacking = executor.run(missing_rights(ADMINISTRATOR, namespace))
    excess = [name for name in ADMINISTRATOR.commands if name not in lacking]
    if excess:
        yield (
            f"this program's Redis user may run {', '.join(excess)}: give each program a user with "
            "the rights in docs/rights.md, and none to the user `default`"
        )


def _on_eviction(policy: str) -> Iterable[str]:
    if policy not in ("", "noeviction"):
        yield (
            f"maxmemory-policy is {policy}, with which the server may delete requests: "
            "set `maxmemory-policy noeviction`"
        )


def on_settings(values: Mapping[str, str], *, is_shared: bool) -> Iterable[str]:
    """What to change of the settings with these values, as `CONFIG GET` gives them."""
    for setting in _SETTINGS:
        value = values.get(setting.name, "")
        size = bytes_of(value)
        if size is None:  # a share of `maxmemory`, or this server has no such setting
            continue
        is_unbounded = setting.most and (size == 0 or size > setting.most)
        if is_unbounded and is_shared:
            harm = "lets one client fill the server's memory and hold up all others"
        elif size < setting.least and not is_unbounded:
            harm = f"is too small for outputs of up to {OUTPUTS_BYTES_MAX >> 20} MiB"
        else:
            continue
        yield f"{setting.name} is {value}, which {harm}: set `{setting.name} {setting.good}`"


def bytes_of(value: str) -> int | None:
    """A size as `CONFIG GET` gives it, or as it was set; None where it is none."""
    number, unit = value, 1
    if value[-2:].lower() in _UNITS:
        number, unit = value[:-2], _UNITS[value[-2:].lower()]
    return int(number) * unit if number.isascii() and number.isdecimal() else None


def _read(executor: Executor) -> Mapping[str, str]:
    try:
        return executor.run(_settings())
    except RefusedError:  # a server that somebody else runs may keep its settings to itself
        return {}


def _settings() -> Command[Mapping[str, str]]:
    names = [setting.name for setting in _SETTINGS]
    return plain(
        lambda raw: {
            name.decode(): value.decode() for name, value in zip(raw[::2], raw[1::2], strict=True)
        },
        *("CONFIG", "GET", *names),
    )
