"""Settings of one process: read once, checked as a whole, frozen.

One table says everything about them: the fields of `Settings`. A value comes from a flag, or
`BATCHFLEET_<NAME>`, or the TOML file, or the default, in that order. Nobody else reads the
environment. What an operator sets for a whole fleet is in the deploy record instead
(`wire/deployment.py`).
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..wire.errors import SettingsError
from ..wire.names import RULE, is_name, shown
from ..wire.numbers import Range, shown_value
from ..wire.texts import safe_text
from .addresses import absolute_store, masked_url, redis_url_fault
from .code_terms import code_terms_fault, environment_terms_fault, variables_fault
from .logs import LOG_FORMATS, LOG_LEVELS
from .ownership import why_not_ours
from .regular_files import read_regular
from .secret_files import is_private, read_secret

VARIABLE_PREFIX = "BATCHFLEET_"
CONFIG_VARIABLE = "BATCHFLEET_CONFIG"
CONFIG_FILE = "batchfleet.toml"
# Variables with our prefix that are not settings of a process.
_OTHER_VARIABLES = re.compile(
    r"BATCHFLEET_(CONFIG|DEVICE_PROCESS|FAULT_POINTS|JOBS_REDIS_URL|REDIS_SERVER|TEST_[A-Z0-9_]*)"
)
OWN_CODE = "own"
_DURATION_MS_MAX = 86_400_000
_FILE_BYTES_MAX = 1_000_000
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


def _anything(_: str) -> str:
    return ""


def _not_empty(value: str) -> str:
    return "" if value else "must not be empty"


_duration = Range(1, _DURATION_MS_MAX)


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
        "URL of the Redis server; if empty, `up` starts a private one and other commands fail",
        rule=redis_url_fault,
        secret=True,
    )
    namespace: str = _row("bf", "prefix of every key; separates fleets on one server", rule=_name)
    tenant: str = _row(
        "default", "tenant (group of callers) that requests belong to", "client", "up", rule=_name
    )
    store: str = _row(
        "./store",
        "model store: a folder or an fsspec URL",
        "consumer",
        "up",
        secret=True,
    )
    shared_store: str = _row(
        "",
        "path of the store, to use it although other users can write to it",
        "consumer",
        "up",
        rule=_anything,
        secret=True,
    )
    models: str = _row(
        "*",
        "names of the deployed models to serve, e.g. 'a,ocr-*'",
        "consumer",
        "up",
        rule=_patterns,
    )
    device: str = _row(
        "cpu",
        "device for the models: cpu, cpu:0-1 (cores) or cuda:0",
        "consumer",
        "up",
        rule=_device,
    )
    threads: int = _row(1, "CPU threads per model operation", "consumer", "up", rule=Range(1, 1024))
    device_processes: int = _row(
        4,
        "maximum number of separate processes for versions that crashed the shared one",
        "consumer",
        "up",
        rule=Range(1, 64),
    )
    allow_code: str = _row(
        "",
        "code that a worker may run: none, own (local files that no other user can write to), "
        "digest:<sha256>,…, dist:<name>,… (all of an installed distribution), or any; if empty, "
        "own for `up` and none for `consumer`",
        "consumer",
        "up",
        rule=code_terms_fault,
    )
    allow_environments: str = _row(
        "",
        "Python environments that a worker may run: none, built (by `models environment build`), "
        "or paths of virtual environments; if empty, built",
        "consumer",
        "up",
        rule=environment_terms_fault,
    )
    device_environment: str = _row(
        "",
        "extra environment variables that models can see, e.g. 'AWS_*,MY_KEY'",
        "consumer",
        "up",
        rule=variables_fault,
    )
    cache: str = _row(
        "",
        "folder for copies of remote stores and for environments; if empty, ~/.cache/batchfleet",
        "consumer",
        "up",
        rule=_anything,
    )
    lease_ms: int = _row(
        3000,
        "a worker without a heartbeat for this long is declared dead",
        "consumer",
        "up",
        rule=_duration,
    )
    beat_ms: int = _row(1000, "heartbeat interval of a worker", "consumer", "up", rule=_duration)
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
        1000,
        "maximum interval between checks for dead workers",
        "consumer",
        "up",
        rule=_duration,
    )
    no_worker_ms: int = _row(
        10_000,
        "fail requests whose version no worker has ready or loading for this long",
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
_FILE_NAMES = {row.file_name: row.name for row in SETTING_ROWS.values() if row.file_name}
SECRET_FILE_VARIABLES = frozenset(VARIABLE_PREFIX + name.upper() for name in _FILE_NAMES)


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that somebody gave, and where."""

    value: Any
    origin: str


def load_settings(
    flags: Mapping[str, Any], environ: Mapping[str, str], config_path: Path | None = None
) -> tuple[Settings, Mapping[str, str]]:
    """Settings from all sources, and the origin of each value.

    Args:
        flags: setting name → value from the command line; None = not given.
        environ: the process's environment.
        config_path: the TOML file; None = `BATCHFLEET_CONFIG`, else `./batchfleet.toml` if there.

    Raises:
        SettingsError: anything is wrong anywhere; the text lists every fault, one a line.
    """
    faults: list[str] = []
    given = {
        **_from_file(_config_file(environ, config_path), faults),
        **_from_variables(environ, faults),
        **_from_flags(flags, faults),
    }
    complaints = {name: _complaint(SETTING_ROWS[name], one) for name, one in given.items()}
    faults += filter(None, complaints.values())
    values = {name: given[name].value for name in given if not complaints[name]}
    settings = located(Settings(**values))
    if not complaints.get("lease_ms") and not complaints.get("beat_ms"):
        faults += _contradictions(settings)
    if faults:
        raise SettingsError("invalid settings:\n" + "\n".join(f"- {f}" for f in faults))
    origins = {name: given[name].origin if name in given else "default" for name in SETTING_ROWS}
    return settings, origins


def located(settings: Settings) -> Settings:
    """The same settings with every path absolute, so that no later change of folder moves them."""
    cache = os.path.abspath(os.path.expanduser(settings.cache)) if settings.cache else ""  # noqa: PTH100, PTH111  as `store`
    shared = absolute_store(settings.shared_store) if settings.shared_store else ""
    store = absolute_store(settings.store)
    return replace(settings, store=store, shared_store=shared, cache=cache)


def _config_file(environ: Mapping[str, str], config_path: Path | None) -> Path | None:
    if config_path is not None:
        return config_path
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE])
    default = Path(CONFIG_FILE)
    return default if os.path.lexists(default) else None


def _from_file(path: Path | None, faults: list[str]) -> dict[str, _Given]:
    if path is None:
        return {}
    # It may say whose code runs here, and where the server is.
    if why := why_not_ours([path]):
        faults.append(f"file {path} is not read: {why}")
        return {}
    try:
        table = tomllib.loads(read_regular(path, _FILE_BYTES_MAX).decode())
    except (OSError, ValueError, RecursionError) as error:  # no TOML, or numbers beyond all digits
        faults.append(f"file {path}: {error}")
        return {}
    origin = f"file {path}"
    given = _with_secret_files({name: (f"{origin}: {name}", table[name]) for name in table}, faults)
    faults += [f"{origin}: {_unknown(name, SETTING_ROWS)}" for name in given.keys() - SETTING_ROWS]
    found = {name: _Given(given[name][1], origin) for name in SETTING_ROWS if name in given}
    secrets = [name for name in found if SETTING_ROWS[name].holds_password(table.get(name))]
    if secrets and not is_private(path):
        faults.append(
            f"{origin}: {secrets[0]} contains a password and other users can read it; chmod 600"
        )
    return found


def _with_secret_files(
    given: Mapping[str, tuple[str, Any]], faults: list[str]
) -> dict[str, tuple[str, Any]]:
    """Setting name → (place, value), with the values that are said to lie in files."""
    found = {name: one for name, one in given.items() if name not in _FILE_NAMES}
    for file_name, (place, path) in given.items():
        name = _FILE_NAMES.get(file_name)
        if name is None or path == "":
            continue
        if name in given:
            faults.append(f"{place} and {name} are both set; set only one of them")
            continue
        try:
            found[name] = (place, read_secret(Path(path)))
        except OSError as error:
            faults.append(f"{place} is {shown_value(str(path))}: {error.strerror}")
        except (TypeError, ValueError):
            faults.append(f"{place} is not a readable UTF-8 file")
    return found


def _from_variables(environ: Mapping[str, str], faults: list[str]) -> dict[str, _Given]:
    known = {row.variable: name for name, row in SETTING_ROWS.items()}
    known |= {VARIABLE_PREFIX + name.upper(): name for name in _FILE_NAMES}
    ours = sorted(name for name in environ if name.startswith(VARIABLE_PREFIX))
    faults += [
        f"environment: {_unknown(name, known)}"
        for name in ours
        if name not in known and not _OTHER_VARIABLES.fullmatch(name)
    ]
    named = {known[name]: (f"environment {name}", environ[name]) for name in ours if name in known}
    return {
        name: _Given(_read_text(SETTING_ROWS[name], value), origin)
        for name, (origin, value) in _with_secret_files(named, faults).items()
    }


def _from_flags(flags: Mapping[str, Any], faults: list[str]) -> dict[str, _Given]:
    faults += [f"flags: {_unknown(name, SETTING_ROWS)}" for name in flags.keys() - SETTING_ROWS]
    return {
        name: _Given(_read_text(row, flags[name]), f"flag {row.flag}")
        for name, row in SETTING_ROWS.items()
        if flags.get(name) is not None
    }


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no setting {shown(name)}{hint}"


def _read_text(row: SettingRow, value: Any) -> Any:
    """Text as a value of the row's type where it spells one; all else as it is.

    Flags and variables are text by nature; in a TOML file a number is a number.
    """
    if isinstance(row.rule, Range) and isinstance(value, str):
        number = row.rule.read(value)
        return value if number is None else number
    return value


def _complaint(row: SettingRow, given: _Given) -> str:
    """The whole sentence about a value that cannot be used; empty where it can."""
    text = given.value if isinstance(given.value, str) else ""
    fault = row.fault(given.value)
    if text != safe_text(text, len(text)):
        fault = "must be text in UTF-8 without control characters"
    if not fault:
        return ""
    value = row.shown(given.value) if isinstance(given.value, str) else given.value
    return f"{given.origin}: {row.name} is {shown_value(value)}; it {fault}"


def _contradictions(settings: Settings) -> list[str]:
    if settings.beat_ms * 2 > settings.lease_ms:
        return [
            f"beat_ms is {settings.beat_ms} and lease_ms {settings.lease_ms}; "
            "lease_ms must be at least 2 × beat_ms, or live workers are declared dead"
        ]
    return []
