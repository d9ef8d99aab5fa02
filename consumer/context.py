"""What a worker is given, and how its life may end."""

from dataclasses import dataclass
from enum import Enum

from ..service.clock import Clock
from ..service.events import Events
from ..service.outage import Outage
from ..service.settings import Settings


class Outcome(Enum):
    """How a worker's life ended."""

    STOPPED = "stopped"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What a worker is given; all of it outlives the worker."""

    settings: Settings
    events: Events
    clock: Clock
    outage: Outage
