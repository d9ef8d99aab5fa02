"""Asking for rights on every kind of server, as a user who has them all."""

import pytest

from batchfleet.broker.rights import OPERATOR, ROUTER, WORKER, missing_rights


@pytest.mark.parametrize("role", [ROUTER, WORKER, OPERATOR], ids=lambda role: role.title)
def test_who_may_do_everything_lacks_nothing(wire, role):
    assert wire.run(missing_rights(role, wire.keys.namespace)) == []
    assert wire.ask("EXISTS", wire.keys.due) == 0  # and nothing was done
