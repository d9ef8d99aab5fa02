"""What comes next while one version takes over from another."""

import pytest

from batchfleet.ops.switching import (
    Act,
    Intent,
    Phase,
    Voice,
    leaving,
    next_act,
    phase_of,
    voice_of,
    wanted_workers,
)
from batchfleet.ops.verdict import Verdict
from batchfleet.wire.deployment import Deployment, VersionRecord

OURS, THEIRS = "ours", "theirs"
BEGUN = Intent(version="2", nonce=OURS, stable="1")
OFFERED = Intent(version="2", nonce=OURS, stable="1", has_offered=True)


def record(stable, **versions):
    """A deploy record; `versions` are those beside the stable one: `v2="ours"`."""
    names = {name.removeprefix("v"): nonce for name, nonce in versions.items()}
    records = {
        name: VersionRecord(version=name, deployed=nonce)
        for name, nonce in ({stable: THEIRS} | names).items()
    }
    return Deployment(model="m", epoch=1, stable=stable, versions=records)


@pytest.mark.parametrize(
    ("intent", "found", "phase"),
    [
        (Intent(version="2", nonce=OURS, stable=""), None, Phase.ABSENT),
        (BEGUN, record("1"), Phase.ASKED),
        (BEGUN, record("1", v2=THEIRS), Phase.ASKED),  # offered before, or left by a killed command
        (OFFERED, record("1", v2=OURS), Phase.OFFERED),
        (OFFERED, record("2", v2=OURS), Phase.IN_FORCE),
        (Intent(version="1", nonce=OURS, stable="1"), record("1"), Phase.SAME),
        (BEGUN, None, Phase.LOST),  # undeployed meanwhile
        (BEGUN, record("3"), Phase.LOST),
        (BEGUN, record("2"), Phase.LOST),  # somebody else was first
        (OFFERED, record("3", v2=OURS), Phase.LOST),
        (OFFERED, record("1", v2=THEIRS), Phase.LOST),
        (OFFERED, record("1"), Phase.LOST),  # withdrawn by somebody else
    ],
)
def test_the_record_says_how_far_it_is(intent, found, phase):
    assert phase_of(intent, found) is phase


def refusing(number):
    return {f"w{at}": "no wheel" for at in range(number)}


@pytest.mark.parametrize(
    ("verdict", "min_ready", "is_late", "voice"),
    [
        (Verdict(), 0, False, Voice.NOBODY),
        (Verdict(), 0, True, Voice.LATE),
        (Verdict(workers=3, serving=3), 0, False, Voice.OPEN),
        (Verdict(workers=3, serving=3, ready=2), 0, False, Voice.OPEN),
        (Verdict(workers=3, serving=3, ready=2), 2, False, Voice.ENOUGH),
        (Verdict(workers=3, serving=3, ready=3), 0, True, Voice.ENOUGH),
        (Verdict(workers=3, serving=3, ready=2), 0, True, Voice.LATE),
        (Verdict(workers=3, serving=3, ready=2, refused=refusing(1)), 0, False, Voice.ENOUGH),
        (Verdict(workers=3, serving=3, ready=1, refused=refusing(1)), 0, False, Voice.OPEN),
        (Verdict(workers=3, serving=3, ready=2, refused=refusing(1)), 3, False, Voice.TOO_FEW),
        (Verdict(workers=3, serving=3, refused=refusing(3)), 0, False, Voice.TOO_FEW),
        # More are wanted than there are: others may still come.
        (Verdict(workers=1, serving=1, ready=1), 2, False, Voice.OPEN),
        # The stable one is not served: any worker is better than none.
        (Verdict(workers=3, ready=1), 0, False, Voice.ENOUGH),
    ],
)
def test_the_workers_say_in_all(verdict, min_ready, is_late, voice):
    assert voice_of(verdict, min_ready, is_late=is_late) is voice


def test_as_many_are_wanted_as_serve_the_stable_one_and_can_serve_this_one():
    assert wanted_workers(Verdict(workers=4, serving=3), 0) == 3
    assert wanted_workers(Verdict(workers=4, serving=3, refused=refusing(2)), 0) == 2
    assert wanted_workers(Verdict(workers=4, serving=0), 0) == 1
    assert wanted_workers(Verdict(workers=4, serving=3), 1) == 1


@pytest.mark.parametrize(
    ("phase", "voice", "act"),
    [
        (Phase.ABSENT, Voice.NOBODY, Act.START),
        (Phase.SAME, Voice.OPEN, Act.LOOK_AGAIN),
        (Phase.ASKED, Voice.NOBODY, Act.SWITCH),
        (Phase.ASKED, Voice.OPEN, Act.OFFER),
        (Phase.ASKED, Voice.ENOUGH, Act.OFFER),
        (Phase.OFFERED, Voice.OPEN, Act.WAIT),
        (Phase.OFFERED, Voice.ENOUGH, Act.SWITCH),
        (Phase.OFFERED, Voice.TOO_FEW, Act.GIVE_UP),
        (Phase.OFFERED, Voice.LATE, Act.GIVE_UP),
        (Phase.OFFERED, Voice.NOBODY, Act.WAIT),
        (Phase.IN_FORCE, Voice.OPEN, Act.FINISH),
        (Phase.LOST, Voice.ENOUGH, Act.YIELD),
    ],
)
def test_the_table_says_what_comes_next(phase, voice, act):
    assert next_act(phase, voice) is act


def test_the_table_has_an_answer_for_everything():
    """And nothing takes over that was refused, that is late, or that somebody else has touched."""
    acts = {(phase, voice): next_act(phase, voice) for phase in Phase for voice in Voice}
    switches = {pair for pair, act in acts.items() if act is Act.SWITCH}
    assert switches == {(Phase.ASKED, Voice.NOBODY), (Phase.OFFERED, Voice.ENOUGH)}


def test_all_others_leave_but_what_is_to_stay_warm():
    found = record("3", v2=THEIRS, v1=THEIRS)
    assert leaving(found, "2") == ["3", "1"]
    assert leaving(found, "2", is_warm=True) == ["1"]
    assert leaving(found, "3", is_warm=True) == []
