"""The deploy record: what a model may do, as routers and workers see it.

The hash `ns:{m}:deploy` holds one field `version:<name>` a version offered (JSON: signature, length
rule and limits copied from the manifest), `draining:<name>` where buckets of it went out of
service, `workers:<name>` where some workers alone load it, `kept:<name>` for each version kept for
going back to, `set:<limit>` for each limit that the operator overrides, and `stable`, `canary`,
`roll`, `epoch`, `nonce`, `intake`. It is the only source at run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any, NamedTuple

import orjson

from . import limits as ceiling
from .canary import Canary, WorkerChoice, read_canary
from .errors import SettingsError
from .names import is_name, shown
from .numbers import Range, shown_value
from .reading import (
    as_map,
    epoch_in,
    fields_after,
    from_json,
    nonce_in,
    ratio,
    text_in,
    whole_numbers,
)
from .references import is_prefix
from .signature import Signature

TRUNCATE_POLICIES = ("end", "refuse")
INTAKES = ("open", "hold", "refuse")
# How near answers are to those of plain 32-bit arithmetic; which of them is fixed by deploying.
EXACT, FP32, BF16 = "exact", "fp32", "bf16"
PRECISIONS = (EXACT, FP32, BF16)
_NO_LENGTH_BUCKETS = (0,)
# A limit that each worker finds by what it measures; 0 in `Limits`.
AUTO = "auto"
# Rows of a full batch to begin with where they are found so.
AUTO_ROWS = 32


@dataclass(frozen=True, slots=True)
class LimitRow:
    """Meaning and range of one limit, both ends included; it may be `auto` where `or_auto`."""

    meaning: str
    lowest: float
    highest: float
    or_auto: bool = False

    def range_of(self, *, whole: bool) -> Range:
        """The numbers that it may be."""
        return Range(self.lowest, self.highest, whole)


LIMIT_ROWS: dict[str, LimitRow] = {
    "max_batch_size": LimitRow("maximum rows in one batch", 1, 4096, or_auto=True),
    "max_batch_tokens": LimitRow(
        "maximum of longest row × rows in one batch", 1, 10_000_000, or_auto=True
    ),
    "max_batch_ms": LimitRow("maximum estimated run time of one batch", 1, 600_000),
    "max_padding": LimitRow(
        "maximum ratio of padded to real tokens in one batch", 1, 1000, or_auto=True
    ),
    "max_batch_delay_ms": LimitRow("how long an idle device may wait for more rows", 0, 1000),
    "max_attempts": LimitRow("lost processes after which a request fails", 1, 100),
    "age_cap_ms": LimitRow("a row that has waited this long is run first", 1, 600_000),
    "backlog": LimitRow("maximum open requests; more are answered busy", 1, 10_000_000),
    "max_request_bytes": LimitRow("maximum bytes of inputs", 1, ceiling.INPUTS_BYTES_MAX),
    "max_rows_per_request": LimitRow("maximum rows of one request", 1, ceiling.ROWS_MAX),
    "max_length": LimitRow("maximum tokens of one row; 0 = no limit", 0, 10_000_000),
    "timeout_ms": LimitRow("default timeout of a request", 1, ceiling.TIMEOUT_MS_MAX),
    "result_ttl_ms": LimitRow("how long a reply is kept", 1000, ceiling.RESULT_TTL_MS_MAX),
    "load_ms": LimitRow("time limit of loading and warming up the version", 1000, 7_200_000),
    "preprocess_ms": LimitRow("time limit of preprocessing one request", 1, 600_000),
    "predict_ms": LimitRow("time limit of one batch on the device", 1, 3_600_000),
    "postprocess_ms": LimitRow("time limit of postprocessing one request", 1, 600_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one version in force. Units are in the names, meanings in `LIMIT_ROWS`.

    0 stands for `auto` where a limit may be that.
    """

    max_batch_size: int = 0
    max_batch_tokens: int = 0
    max_batch_ms: int = 10_000
    max_padding: float = 0.0
    max_batch_delay_ms: float = 2.0
    max_attempts: int = 3
    age_cap_ms: int = 500
    backlog: int = 10_000
    max_request_bytes: int = 4 * 1024 * 1024
    max_rows_per_request: int = ceiling.ROWS_MAX
    max_length: int = 0
    timeout_ms: int = ceiling.TIMEOUT_MS_DEFAULT
    result_ttl_ms: int = ceiling.RESULT_TTL_MS_DEFAULT
    load_ms: int = 600_000
    preprocess_ms: int = 10_000
    predict_ms: int = 60_000
    postprocess_ms: int = 10_000
    truncate: str = "refuse"
    buckets: tuple[int, ...] = _NO_LENGTH_BUCKETS
    input_prefixes: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The map that goes into a manifest or a deploy record."""
        return {item.name: _plain(item.name, getattr(self, item.name)) for item in fields(self)}


_DEFAULTS = Limits()


def _plain(name: str, value: Any) -> Any:
    if value == 0 and name in LIMIT_ROWS and LIMIT_ROWS[name].or_auto:
        return AUTO
    return list(value) if isinstance(value, tuple) else value


def check_limit(name: str, value: Any) -> Any:
    """Return `value` in the type of limit `name`.

    Raises:
        SettingsError: no such limit, or a value out of its range; the text names the range.
    """
    if name == "buckets":
        return _check_buckets(value)
    if name == "input_prefixes":
        return _check_prefixes(value)
    if name == "truncate":
        if value not in TRUNCATE_POLICIES:
            raise SettingsError(f"truncate is {shown_value(value)}; use 'end' or 'refuse'")
        return value
    row = LIMIT_ROWS.get(name)
    if row is None:
        known = ", ".join(sorted([*LIMIT_ROWS, "buckets", "input_prefixes", "truncate"]))
        raise SettingsError(f"unknown limit {shown(name)}; the limits are: {known}")
    if row.or_auto and value == AUTO:
        return getattr(_DEFAULTS, name)
    limits = row.range_of(whole=isinstance(getattr(_DEFAULTS, name), int))
    if limits.whole and isinstance(value, float) and value.is_integer():
        value = int(value)
    if fault := limits.fault(value):
        kind = "" if isinstance(value, int | float) else ", which is not a number"
        auto = f", or {AUTO!r}" if row.or_auto else ""
        raise SettingsError(f"{name} is {shown_value(value)}{kind}; it {fault}{auto}")
    return limits.plain(value)


_EDGE = Range(0, 10_000_000)


def _check_buckets(value: Any) -> tuple[int, ...]:
    edges = list(value) if isinstance(value, list | tuple) else []
    fits = 1 <= len(edges) <= 64 and not any(map(_EDGE.fault, edges))
    if not fits or edges != sorted(set(edges)):
        raise SettingsError(
            f"buckets are {shown_value(value)}; they must be 1 to 64 rising whole numbers "
            f"up to {_EDGE.highest}"
        )
    return tuple(edges)


def _check_prefixes(value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list | tuple) and len(value) <= ceiling.INPUT_PREFIXES_MAX
    if not is_list or not all(isinstance(text, str) and is_prefix(text) for text in value):
        raise SettingsError(
            f"input_prefixes are {shown_value(value)}; they must be up to "
            f"{ceiling.INPUT_PREFIXES_MAX} URLs that end with a slash"
        )
    return tuple(value)


def limits_from_wire(values: Mapping[str, Any], base: Limits | None = None) -> Limits:
    """`base` (or the defaults) with `values` laid over it.

    Raises:
        SettingsError: a value that `check_limit` refuses.
    """
    checked = {name: check_limit(name, value) for name, value in values.items()}
    return replace(base or Limits(), **checked)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """What the fleet knows of one version without opening its folder.

    `bytes_per_token` is the published ratio from which a router estimates a length; 0 means that
    the model has no length rule and all its requests share the one bucket 0. `precision` is one of
    `PRECISIONS`: an index must not mix answers of several. `draining` are edges of buckets that
    went out of service. `deployed` is new with every deploy of this very version.
    """

    version: str
    runtime: str = ""
    environment: str = ""
    device: str = "any"
    lineage: str = ""
    precision: str = EXACT
    deployed: str = ""
    bytes_per_token: float = 0.0
    signature: Signature = field(default_factory=Signature)
    limits: Limits = field(default_factory=Limits)
    draining: tuple[int, ...] = ()

    @property
    def edges(self) -> tuple[int, ...]:
        """Edges of all buckets whose streams are read: those in service, and those draining."""
        return (*self.limits.buckets, *self.draining)

    def to_wire(self) -> bytes:
        """JSON, the value of the field `version:<name>`."""
        return orjson.dumps(
            {
                "version": self.version,
                "runtime": self.runtime,
                "environment": self.environment,
                "device": self.device,
                "lineage": self.lineage,
                "precision": self.precision,
                "deployed": self.deployed,
                "bytes_per_token": self.bytes_per_token,
                "signature": self.signature.to_wire(),
                "limits": self.limits.to_wire(),
            }
        )

    @staticmethod
    def from_wire(raw: bytes, overrides: Mapping[str, Any]) -> "VersionRecord":
        """Read a record and lay the operator's overrides over its limits.

        Limits that this release does not know are passed over: they come from a newer one.

        Raises:
            SettingsError: not a record, or one with a value out of its range.
        """
        wire = from_json("a version's record", raw)
        return VersionRecord.from_map(as_map("a version's record", wire), overrides)

    @staticmethod
    def from_map(wire: Mapping[str, Any], overrides: Mapping[str, Any]) -> "VersionRecord":
        """The same from what the JSON says.

        Raises:
            SettingsError: a value out of its range.
        """
        limits = limits_from_wire(_known_limits(as_map("limits", wire.get("limits", {}))))
        return VersionRecord(
            version=text_in(wire, "version"),
            runtime=text_in(wire, "runtime", ""),
            environment=text_in(wire, "environment", ""),
            device=text_in(wire, "device", "any"),
            lineage=text_in(wire, "lineage", ""),
            precision=_precision(text_in(wire, "precision", EXACT)),
            deployed=text_in(wire, "deployed", ""),
            bytes_per_token=ratio(wire.get("bytes_per_token", 0.0)),
            signature=Signature.from_wire(wire.get("signature", {})),
            limits=limits_from_wire(_known_limits(overrides), limits),
        )

    def length_of(self, inputs_bytes: int, rows: int) -> int:
        """Estimate the tokens of one row from the size of the whole body; at least 1."""
        if self.bytes_per_token <= 0:
            return 1
        body = max(1, inputs_bytes - _ENVELOPE_BYTES - _ROW_BYTES * rows)
        return max(1, ceil(body / max(1, rows) / self.bytes_per_token))

    def bucket_of(self, length: int) -> int:
        """The first bucket edge that `length` fits under, else the last one."""
        edges = self.limits.buckets
        return next((edge for edge in edges if length <= edge), edges[-1])


def _precision(text: str) -> str:
    if text not in PRECISIONS:
        raise SettingsError(f"precision is {shown(text)}; use {', '.join(PRECISIONS)}")
    return text


def _known_limits(values: Mapping[str, Any]) -> dict[str, Any]:
    known = {item.name for item in fields(Limits)}
    return {name: value for name, value in values.items() if name in known}


# `{"text": []}` around the rows, and quotes with a comma around each.
_ENVELOPE_BYTES = 12
_ROW_BYTES = 3


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A version that was withdrawn: its record as published, and the epoch since when."""

    epoch: int
    record: VersionRecord

    @staticmethod
    def from_wire(field: str, raw: bytes) -> "KeptVersion":
        """Read a field `kept:<version>`.

        Raises:
            SettingsError: it is none, or of another version.
        """
        wire = as_map(field, from_json(field, raw))
        epoch: Any = wire.get("epoch")
        if _EPOCH.fault(epoch):
            raise SettingsError(f"epoch of {field} is {shown_value(epoch)}, not a whole number")
        record = VersionRecord.from_map(as_map(field, wire.get("record")), {})
        if f"{_KEPT}{record.version}" != field:
            raise SettingsError(f"{field} has the name of another version")
        return KeptVersion(int(epoch), record)


_KEPT = "kept:"
_WORKERS = "workers:"
_EPOCH = Range(0, 10**19 - 1)


class Stamp(NamedTuple):
    """Which record it is. Compared for equality: after a loss, an epoch may come a second time."""

    epoch: int = 0
    nonce: str = ""

    @staticmethod
    def from_wire(epoch: bytes | None, nonce: bytes | None) -> "Stamp | None":
        """Read one out of a hash; None where there is none that any program could act on."""
        try:
            return Stamp(epoch_in(epoch or b"0"), nonce_in(nonce or b""))
        except SettingsError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model as deployed; a snapshot that is replaced as a whole when the epoch moves.

    `versions` are those offered: loaded, and open to requests that name them. `kept` are neither.
    `workers` says of some versions which workers load them. `roll` is for operators to read.
    """

    model: str
    epoch: int = 0
    nonce: str = ""
    stable: str = ""
    intake: str = "open"
    versions: Mapping[str, VersionRecord] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    canary: Canary | None = None
    kept: Mapping[str, KeptVersion] = field(default_factory=dict)
    workers: Mapping[str, WorkerChoice] = field(default_factory=dict)
    roll: bytes = b""

    @property
    def stamp(self) -> Stamp:
        """What tells this record from those before and after it."""
        return Stamp(self.epoch, self.nonce)

    @property
    def limits(self) -> Limits:
        """The limits of the stable version, for what concerns the model as a whole."""
        return self.versions[self.stable].limits

    def version_for(self, request_id: str) -> str:
        """The version that a request that names none goes to."""
        canary = self.canary
        return canary.version if canary is not None and canary.takes(request_id) else self.stable

    def is_default(self, version: str) -> bool:
        """Whether requests that name no version may go to this one."""
        canary = self.canary
        has_share = canary is not None and canary.weight > 0 and canary.version == version
        return has_share or version == self.stable

    def loads(self, version: str, worker: str) -> bool:
        """Whether this worker is to load a version; not one that is not offered."""
        choice = self.workers.get(version)
        return version in self.versions and (choice is None or choice.includes(worker))

    @staticmethod
    def from_hash(model: str, raw: Mapping[str, bytes]) -> "Deployment | None":
        """Read the deploy hash; None where the model is not deployed.

        Raises:
            SettingsError: a hand other than `deploy` wrote it; the model cannot be served.
        """
        if "stable" not in raw:
            return None
        overrides = {
            name: from_json(f"set:{name}", value)
            for name, value in fields_after(raw, "set:").items()
        }
        versions = {
            name: _read_version(name, raw, overrides)
            for name in fields_after(raw, "version:")
            if is_name(name)
        }
        kept = {
            name: KeptVersion.from_wire(f"{_KEPT}{name}", value)
            for name, value in fields_after(raw, _KEPT).items()
            if name not in versions
        }
        stable = raw["stable"].decode(errors="replace")
        if any(name != record.version for name, record in versions.items()):
            raise SettingsError(f"{model}: the record of a version has the name of another version")
        if stable not in versions:
            raise SettingsError(f"{model}: stable is {shown(stable)}, which has no record")
        return Deployment(
            model=model,
            epoch=epoch_in(raw.get("epoch", b"0")),
            nonce=nonce_in(raw.get("nonce", b"")),
            stable=stable,
            intake=_intake(raw.get("intake", b"open")),
            versions=versions,
            overrides=overrides,
            canary=read_canary(raw, versions),
            kept=kept,
            workers={
                name: WorkerChoice.from_wire(f"{_WORKERS}{name}", value)
                for name, value in fields_after(raw, _WORKERS).items()
            },
            roll=raw.get("roll", b""),
        )


def _read_version(
    name: str, raw: Mapping[str, bytes], overrides: Mapping[str, Any]
) -> VersionRecord:
    record = VersionRecord.from_wire(raw[f"version:{name}"], overrides)
    listed = raw.get(f"draining:{name}")
    if listed is None:
        return record
    edges = whole_numbers("the list of draining buckets", listed)
    return replace(record, draining=tuple(e for e in edges if e not in record.limits.buckets))


def _intake(raw: bytes) -> str:
    intake = raw.decode(errors="replace")
    if intake not in INTAKES:
        raise SettingsError(f"intake is {shown(intake)}; use one of: {', '.join(INTAKES)}")
    return intake
