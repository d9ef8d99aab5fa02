"""What the scripts must never do, whatever they are changed into: read as text, not run."""

import re

import pytest
from support.script_scenes import SOURCES

from batchfleet.broker import ingress

_COMMENT = re.compile(r"--.*")
_TRIM = re.compile("MAXLEN|MINID")
_CAPPED = re.compile(r"'(?:XADD|XTRIM)',\s*(?:journal|dead),\s*'MAXLEN'")


def commands_of(name):
    """The lines of a script that call the server."""
    lines = (_COMMENT.sub("", line) for line in SOURCES[name].splitlines())
    return [line for line in lines if "call(" in line or "acl_check_cmd(" in line]


def test_there_are_scripts_to_read():
    assert {"accept", "take", "finish", "recover", "retire"} <= SOURCES.keys()
    assert all(commands_of(name) for name in SOURCES)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_script_trims_a_stream_of_requests(name):
    """Work is bounded by refusing it: a trimmed entry would be lost without a word."""
    text = _COMMENT.sub("", SOURCES[name])
    assert len(_TRIM.findall(text)) == len(_CAPPED.findall(text))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_script_takes_work_by_its_age(name):
    """A long run is no death; entries are claimed by the name of a worker that is lost."""
    claims = [line for line in commands_of(name) if "CLAIM" in line]
    assert not any("XAUTOCLAIM" in line for line in claims)
    assert not claims or name == "recover"


def test_only_ingress_is_claimed_by_age():
    command = ingress.claim("ingress", "r1", 5_000, 10)
    assert command.parts[:3] == ("XAUTOCLAIM", "ingress", "router")


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_groups_are_made_from_the_start(name):
    """A group made at the end would pass over what came before it."""
    made = [line for line in commands_of(name) if "'CREATE'" in line]
    assert all("'0', 'MKSTREAM'" in line for line in made), made
