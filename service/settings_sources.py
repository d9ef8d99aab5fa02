"""Reads the settings of one process from flags, the environment and a file, in that order."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..wire.errors import SettingsError
from ..wire.names import shown
from ..wire.numbers import Range, shown_value
from ..wire.texts import safe_text
from .addresses import absolute_store
from .ownership import why_not_ours
from .regular_files import read_regular
from .secret_files import is_private, read_secret
from .settings import SETTING_ROWS, VARIABLE_PREFIX, SettingRow, Settings

CONFIG_VARIABLE = "BATCHFLEET_CONFIG"
CONFIG_FILE = "batchfleet.toml"
# Variables with our prefix that are not settings of a process.
_OTHER_VARIABLES = re.compile(
    r"BATCHFLEET_(CONFIG|DEVICE_PROCESS|FAULT_POINTS|JOBS_REDIS_URL|REDIS_SERVER|TEST_[A-Z0-9_]*)"
)
_FILE_BYTES_MAX = 1_000_000
_FILE_NAMES = {row.file_name: row.name for row in SETTING_ROWS.values() if row.file_name}


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
    if row.secret and text and "://" not in text:  # perhaps it is the password alone
        return f"{given.origin}: {row.name} {fault}"
    value = row.shown(given.value) if isinstance(given.value, str) else given.value
    return f"{given.origin}: {row.name} is {shown_value(value)}; it {fault}"


def _contradictions(settings: Settings) -> list[str]:
    if settings.beat_ms * 2 > settings.lease_ms:
        return [
            f"beat_ms is {settings.beat_ms} and lease_ms {settings.lease_ms}; "
            "lease_ms must be at least 2 × beat_ms, or live workers are declared dead"
        ]
    return []
