"""Asking for rights on every kind of server, as a user who has them all."""

import pytest

from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.rights import OPERATOR, ROUTER, WORKER, missing_rights
from batchfleet.wire.errors import ServerError

each_role = pytest.mark.parametrize("role", [ROUTER, WORKER, OPERATOR], ids=lambda role: role.title)


@each_role
def test_who_may_do_everything_lacks_nothing(wire, role):
    assert wire.run(missing_rights(role, wire.keys.namespace)) == []
    assert wire.ask("EXISTS", wire.keys.due) == 0  # and nothing was done


@each_role
def test_a_right_is_asked_for_with_the_arguments_that_its_command_takes(served_wire, role):
    """With others the server finds no key in it, and does not look at the right to the key."""
    keys = served_wire.keys
    asked = missing_rights(role, keys.namespace, keys.model).parts[3:]
    assert len(asked) == len(role.commands)
    for line in asked:
        words = line.split()
        (found,) = served_wire.executor.run_each([plain(as_is, "COMMAND", "GETKEYS", *words)])
        seen = [] if isinstance(found, ServerError) else [key.decode() for key in found]
        assert seen == [word for word in words if word == keys.due], line
