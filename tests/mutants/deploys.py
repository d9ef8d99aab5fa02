"""Faults of putting versions in service and of taking them out."""

from tests.mutants.mutant import Mutant, on_server

UNIT = "tests/unit/ops"
TAKING = f"{UNIT}/test_taking_over.py"
HANDING = f"{UNIT}/test_handing_over.py"

DEPLOY_MUTANTS = [
    Mutant(
        name="deploying whatever the record is by now",
        breaks="of two operators, one wins and the other is told",
        path="broker/lua/deploy.lua",
        before="if epoch and ((record[1] or '0') ~= epoch or (record[2] or '') ~= nonce) then",
        after="if false then",
        tests=on_server("test_broker_offer", "test_of_two_who_deploy_by_the_same_record_one_does"),
    ),
    Mutant(
        name="what is late takes over",
        breaks="a version that is not ready never becomes the stable one",
        path="ops/switching.py",
        before="        Voice.LATE: Act.GIVE_UP,\n",
        after="        Voice.LATE: Act.SWITCH,\n",
        tests=(f"{TAKING}::test_what_is_late_leaves_the_record_as_it_was",),
    ),
    Mutant(
        name="refusals of an earlier try count",
        breaks="a version that was repaired is tried again",
        path="ops/verdict.py",
        before="one.stamp is not None and one.stamp.epoch >= epoch",
        after="one.stamp is not None",
        tests=(f"{UNIT}/test_verdict.py::test_only_who_acts_by_the_record_that_asks_is_heard",),
    ),
    Mutant(
        name="one ready worker is enough",
        breaks="the new version has as many workers as the one before",
        path="ops/switching.py",
        before="    return min_ready or max(1, min(verdict.serving, verdict.may_serve))\n",
        after="    return min_ready or 1\n",
        tests=(f"{UNIT}/test_switching.py::test_the_workers_say_in_all",),
    ),
    Mutant(
        name="what was kept is forgotten when it is refused",
        breaks="a version that is refused leaves the record as it was",
        path="ops/taking_over.py",
        before="        if kept is not None and not left:\n",
        after="        if False:\n",
        tests=(f"{TAKING}::test_what_was_kept_is_kept_again_after_it_was_refused",),
    ),
    Mutant(
        name="the next worker while one is loading",
        breaks="worker by worker, all but one serve",
        path="ops/handing_over.py",
        before="    if any(said[worker].state_of(version) != READY for worker in given):\n",
        after="    if False:\n",
        tests=(f"{HANDING}::test_worker_by_worker_all_but_one_serve_all_the_time",),
    ),
    Mutant(
        name="the new version before the old one is gone",
        breaks="worker by worker, none has two copies",
        path="ops/handing_over.py",
        before="    if any(said[worker].state_of(stable) for worker in dropped):\n",
        after="    if False:\n",
        tests=(
            f"{HANDING}::test_no_worker_ever_has_two_copies_and_the_share_grows_with_the_workers",
        ),
    ),
    Mutant(
        name="a deploy in the middle of a roll",
        breaks="a roll and a deploy do not get in each other's way",
        path="ops/taking_over.py",
        before="if seen is not None and (roll := running_roll(seen.roll)):",
        after="if seen is not None and (roll := ''):",
        tests=(f"{TAKING}::test_a_running_roll_is_not_disturbed",),
    ),
    Mutant(
        name="a restored roll goes on by itself",
        breaks="nobody has watched it since",
        path="ops/record_copy.py",
        before='    return {**roll, "phase": _PAUSED, "reason": "restored from the store"}\n',
        after="    return roll\n",
        tests=(f"{UNIT}/test_record_copy.py::test_a_roll_comes_back_paused_unless_it_has_ended",),
    ),
]
