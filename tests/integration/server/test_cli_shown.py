"""Commands that show what others wrote: callers, models, stores, and others in Redis."""

import json
import re

import orjson
import pytest
from click.testing import CliRunner
from support.broker_wire import RECORD, TENANT, Wire

from batchfleet.broker import fleet
from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.models.importing import import_builtin
from batchfleet.models.store import Store
from batchfleet.ops.cli import main
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request
from batchfleet.wire.work import work_fields

EVIL = "\x1b]0;owned\x07\x1b[2J\r\nerror: forged \x9b \u202eevil\u2066 \u200b [red]x[/red]"
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@pytest.fixture
def wire(redis_server, namespace):
    """A deployed model `m`, without any program."""
    broker = RedisBroker(redis_server.socket_url)
    keys = ModelKeys(namespace, "m")
    with broker.connect("test") as executor:
        executor.run(fleet.deploy(keys, RECORD, fleet.queue_streams(keys, RECORD), "n", [TENANT]))
        executor.run(fleet.enlist_model(namespace, "m"))
        yield Wire(broker, executor, keys)


def reply_of(request_id, **parts):
    head = {"id": request_id, "tenant": TENANT, "model": "m", "version": "1", "meta": EVIL}
    return orjson.dumps({**head, **parts})


def faults_in(result):
    """Lines of a result that would move a terminal, or are not its own."""
    shown = result.stdout + result.stderr
    found = [ascii(line) for line in shown.splitlines() if _UNSAFE.search(line)]
    return found + [line for line in shown.splitlines() if line.startswith("error: forged")]


ERROR = {"code": 130, "name": "model_error", "source": "model", "retryable": False, "message": EVIL}


@pytest.fixture
def ended(wire):
    """An answer, an error, a dead letter, a journal line and an announcement, all hostile."""
    outputs = [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [EVIL]}]
    good = reply_of("good", status="ok", outputs=outputs, warnings=[EVIL], usage={}, receipt={})
    bad = reply_of("bad", status="error", error=ERROR)
    for name, reply in (("good", good), ("bad", bad)):
        wire.ask("RPUSH", wire.keys.reply(TENANT, name), reply)
    line = {"tenant": TENANT, "id": "bad", "error": EVIL}
    wire.ask("XADD", wire.keys.journal, "*", "line", orjson.dumps(line))
    wire.join("w1")
    entry_id = wire.enter("dead")
    item = wire.item("dead", entry_id)
    inputs = b'{"text": ["\\u001b[2J\\u202e\\r"]}'
    fields = work_fields(Request(id="dead", inputs=inputs, meta=EVIL), TENANT)
    wire.accept(item._replace(fields=fields, inputs=inputs))
    (work,) = wire.take("w1")
    end = wire.end(
        "dead", reply_of("dead", status="error", error=ERROR), work.stream, work.entry_id
    )
    wire.finish("w1", end._replace(status="error", is_dead=True))
    wire.open("open")
    lanes = {"1": {"state": EVIL, "reason": EVIL}}
    wire.ask(
        "HSET", wire.keys.worker("w1"), "lanes", orjson.dumps(lanes), "stalled", EVIL, EVIL, EVIL
    )
    return wire


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        (("result", "m", "good"), 0),
        (("result", "m", "bad"), 1),
        (("requests", "show", "m", "good"), 0),
        (("requests", "show", "m", "bad"), 0),
        (("requests", "list", "m"), 0),
        (("status",), 0),
        (("dead", "list", "m"), 0),
        (("dead", "show", "m", "dead"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_others_wrote_is_escaped(cli, ended, command, exit_code, as_json):
    """X8: meta, error texts, warnings, outputs, journal and announcements."""
    json_flag = ("--json",) if as_json else ()
    result = cli(*command, *json_flag, exit_code=exit_code)
    assert faults_in(result) == []
    if as_json:
        json.loads(result.stdout)


def test_the_meta_of_a_good_answer_is_true_in_json(cli, ended):
    """X8: nothing is lost of the data."""
    assert json.loads(cli("result", "m", "good", "--json").stdout)["meta"] == EVIL
    assert "\\x1b]0;owned" in cli("requests", "show", "m", "good").stdout.replace("u001b", "x1b")


def test_what_lies_in_a_store_is_escaped(cli, store_path):
    """X8: names of folders, texts of a manifest."""
    store = Store(str(store_path))
    import_builtin(store, "echo")
    (store_path / EVIL.replace("/", "")).mkdir()
    manifest = json.loads((store_path / "echo" / "1" / "manifest.json").read_bytes())
    manifest["parameters"] = {EVIL: EVIL}
    (store_path / "echo" / "1" / "manifest.json").write_text(json.dumps(manifest))
    for command in (("models", "list"), ("models", "show", "echo"), ("deploy", "echo/1")):
        assert faults_in(cli(*command)) == []


@pytest.mark.parametrize(
    "command",
    [
        ("infer", EVIL, "x"),
        ("status", EVIL),
        (EVIL,),
        ("deploy", EVIL),
        ("models", "show", EVIL),
        ("infer", "m", "x", "--parameters", EVIL),
        ("infer", "m", "x", "--timeout", EVIL),
        ("settings", "--store", EVIL),
        ("models", "list", "--store", f"ftp://{EVIL}/"),
    ],
    ids=ascii,
)
@pytest.mark.usefixtures("restored_logs", "clean_environment")
def test_what_was_typed_is_escaped_in_errors(command):
    """X8: a name may come from a script's data."""
    result = CliRunner().invoke(main, command)
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit)
    assert faults_in(result) == []
