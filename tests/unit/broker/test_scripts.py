"""What the scripts must never do, whatever they are changed into: read as text, not run."""

import re
from importlib.resources import files

import pytest

from batchfleet.broker import ingress
from batchfleet.broker.commands import script

SCRIPTS = {
    name: script(name).source
    for name in (
        path.name.removesuffix(".lua")
        for path in (files("batchfleet.broker") / "lua").iterdir()
        if path.is_file()
    )
}
_COMMENT = re.compile(r"--.*")
_TRIM = re.compile("MAXLEN|MINID")
_CAPPED = re.compile(r"'(?:XADD|XTRIM)',\s*(?:journal|dead),\s*'MAXLEN'")


def commands_of(name):
    """The lines of a script that call the server."""
    lines = (_COMMENT.sub("", line) for line in SCRIPTS[name].splitlines())
    return [line for line in lines if "call(" in line or "acl_check_cmd(" in line]


def test_there_are_scripts_to_read():
    assert {"accept", "take", "finish", "recover", "retire"} <= SCRIPTS.keys()
    assert all(commands_of(name) for name in SCRIPTS)


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_trims_a_stream_of_requests(name):
    """Work is bounded by refusing it: a trimmed entry would be lost without a word."""
    text = _COMMENT.sub("", SCRIPTS[name])
    assert len(_TRIM.findall(text)) == len(_CAPPED.findall(text))


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_no_script_takes_work_by_its_age(name):
    """A long run is no death; entries are claimed by the name of a worker that is lost."""
    claims = [line for line in commands_of(name) if "CLAIM" in line]
    assert not any("XAUTOCLAIM" in line for line in claims)
    assert not claims or name == "recover"


def test_only_ingress_is_claimed_by_age():
    command = ingress.claim("ingress", "r1", 5_000, 10)
    assert command.parts[:3] == ("XAUTOCLAIM", "ingress", "router")


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_groups_are_made_from_the_start(name):
    """A group made at the end would pass over what came before it."""
    made = [line for line in commands_of(name) if "'CREATE'" in line]
    assert all("'0', 'MKSTREAM'" in line for line in made), made
