"""The manifest of one model version: all that a worker needs beside the files themselves.

A manifest is JSON and strict: an unknown key or an ill-formed value is a fault, and reading reports
all faults at once. The version's `lineage` names what its answers depend on.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sys import float_info
from typing import Any

import orjson

from ..wire.codec import plain_json, strict_shallow_json
from ..wire.deployment import (
    Limits,
    VersionRecord,
    check_limit,
    limits_from_wire,
)
from ..wire.errors import SettingsError, StoreError
from ..wire.names import RULE, is_name, shown
from ..wire.numbers import Range, shown_value
from ..wire.reading import BYTES_PER_TOKEN
from ..wire.signature import Signature, TensorSpec
from ..wire.tensors import BYTES, DATATYPES
from .code import RUNTIME, ModelCode, read_code
from .environment_rule import check_environment_name
from .files import FILES_MAX, FileEntry, is_file_name, is_sha256

MANIFEST_BYTES_MAX = 1_000_000
GOLDEN_MAX = 64
DEVICES = ("any", "cpu", "cuda")
LINEAGE_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One example that a loaded version must reproduce before it serves.

    Attributes:
        inputs: one request's inputs in wire form (JSON).
        outputs: the outputs in wire form, or `sha256:` and a hex digest of their JSON.
        tolerance: largest absolute difference of any number.
    """

    inputs: Any
    outputs: Any
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One immutable version of a model.

    Attributes:
        model, version: names; also the folder's path in the store.
        runtime: which class runs it, see `models/runtimes`.
        files: file name → size and sha256. Filled in by `Store.publish`.
        code: where the class is, for the runtime `python` alone.
        environment: the Python environment it needs, see `models/environments.py`; "" is that of
            the worker.
        signature: inputs and outputs; no inputs means that anything goes.
        limits: what the model can do, before the operator's overrides.
        bytes_per_token: from which a router estimates a row's length; 0 = no length rule.
        parameters: plain JSON for the runtime.
        device: `any`, `cpu` or `cuda`.
        golden: examples with their outputs; may be empty.
        code_sha256: digest of the runtime's source. Filled in by `Store.publish`.
    """

    model: str
    version: str
    runtime: str
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    code: ModelCode | None = None
    environment: str = ""
    signature: Signature = field(default_factory=Signature)
    limits: Limits = field(default_factory=Limits)
    bytes_per_token: float = 0.0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    device: str = "any"
    golden: tuple[Golden, ...] = ()
    code_sha256: str = ""

    @property
    def lineage(self) -> str:
        """16 hex characters that change whenever weights, tokenizer, parameters or code do.

        A version without an environment of its own depends on that of the worker, which no
        manifest can name.
        """
        parts: dict[str, Any] = {
            "files": {name: entry.sha256 for name, entry in self.files.items()},
            "runtime": self.runtime,
            "parameters": self.parameters,
            # Not the digest that somebody wrote beside it.
            "code": self.code_sha256 if self.code is None else self.code.sha256,
        }
        if self.environment:
            parts["environment"] = self.environment
        canonical = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:LINEAGE_CHARACTERS]

    def record(self) -> VersionRecord:
        """What goes into the deploy hash."""
        return VersionRecord(
            version=self.version,
            runtime=self.runtime,
            environment=self.environment,
            device=self.device,
            lineage=self.lineage,
            bytes_per_token=self.bytes_per_token,
            signature=self.signature,
            limits=self.limits,
        )

    def to_json(self) -> bytes:
        """The content of `manifest.json`.

        All limits are written out, so that a later release with other defaults does not change a
        published version.

        Raises:
            StoreError: a parameter or example is not plain JSON.
        """
        code = {} if self.code is None else {"code": self.code.to_wire()}
        wire = {
            "model": self.model,
            "version": self.version,
            "runtime": self.runtime,
            **code,
            "environment": self.environment,
            "device": self.device,
            "code_sha256": self.code_sha256,
            "bytes_per_token": self.bytes_per_token,
            "signature": self.signature.to_wire(),
            "limits": self.limits.to_wire(),
            "parameters": self.parameters,
            "files": {name: _entry_to_wire(entry) for name, entry in self.files.items()},
            "golden": [_golden_to_wire(example) for example in self.golden],
        }
        try:
            plain = plain_json("its parameters or examples", wire)
        except ValueError as error:
            raise StoreError(f"{self.model}/{self.version} is not plain JSON: {error}") from error
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)

    @staticmethod
    def from_json(raw: bytes) -> "Manifest":
        """Read a manifest.

        Raises:
            StoreError: too large, not JSON, or not a manifest; the text names every fault.
        """
        wire = _parse(raw)
        faults = [f"unknown key {shown(str(key))}" for key in wire if key not in _READERS]
        faults += [f"{key} is missing" for key in _REQUIRED if key not in wire]
        values: dict[str, Any] = {}
        for key, read in _READERS.items():
            if key not in wire:
                continue
            try:
                values[key] = read(wire[key])
            except (ValueError, SettingsError) as error:
                faults.append(f"{key}: {error}")
        if (wire.get("runtime") == RUNTIME) != ("code" in wire):
            faults.append(f"code is for the runtime {RUNTIME!r}, which needs it, and for no other")
        if faults:
            raise StoreError(f"not a manifest: {'; '.join(faults)}")
        return Manifest(**values)


def _parse(raw: bytes) -> dict[str, Any]:
    if len(raw) > MANIFEST_BYTES_MAX:
        raise StoreError(f"the manifest has more than {MANIFEST_BYTES_MAX} bytes")
    try:
        wire = strict_shallow_json(raw)
    except ValueError as error:
        raise StoreError(f"a manifest must be JSON: {error}") from error
    if not isinstance(wire, dict):
        raise StoreError("a manifest must be a JSON object")
    return wire


def _entry_to_wire(entry: FileEntry) -> dict[str, Any]:
    return {"sha256": entry.sha256, "size_bytes": entry.size_bytes}


def _golden_to_wire(example: Golden) -> dict[str, Any]:
    return {"inputs": example.inputs, "outputs": example.outputs, "tolerance": example.tolerance}


def _raise_all(faults: list[str]) -> None:
    if faults:
        raise ValueError(", ".join(faults))


def _read_name(value: Any) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise ValueError(f"{shown(str(value))} is not a name, {RULE}")
    return value


def _read_environment(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 (a fault of the document)
    return check_environment_name(value)


def _read_within(limits: Range) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if fault := limits.fault(value):
            raise ValueError(f"{shown_value(value)} {fault}")
        return limits.plain(value)

    return read


_read_tolerance = _read_within(Range(0, float_info.max, whole=False))


def _read_device(value: Any) -> str:
    if value not in DEVICES:
        raise ValueError(f"{shown(str(value))} is not one of {', '.join(DEVICES)}")
    return str(value)


def _read_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("must be an object")  # noqa: TRY004 (a fault of the document)
    return value


def _read_list(value: Any, highest: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > highest:
        raise ValueError(f"must be a list of at most {highest}")
    return value


def _unknown(wire: Mapping[str, Any], known: set[str]) -> list[str]:
    return [f"unknown key {shown(str(key))}" for key in wire if key not in known]


def _read_sha256(value: Any) -> str:
    if not isinstance(value, str) or not (value == "" or is_sha256(value)):
        raise ValueError("must be 64 hex characters")
    return value


_SIZE_BYTES = Range(0, (1 << 63) - 1)


def _read_files(value: Any) -> dict[str, FileEntry]:
    wire = _read_object(value)
    if len(wire) > FILES_MAX:
        raise ValueError(f"more than {FILES_MAX} files")
    _raise_all([fault for name, entry in wire.items() for fault in _file_faults(name, entry)])
    return {name: FileEntry(entry["sha256"], entry["size_bytes"]) for name, entry in wire.items()}


def _file_faults(name: str, entry: Any) -> list[str]:
    faults = [] if is_file_name(name) else [f"{shown(name)} is not a plain relative path"]
    if not isinstance(entry, dict) or set(entry) != {"sha256", "size_bytes"}:
        return [*faults, f"{shown(name)} must have exactly sha256 and size_bytes"]
    if not isinstance(entry["sha256"], str) or not is_sha256(entry["sha256"]):
        faults.append(f"sha256 of {shown(name)} must be 64 hex characters")
    if fault := _SIZE_BYTES.fault(entry["size_bytes"]):
        faults.append(f"size_bytes of {shown(name)} {fault}")
    return faults


def read_signature(value: Any) -> Signature:
    """Read a signature as a manifest, or a class, spells it.

    Raises:
        ValueError: an entry is ill-formed; the text names every fault.
    """
    wire = _read_object(value)
    faults = _unknown(wire, {"inputs", "outputs"})
    for side in ("inputs", "outputs"):
        faults += [
            fault for spec in _read_list(wire.get(side, []), 64) for fault in _spec_faults(spec)
        ]
    _raise_all(faults)
    return Signature.from_wire(wire)


def _spec_faults(wire: Any) -> list[str]:
    if not isinstance(wire, dict):
        return ["a tensor must be an object"]
    faults = _unknown(wire, {"name", "datatype", "shape", "range", "finite"})
    try:
        spec = TensorSpec.from_wire(wire)
    except SettingsError as error:
        return [*faults, str(error)]
    if not is_name(spec.name):
        faults.append(f"tensor name {shown(spec.name)} is not a name")
    if spec.datatype not in {*DATATYPES, BYTES, "BF16"}:
        faults.append(f"tensor {shown(spec.name)} has unknown datatype {shown(spec.datatype)}")
    if not spec.shape or min(spec.shape) < -1:
        faults.append(f"tensor {shown(spec.name)} has shape {list(spec.shape)}")
    elif spec.shape[0] != -1:
        faults.append(
            f"tensor {shown(spec.name)} has shape {list(spec.shape)}: the first axis counts rows, "
            f"any number of them, and must be -1; did you mean {[-1, *spec.shape]}?"
        )
    return faults


def _read_limits(value: Any) -> Limits:
    wire = _read_object(value)
    _raise_all([fault for name, limit in wire.items() for fault in _limit_faults(name, limit)])
    return limits_from_wire(wire)


def _limit_faults(name: str, value: Any) -> list[str]:
    try:
        check_limit(name, value)
    except SettingsError as error:
        return [str(error)]
    return []


def _read_golden(value: Any) -> tuple[Golden, ...]:
    examples = _read_list(value, GOLDEN_MAX)
    for at, example in enumerate(examples):
        if not isinstance(example, dict) or set(example) != {"inputs", "outputs", "tolerance"}:
            raise ValueError(f"example {at} must have exactly inputs, outputs and tolerance")
    return tuple(
        Golden(
            inputs=example["inputs"],
            outputs=example["outputs"],
            tolerance=_read_tolerance(example["tolerance"]),
        )
        for example in examples
    )


_REQUIRED = ("model", "version", "runtime")
_READERS: dict[str, Callable[[Any], Any]] = {
    "model": _read_name,
    "version": _read_name,
    "runtime": _read_name,
    "code": read_code,
    "environment": _read_environment,
    "device": _read_device,
    "code_sha256": _read_sha256,
    "bytes_per_token": _read_within(BYTES_PER_TOKEN),
    "signature": read_signature,
    "limits": _read_limits,
    "parameters": _read_object,
    "files": _read_files,
    "golden": _read_golden,
}
