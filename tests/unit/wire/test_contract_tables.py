"""Names, keys, errors and states: the small tables."""

import pytest

from batchfleet.wire.errors import ErrorKind, RequestError, Source
from batchfleet.wire.keys import ModelKeys, member
from batchfleet.wire.names import is_name, is_name_bytes, require_name, shown
from batchfleet.wire.reply import status_of
from batchfleet.wire.states import (
    MEANINGS,
    TERMINAL,
    TRANSITIONS,
    Event,
    IllegalTransitionError,
    State,
    after,
)


@pytest.mark.parametrize("text", ["a", "A.b_c-9", "0", "a" * 128])
def test_names(text):
    assert require_name("model", text) == text
    assert is_name_bytes(text.encode())


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a..b", "-a", "_a", "a\n", "a\0", "a b", "a:b", "a{b}", "a/b", "é", "a" * 129],
)
def test_what_is_no_name(text):
    assert not is_name(text)
    assert not is_name_bytes(text.encode())
    with pytest.raises(RequestError) as caught:
        require_name("model", text)
    assert caught.value.name == "bad_request"
    assert caught.value.message.startswith("model ")
    assert caught.value.message.isprintable()


def test_hostile_text_is_shown_in_one_short_printable_line():
    assert shown("a\n\x1b\u202e") == r"'a\n\x1b\u202e'"
    assert len(shown("\U0001f600" * 1000)) < 500


def test_all_keys_of_a_model_share_one_hash_tag():
    for keys, tag in ((ModelKeys("bf", "m"), "{m}"), (ModelKeys("bf", "m", 1), "{m~1}")):
        made = [
            keys.tenants, keys.deploy, keys.due, keys.workers, keys.lost, keys.journal,
            keys.ingress("t"), keys.queue("1", "low", 16), keys.worker_stream("w"),
            keys.worker("w"), keys.bell("1"), keys.worker_bell("w"), keys.tombstone("t", "a"),
            keys.reply("t", "a"), keys.channel("t", "0123456789"),
        ]  # fmt: skip
        assert len(set(made)) == len(made)
        assert all(key.startswith(f"bf:{tag}:") for key in made)


def test_members_of_due_cannot_collide():
    assert member("a", "b") == "a:b"
    assert not is_name("a:b")


def test_error_numbers_tell_the_source():
    hundreds = {Source.CALLER: 1, Source.FLEET: 2, Source.MODEL: 3}
    for kind in ErrorKind:
        assert kind.code // 100 == hundreds[kind.source]
        assert RequestError.of(kind, "words").source is kind.source
        assert status_of(kind) in TERMINAL - {State.OK}
    assert len({kind.code for kind in ErrorKind}) == len(ErrorKind)
    assert len({kind.label for kind in ErrorKind}) == len(ErrorKind)


def test_a_terminal_state_is_never_left():
    assert set(TRANSITIONS) == set(State)
    for state in TERMINAL:
        assert set(TRANSITIONS[state].values()) == {state}


def test_only_what_was_accepted_can_end():
    for state in set(State) - TERMINAL - {State.ACCEPTED}:
        assert not TERMINAL & set(TRANSITIONS[state].values())
    assert set(TRANSITIONS[State.ACCEPTED].values()) >= TERMINAL


def test_an_illegal_event_is_refused():
    assert after(State.SUBMITTED, Event.ACCEPT) is State.ACCEPTED
    with pytest.raises(IllegalTransitionError, match="answer"):
        after(State.SUBMITTED, Event.ANSWER)


def test_every_state_and_event_has_a_meaning():
    assert set(MEANINGS) == {*State, *Event}
