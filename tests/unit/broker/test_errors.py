"""The table of the server's errors: complete, and the same whichever way an error comes in."""

from pathlib import Path

import pytest
import redis
from documents.generated import codes_markdown
from redis._parsers.base import BaseParser

from batchfleet.broker.errors import (
    CODES,
    DeniedError,
    MovedError,
    OutOfMemoryError,
    RefusedError,
    UnreachableError,
    UnwritableError,
    refused,
    translate,
)
from batchfleet.wire.errors import Remedy

REMEDIES = {
    "FENCED": Remedy.START_OVER,
    "STALE": Remedy.REREAD,
    "NOGROUP": Remedy.RECREATE,
    "UNBLOCKED": Remedy.WAIT,
    "READONLY": Remedy.WAIT,
    "MOVED": Remedy.WAIT,
    "ASK": Remedy.WAIT,
    "TRYAGAIN": Remedy.WAIT,
    "CLUSTERDOWN": Remedy.WAIT,
    "LOADING": Remedy.WAIT,
    "MASTERDOWN": Remedy.WAIT,
    "BUSY": Remedy.WAIT,
    "NOREPLICAS": Remedy.KEEP,
    "MISCONF": Remedy.KEEP,
    "OOM": Remedy.KEEP,
    "NOAUTH": Remedy.STOP,
    "WRONGPASS": Remedy.STOP,
    "NOPERM": Remedy.STOP,
    "WRONGTYPE": Remedy.SET_ASIDE,
    "CROSSSLOT": Remedy.SET_ASIDE,
    "EXECABORT": Remedy.SET_ASIDE,
    "NOSCRIPT": Remedy.LOAD,
}
# What follows the code on a server; the library reads slot and address out of the first two.
_REST = {"MOVED": "3999 127.0.0.1:6381", "ASK": "3999 127.0.0.1:6381"}


def test_every_code_has_its_remedy():
    assert {code: row.error.remedy for code, row in CODES.items()} == REMEDIES


@pytest.mark.parametrize("code", CODES)
def test_an_error_is_the_same_from_our_parser_and_from_the_librarys(code):
    text = f"{code} {_REST.get(code, 'it says something')}"
    own = refused(text)
    found = translate(BaseParser.parse_error(text))
    assert type(own) is CODES[code].error
    assert own.code == code
    assert found.remedy is own.remedy
    assert isinstance(found, CODES[code].error)


def test_a_code_that_nobody_knows_is_reported_and_tried_again():
    error = refused("NEWCODE of a newer server")
    assert (type(error), error.code, error.remedy) == (RefusedError, "NEWCODE", Remedy.REPORT)
    stream_used_up = refused("ERR The stream has exhausted the last possible ID, …")
    assert (stream_used_up.code, stream_used_up.remedy) == ("ERR", Remedy.REPORT)


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("reset"),
        redis.TimeoutError("late"),
        redis.exceptions.MaxConnectionsError("too many"),
        ConnectionResetError("reset"),
        TimeoutError("late"),
        redis.exceptions.InvalidResponse("rubbish"),
    ],
)
def test_without_an_answer_the_outcome_is_unknown(error):
    found = translate(error)
    assert type(found) is UnreachableError
    assert found.remedy is Remedy.WAIT
    assert found.code == ""


def test_a_full_server_still_refuses_by_a_name_of_its_own():
    assert issubclass(OutOfMemoryError, UnwritableError)
    assert not issubclass(MovedError, DeniedError)


def test_document_equals_the_table():
    path = Path(__file__).parents[3] / "docs" / "server-errors.md"
    assert path.read_text() == codes_markdown()
