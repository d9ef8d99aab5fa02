"""How one version takes over from another without a gap: what comes next, as a table. Pure.

What is next follows from the deploy record, from what the workers say, and from the time; nothing
is remembered beside these. So whoever starts the same command again goes on where another ended,
and a command finds out by the record that somebody else has changed it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..wire.deployment import Deployment
from ..wire.errors import SettingsError
from ..wire.reading import as_map, from_json
from .deployment import plain_text
from .rolls.state import ENDS
from .verdict import Verdict


class Phase(StrEnum):
    """How far the record is."""

    ABSENT = "absent"  # nothing of the model is deployed
    SAME = "same"  # the version was the stable one when the command began
    ASKED = "asked"  # another one is stable, and this one is not offered yet
    OFFERED = "offered"  # workers load it beside the stable one
    IN_FORCE = "in_force"  # it has taken over
    LOST = "lost"  # somebody else has changed what the command was about


class Voice(StrEnum):
    """What the workers say in all."""

    NOBODY = "nobody"  # there are none
    ENOUGH = "enough"  # as many as wanted are ready
    TOO_FEW = "too_few"  # so many refuse it that there cannot be enough
    LATE = "late"  # time is up
    OPEN = "open"  # some are still loading it


class Act(StrEnum):
    """What to do next."""

    START = "start"
    LOOK_AGAIN = "look_again"
    OFFER = "offer"
    WAIT = "wait"
    SWITCH = "switch"
    GIVE_UP = "give_up"
    FINISH = "finish"
    YIELD = "yield"


_NEXT: Mapping[Phase, Mapping[Voice, Act]] = {
    Phase.ABSENT: dict.fromkeys(Voice, Act.START),
    Phase.SAME: dict.fromkeys(Voice, Act.LOOK_AGAIN),
    # With no worker there is nobody to wait for, and no answer to lose.
    Phase.ASKED: {**dict.fromkeys(Voice, Act.OFFER), Voice.NOBODY: Act.SWITCH},
    Phase.OFFERED: {
        Voice.ENOUGH: Act.SWITCH,
        Voice.TOO_FEW: Act.GIVE_UP,
        Voice.LATE: Act.GIVE_UP,
        Voice.OPEN: Act.WAIT,
        # They were there when it was offered; it may be what has ended them.
        Voice.NOBODY: Act.WAIT,
    },
    Phase.IN_FORCE: dict.fromkeys(Voice, Act.FINISH),
    Phase.LOST: dict.fromkeys(Voice, Act.YIELD),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a command is about.

    Attributes:
        version: the one that is to be stable.
        nonce: what marks the record of the version as this command's.
        stable: the stable version when the command began; empty where nothing was deployed.
        has_offered: whether the command has put the version into the record.
    """

    version: str
    nonce: str
    stable: str
    has_offered: bool = False


def phase_of(intent: Intent, deployed: Deployment | None) -> Phase:
    """How far the record is with what a command is about."""
    if deployed is None:
        return Phase.LOST if intent.stable else Phase.ABSENT
    record = deployed.versions.get(intent.version)
    is_ours = record is not None and record.deployed == intent.nonce
    if deployed.stable == intent.version and is_ours:
        return Phase.IN_FORCE
    if deployed.stable != intent.stable:
        return Phase.LOST
    if intent.stable == intent.version:
        return Phase.LOST if intent.has_offered else Phase.SAME
    if is_ours:
        return Phase.OFFERED
    return Phase.LOST if intent.has_offered else Phase.ASKED


def is_offered(intent: Intent, seen: Deployment) -> bool:
    """Whether the version is offered by this very command, and not the stable one."""
    record = seen.versions.get(intent.version)
    is_ours = record is not None and record.deployed == intent.nonce
    return is_ours and seen.stable != intent.version


def wanted_workers(verdict: Verdict, min_ready: int) -> int:
    """How many workers have to be ready before a version takes over.

    Args:
        verdict: what the workers say.
        min_ready: what the operator wants; 0 = as many as serve the stable version, as far as they
            do not refuse this one.
    """
    return min_ready or max(1, min(verdict.serving, verdict.may_serve))


def voice_of(verdict: Verdict, min_ready: int, *, is_late: bool) -> Voice:
    """What the workers say in all; arguments as of `wanted_workers`."""
    wanted = wanted_workers(verdict, min_ready)
    if verdict.ready >= wanted:
        return Voice.ENOUGH
    if verdict.refused and verdict.may_serve < wanted:
        return Voice.TOO_FEW
    if is_late:
        return Voice.LATE
    return Voice.OPEN if verdict.workers else Voice.NOBODY


def next_act(phase: Phase, voice: Voice) -> Act:
    """What to do next."""
    return _NEXT[phase][voice]


def running_roll(raw: bytes) -> str:
    """In a few words, how far the roll is that a record holds; empty where none is running."""
    try:
        roll = as_map("roll", from_json("roll", raw or b"{}"))
    except SettingsError:
        return ""  # written by a foreign hand: nobody follows it
    phase = str(roll.get("phase", ""))
    if not phase or phase in ENDS:
        return ""
    return f"to {plain_text(str(roll.get('to')))} is {plain_text(phase)}"


def surplus(deployed: Deployment, keep: int) -> list[str]:
    """The versions kept for going back beyond so many, those withdrawn first."""
    kept = sorted(deployed.kept, key=lambda name: deployed.kept[name].epoch)
    return kept[: max(0, len(kept) - keep)]


def leaving(seen: Deployment, version: str, *, is_warm: bool = False) -> list[str]:
    """The versions that leave once this one has taken over.

    With `is_warm`, the one that is stable before stays; deployed once more, a version leaves as it
    is what stays beside it.
    """
    stays = (version, seen.stable) if is_warm else (version,)
    if is_warm and seen.stable == version:
        return []
    return [name for name in seen.versions if name not in stays]
