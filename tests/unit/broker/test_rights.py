"""The lists of `broker/rights.py` against what the programs and their scripts send."""

import pytest
from support.rights import ROOT, commands_of

from batchfleet.broker import rights
from batchfleet.broker.rights import ADMINISTRATOR, OPERATOR, ROUTER, SETTINGS_READER, WORKER


@pytest.mark.parametrize(
    ("role", "folder"), [(ROUTER, "router"), (WORKER, "consumer"), (OPERATOR, "ops")]
)
def test_a_role_has_the_commands_that_its_program_sends_and_no_others(role, folder):
    needed = tuple(sorted(commands_of(folder)))
    as_written = " ".join(name.replace(" ", "|") for name in needed)
    assert role.commands == needed, f"{role.title} in broker/rights.py must be {as_written}"


def test_arguments_are_listed_for_commands_of_a_role_only():
    roles = (ROUTER, WORKER, OPERATOR, ADMINISTRATOR, SETTINGS_READER)
    needed = {name for role in roles for name in role.commands}
    assert rights._ARGUMENTS.keys() <= needed


def test_commands_are_found_in_scripts_and_beside_them():
    router = commands_of("router")
    assert {"SPUBLISH", "XGROUP DELCONSUMER"} <= router  # in accept.lua and in prune.lua
    assert {"XAUTOCLAIM", "INFO"} <= router  # in ingress.py and in fleet.py


def test_the_sources_are_there():
    assert (ROOT / "broker" / "lua" / "rights.lua").exists()
