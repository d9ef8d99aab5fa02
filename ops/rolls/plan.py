"""What an operator wants of a roll: its steps, how long each is held, and its limits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from ...wire.errors import SettingsError
from ...wire.names import shown
from ...wire.numbers import Range, number_in, shown_value

BESIDE, WORKER_BY_WORKER = "beside", "worker-by-worker"
STRATEGIES = (BESIDE, WORKER_BY_WORKER)
STEPS_MAX = 32
_WEIGHT = Range(0.01, 100, whole=False)

PLAN_RANGES: Mapping[str, Range] = {
    "hold_s": Range(0, 86_400, whole=False),
    "wait_s": Range(1, 86_400, whole=False),
    "min_ready": Range(0, 10_000),
    "min_samples": Range(0, 1_000_000),
    "keep": Range(0, 1000),
    "max_errors": Range(0, 100, whole=False),
    "max_p99_ratio": Range(1, 1000, whole=False),
    "max_device_time_ratio": Range(1, 1000, whole=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps and limits of a roll; numbers are held to `PLAN_RANGES`.

    Attributes:
        weights: share of the requests that name no version, in percent, step by step; rising.
        strategy: `BESIDE`: all workers load the new version beside the old one.
            `WORKER_BY_WORKER`: each worker has one of them.
        hold_s: how long each step is held at least.
        wait_s: how long workers may take to load the version before a step.
        min_ready: workers that must be ready before traffic moves to a version; 0 = as many as
            serve the stable one, as far as they do not refuse this one. Worker by worker: those
            that serve the model while one of them changes over.
        min_samples: requests of both versions that a step needs; of the new one alone where the
            old one gets none.
        keep: versions before that are kept for going back, once it is completed.
        max_errors: percentage points by which the share of errors may be above that of the old.
        max_p99_ratio: how many times the p99 of the old version, and 50 ms, are allowed.
        max_device_time_ratio: how many times the device time of a row is allowed.
    """

    weights: tuple[float, ...] = (1.0, 10.0, 50.0, 100.0)
    strategy: str = BESIDE
    hold_s: float = 30.0
    wait_s: float = 600.0
    min_ready: int = 0
    min_samples: int = 200
    keep: int = 2
    max_errors: float = 2.0
    max_p99_ratio: float = 2.0
    max_device_time_ratio: float = 1.6

    def to_json(self) -> dict[str, Any]:
        """The map that goes into the state of a roll."""
        return asdict(self)


def parse_steps(text: str) -> tuple[float, ...]:
    """Read `1,10,50,100` as typed.

    Raises:
        SettingsError: not 1 to 32 rising percentages of which the last is 100.
    """
    return check_weights([number_in(part.strip().removesuffix("%")) for part in text.split(",")])


def check_weights(weights: Sequence[Any]) -> tuple[float, ...]:
    """`weights` as a plan holds them.

    Raises:
        SettingsError: not 1 to 32 rising percentages of which the last is 100.
    """
    fits = 1 <= len(weights) <= STEPS_MAX and not any(map(_WEIGHT.fault, weights))
    if not fits or list(weights) != sorted(set(weights)) or weights[-1] != 100:
        raise SettingsError(
            f"steps are {shown_value(list(weights))}; they must be 1 to {STEPS_MAX} rising "
            "percentages, the last of them 100"
        )
    return tuple(float(weight) for weight in weights)


def read_plan(wire: Mapping[str, Any]) -> Plan:
    """Read the map that `Plan.to_json` makes.

    Raises:
        SettingsError: something is missing, unknown, or out of its range.
    """
    names = {item.name for item in fields(Plan)}
    if set(wire) != names:
        odd = sorted(map(str, set(wire) ^ names))
        raise SettingsError(f"the plan of a roll has {shown(', '.join(odd))} missing or unknown")
    if wire["strategy"] not in STRATEGIES:
        raise SettingsError(f"strategy is {shown_value(wire['strategy'])}; use {STRATEGIES}")
    weights = wire["weights"]
    numbers = {name: check_number(name, wire[name]) for name in PLAN_RANGES}
    return Plan(
        weights=check_weights(weights if isinstance(weights, list | tuple) else ()),
        strategy=wire["strategy"],
        **numbers,
    )


def check_number(name: str, value: Any) -> Any:
    """A number of a plan in its own type.

    Raises:
        SettingsError: out of its range.
    """
    if fault := PLAN_RANGES[name].fault(value):
        raise SettingsError(f"{name} is {shown_value(value)}; it {fault}")
    return PLAN_RANGES[name].plain(value)
