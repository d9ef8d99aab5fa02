"""What goes into a model and what comes out of it: names, datatypes, shapes and ranges."""

from collections.abc import Mapping
from dataclasses import dataclass
from sys import float_info
from typing import Any

from . import limits as ceiling
from .errors import SettingsError
from .numbers import Range, shown_value
from .reading import as_map

# The datatype whose elements are of any size; `tensors.py` has them all, and needs this file.
_TEXT = "BYTES"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One named input or output of a signature.

    `shape` includes the row axis first; -1 stands for any size. `lowest` and `highest` bound every
    element where given. `finite` refuses NaN and infinity.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = (-1,)
    lowest: float | None = None
    highest: float | None = None
    finite: bool = True

    def to_wire(self) -> dict[str, Any]:
        """The map that goes into a manifest or a deploy record."""
        wire: dict[str, Any] = {
            "name": self.name,
            "datatype": self.datatype,
            "shape": list(self.shape),
        }
        if self.lowest is not None or self.highest is not None:
            wire["range"] = [self.lowest, self.highest]
        if not self.finite:
            wire["finite"] = False
        return wire

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> "TensorSpec":
        """Read one entry of a signature.

        Raises:
            SettingsError: a part is missing or of the wrong kind.
        """
        try:
            lowest, highest = _bounds(wire.get("range"))
            return TensorSpec(
                name=str(wire["name"]),
                datatype=str(wire["datatype"]),
                shape=tuple(_number(_SIZE, size) for size in wire.get("shape", (-1,))),
                lowest=lowest,
                highest=highest,
                finite=bool(wire.get("finite", True)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SettingsError(f"ill-formed tensor in a signature: {error!r}") from error


_SIZE = Range(-1, ceiling.ELEMENTS_MAX)
_BOUND = Range(-float_info.max, float_info.max, whole=False)


def _number(limits: Range, value: Any) -> Any:
    if fault := limits.fault(value):
        raise ValueError(f"{shown_value(value)} {fault}")
    return limits.plain(value)


def _bounds(value: Any) -> tuple[float | None, float | None]:
    lowest, highest = (
        None if bound is None else _number(_BOUND, bound) for bound in value or (None, None)
    )
    if lowest is not None and highest is not None and lowest > highest:
        raise ValueError("the range is empty")
    return lowest, highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Inputs and outputs of a version. No inputs at all means: anything goes (`echo`)."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The map that goes into a manifest or a deploy record."""
        return {
            "inputs": [spec.to_wire() for spec in self.inputs],
            "outputs": [spec.to_wire() for spec in self.outputs],
        }

    @property
    def is_fixed(self) -> bool:
        """Whether all inputs are numbers of one shape, so that rows do not differ in length."""
        return bool(self.inputs) and all(
            spec.datatype != _TEXT and -1 not in spec.shape[1:] for spec in self.inputs
        )

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> "Signature":
        """Read a signature.

        Raises:
            SettingsError: an entry is ill-formed.
        """
        return Signature(
            inputs=_specs(as_map("signature", wire).get("inputs", ())),
            outputs=_specs(wire.get("outputs", ())),
        )


def _specs(listed: Any) -> tuple[TensorSpec, ...]:
    if not isinstance(listed, list | tuple):
        raise SettingsError("inputs and outputs of a signature are lists of tensors")
    return tuple(TensorSpec.from_wire(spec) for spec in listed)
