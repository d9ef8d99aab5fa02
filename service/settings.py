"""Settings of one process: read once, checked as a whole, frozen.

One table says everything about them: the fields of `Settings`. A value comes from a flag, or
`BATCHFLEET_<NAME>`, or the TOML file, or the default, in that order. Nobody else reads the
environment. What an operator sets for a whole fleet is in the deploy record instead
(`wire/deployment.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..wire.errors import SettingsError
from ..wire.names import RULE, is_name
from ..wire.numbers import Range
from .addresses import masked_url, redis_url_fault
from .code_terms import code_terms_fault, environment_terms_fault, variables_fault
from .logs import LOG_FORMATS, LOG_LEVELS

VARIABLE_PREFIX = "BATCHFLEET_"
OWN_CODE = "own"
_DURATION_MS_MAX = 86_400_000
_DEVICE = re.compile(r"cpu(:\d{1,4}(-\d{1,4})?)?|cuda:\d{1,3}")
_PATTERN = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9*?._-]{0,127}")

Rule = Callable[[str], str]
"""Says what is wrong with a text; empty where nothing is."""


def _one_of(*choices: str) -> Rule:
    def rule(value: str) -> str:
        return "" if value in choices else f"must be one of {', '.join(choices)}"

    return rule


def _name(value: str) -> str:
    return "" if is_name(value) else f"is not a name: {RULE}"


def _device(value: str) -> str:
    return "" if _DEVICE.fullmatch(value) else "must be cpu, cpu:0-1 (cores) or cuda:0 (number)"


def _patterns(value: str) -> str:
    fits = all(_PATTERN.fullmatch(part.strip()) for part in value.split(","))
    return "" if fits else "must be names separated by commas, with * and ? as wildcards"


def _optional_url(value: str) -> str:
    return redis_url_fault(value) if value else ""


def _anything(_: str) -> str:
    return ""


def _not_empty(value: str) -> str:
    return "" if value else "must not be empty"


_duration = Range(1, _DURATION_MS_MAX)
_WORKER = ("consumer", "up")  # the programs that start workers


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One row of the table.

    Attributes:
        name: as in the TOML file; the flag and the variable are made from it.
        kind: `str` or `int`.
        default: what holds where nobody says anything.
        meaning: one line for people.
        programs: which programs look at it; empty = all.
        secret: may hold a password, so it is shown masked and may come from a file of its own.
        rule: what else a text must fulfil, or the range of a number.
    """

    name: str
    kind: type[str] | type[int]
    default: str | int
    meaning: str
    programs: tuple[str, ...]
    secret: bool
    rule: Rule | Range

    @property
    def flag(self) -> str:
        """Its flag, such as `--lease-ms`."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its environment variable, such as `BATCHFLEET_LEASE_MS`."""
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def file_name(self) -> str:
        """The name, in the TOML file, of a file that holds the value; empty where it is no secret.

        Its variable is `BATCHFLEET_<NAME>_FILE`.
        """
        return f"{self.name}_file" if self.secret else ""

    def holds_password(self, value: Any) -> bool:
        """Whether there is something in the value that must not be shown."""
        return self.secret and isinstance(value, str) and self.shown(value) != value

    def fault(self, value: Any) -> str:
        """What is wrong with a value; empty where nothing is."""
        if isinstance(self.rule, Range):
            return self.rule.fault(value)
        return self.rule(value) if isinstance(value, str) else "must be text"

    def shown(self, value: Any) -> str:
        """The value as it may be printed."""
        return masked_url(str(value)) if self.secret else str(value)


def _row(
    default: str | int,
    meaning: str,
    *programs: str,
    rule: Rule | Range = _not_empty,
    secret: bool = False,
) -> Any:
    metadata = {"meaning": meaning, "programs": programs, "rule": rule, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process, and their table. Durations are milliseconds."""

    redis_url: str = _row(
        "",
        "URL of the Redis server",
        rule=redis_url_fault,
        secret=True,
    )
    jobs_redis_url: str = _row(
        "",
        "URL of the Redis server in which steps of rolls are queued; if empty, redis_url",
        "jobs",
        "up",
        rule=_optional_url,
        secret=True,
    )
    namespace: str = _row("bf", "prefix of every key; separates fleets on one server", rule=_name)
    tenant: str = _row(
        "default",
        "tenant: a group of callers with its own request stream",
        "client",
        "up",
        rule=_name,
    )
    store: str = _row(
        "./store", "model store: a folder or an fsspec URL", *_WORKER, "jobs", secret=True
    )
    shared_store: str = _row(
        "",
        "the same path as store, to use it even if other users can write to it",
        *_WORKER,
        rule=_anything,
        secret=True,
    )
    models: str = _row(
        "*", "names of the deployed models to serve, e.g. 'a,ocr-*'", *_WORKER, rule=_patterns
    )
    device: str = _row(
        "cpu", "device for the models: cpu, cpu:0-1 (cores) or cuda:0", *_WORKER, rule=_device
    )
    threads: int = _row(
        1, "threads that PyTorch uses for one operation", *_WORKER, rule=Range(1, 1024)
    )
    device_processes: int = _row(
        4,
        "maximum number of separate processes for versions that were deployed while others served, "
        "or that crashed the shared process",
        *_WORKER,
        rule=Range(1, 64),
    )
    warm_slice_ms: int = _row(
        100,
        "longest warm-up batch of a version that loads in a process which serves others",
        *_WORKER,
        rule=_duration,
    )
    allow_code: str = _row(
        "",
        "code that a worker may run: none, own (local files that no other user can write to), "
        "digest:<sha256>,…, dist:<name>,… (all of an installed distribution), or any; if empty, "
        "own for `up` and none for `consumer`",
        *_WORKER,
        rule=code_terms_fault,
    )
    allow_environments: str = _row(
        "",
        "Python environments that a worker may run: none, built (by `models environment build`), "
        "or paths of virtual environments; if empty, built",
        *_WORKER,
        rule=environment_terms_fault,
    )
    device_environment: str = _row(
        "",
        "extra environment variables that models can see, e.g. 'AWS_*,MY_KEY'",
        *_WORKER,
        rule=variables_fault,
    )
    cache: str = _row(
        "",
        "folder for copies of remote stores and for environments; if empty, ~/.cache/batchfleet",
        *_WORKER,
        rule=_anything,
    )
    lease_ms: int = _row(
        3000,
        "a worker without a heartbeat for this long is declared dead",
        *_WORKER,
        rule=_duration,
    )
    beat_ms: int = _row(1000, "heartbeat interval of a worker", *_WORKER, rule=_duration)
    refresh_ms: int = _row(
        1000,
        "interval at which routers and workers check for deployments and limits",
        "router",
        "consumer",
        "up",
        rule=_duration,
    )
    grace_ms: int = _row(
        20_000, "maximum time for a clean stop", "router", "consumer", "up", rule=_duration
    )
    recover_ms: int = _row(
        1000, "maximum interval between checks for dead workers", *_WORKER, rule=_duration
    )
    no_worker_ms: int = _row(
        10_000,
        "how long a request waits while no worker has its version loaded or loading",
        "router",
        "up",
        rule=_duration,
    )
    workers: int = _row(1, "number of workers that `up` starts", "up", rule=Range(0, 256))
    log_level: str = _row(
        "info", "minimum log level: debug, info, warning or error", rule=_one_of(*LOG_LEVELS)
    )
    log_format: str = _row("console", "log format: console or json", rule=_one_of(*LOG_FORMATS))

    @property
    def shares_store(self) -> bool:
        """Whether the operator allowed this very store though others may write to it."""
        same = Path(self.shared_store).resolve() == Path(self.store).resolve()
        return same and bool(self.shared_store)

    def require_redis_url(self) -> str:
        """The server's URL.

        Raises:
            SettingsError: none was given.
        """
        if not self.redis_url:
            raise SettingsError(
                "no Redis server is set: use BATCHFLEET_REDIS_URL or --redis-url, "
                "or start a fleet with `batchfleet up`"
            )
        return self.redis_url


def _rows() -> dict[str, SettingRow]:
    defaults = Settings()
    return {
        item.name: SettingRow(
            name=item.name,
            kind=type(getattr(defaults, item.name)),
            default=getattr(defaults, item.name),
            **item.metadata,
        )
        for item in fields(Settings)
    }


SETTING_ROWS: Mapping[str, SettingRow] = _rows()
SECRET_FILE_VARIABLES = frozenset(
    VARIABLE_PREFIX + row.file_name.upper() for row in SETTING_ROWS.values() if row.file_name
)
