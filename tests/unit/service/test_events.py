from pathlib import Path

import pytest
import structlog
from documents.generated import catalogue_markdown

from batchfleet.service.events import EVENTS, Events, UnknownEventError

CATALOGUE = Path(__file__).parents[3] / "docs" / "events.md"


@pytest.fixture
def log():
    return structlog.testing.CapturingLogger()


def test_event_is_logged_at_its_level_and_counted(log):
    events = Events(log)
    events.emit("device.lost", pid=7, reason="exit 9", suspects=2)
    events.emit("worker.started", worker="w-1")
    events.emit("worker.started", worker="w-2")
    assert [(call.method_name, call.args) for call in log.calls] == [
        ("error", ("device.lost",)),
        ("info", ("worker.started",)),
        ("info", ("worker.started",)),
    ]
    assert log.calls[0].kwargs == {"pid": 7, "reason": "exit 9", "suspects": 2}
    told = {name: count for name, count in events.snapshot().items() if count}
    assert told == {"device.lost": 1, "worker.started": 2}


def test_snapshot_names_every_event():
    assert Events().snapshot().keys() == EVENTS.keys()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("router.exploded", {}),
        ("worker.started", {}),
        ("worker.started", {"worker": "w", "host": "h"}),
        ("router.started", {"event": "x"}),
    ],
)
def test_events_outside_of_the_table_are_refused(log, name, fields):
    events = Events(log)
    with pytest.raises(UnknownEventError, match=name.replace(".", r"\.")):
        events.emit(name, **fields)
    assert log.calls == []
    assert set(events.snapshot().values()) == {0}


def test_rows_are_well_formed():
    for name, row in EVENTS.items():
        area, _, happened = name.partition(".")
        assert area.isidentifier(), name
        assert happened.isidentifier(), name
        assert row.level in {"debug", "info", "warning", "error"}, name
        assert row.meaning.endswith("."), name
        assert "|" not in row.meaning, name
        assert len(set(row.fields)) == len(row.fields), name


def test_document_equals_the_table():
    assert CATALOGUE.read_text(encoding="utf-8") == catalogue_markdown(), "run `make docs`"
