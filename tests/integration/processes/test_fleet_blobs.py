"""Large inputs and outputs through a whole fleet: by the client, and by hand."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from support.fleet import digests, draft_of, limits, shared_fleet, until

from batchfleet.producer.client import Client
from batchfleet.wire.codec import decode_outputs
from batchfleet.wire.errors import CallerError, ErrorKind
from batchfleet.wire.reply import decode_reply
from batchfleet.wire.signature import Signature
from batchfleet.wire.tensors import decode_columns

MODEL, MIRROR = "m", "mirror"


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    mirror = draft_of("echo", MIRROR, parameters={"mirror": True}, signature=Signature())
    folder, drafts = tmp_path_factory.mktemp("fleet"), (draft_of("echo", MODEL), mirror)
    with shared_fleet(redis_server, folder, *drafts) as found:
        yield found


@pytest.fixture
def client(fleet):
    with Client(fleet.url, namespace=fleet.namespace, tenant="default") as found:
        yield found


def blobs(fleet, model):
    return list(fleet.server.scan_iter(f"{fleet.keys(model).prefix}blob:*", count=1000))


def test_a_caller_sees_nothing_of_it(fleet, client):
    picture = np.arange(400_000, dtype=np.float32).reshape(2, -1)
    result = client.infer(MIRROR, {"picture": picture})
    np.testing.assert_array_equal(result.outputs["picture"], picture)
    until(lambda: not blobs(fleet, MIRROR), "no blob is left")


def test_small_inputs_and_outputs_stay_where_they_were(fleet, client):
    client.infer(MIRROR, {"x": np.zeros((1, 10))})
    assert blobs(fleet, MIRROR) == []


@pytest.mark.parametrize("content_type", ["application/json", "application/msgpack"])
def test_by_hand(fleet, content_type):
    text = "x" * 200_000
    keys = fleet.keys(MIRROR)
    request_id = f"hand-{content_type[-4:]}"
    fleet.server.set(keys.blob("default", request_id), json.dumps({"text": [text]}), px=80_000)
    fleet.submit(MIRROR, None, id=request_id, inputs_at="blob", accept=content_type)
    reply = decode_reply(fleet.raw_reply(MIRROR, request_id))
    assert (reply.status, reply.outputs) == ("ok", None)
    scheme, _, key = reply.outputs_at.partition(":")
    assert (scheme, key) == ("blob", keys.outputs_blob("default", request_id))
    assert decode_columns(decode_outputs(fleet.server.get(key)))["text"] == [text]
    assert fleet.server.pttl(key) > fleet.server.pttl(keys.reply("default", request_id))
    assert not fleet.server.exists(keys.blob("default", request_id))


def test_nothing_under_the_blob_key(fleet):
    reply = fleet.ask(MODEL, None, inputs_at="blob", inputs_bytes="70000")
    assert reply.error["name"] == "payload_missing"


def test_more_under_the_blob_key_than_was_said(fleet):
    name, keys = "liar", fleet.keys(MODEL)
    fleet.server.set(keys.blob("default", name), b"x" * 5_000_000, px=80_000)
    reply = fleet.ask(MODEL, None, id=name, inputs_at="blob", inputs_bytes="1")
    assert reply.error["name"] == "too_large"
    assert not fleet.server.exists(keys.blob("default", name))


def test_a_refused_request_leaves_no_blob(fleet, client):
    with pytest.raises(CallerError) as caught:
        client.infer(MODEL, ["x" * 100_000], version="9")
    assert caught.value.kind is ErrorKind.UNKNOWN_VERSION
    until(lambda: not blobs(fleet, MODEL), "no blob is left")


def test_a_model_that_is_not_deployed_leaves_no_blob(fleet, client):
    with pytest.raises(CallerError) as caught:
        client.infer("nosuch", ["x" * 100_000])
    assert caught.value.kind is ErrorKind.UNKNOWN_MODEL
    assert blobs(fleet, "nosuch") == []


def test_an_expired_request_leaves_no_blob(fleet, client):
    with pytest.raises(Exception, match="deadline"):
        client.infer(MODEL, ["!sleep:700 " + "x" * 100_000], timeout_ms=200)
    until(lambda: not blobs(fleet, MODEL), "no blob is left")


def test_small_requests_do_not_wait_for_large_ones(fleet, client):
    texts = ["x" * 300_000, "small", "y" * 300_000, "tiny"]
    handles = [client.submit(MODEL, [text]) for text in texts]
    results = [client.result(handle) for handle in handles]
    assert [result.outputs["digest"][0] for result in results] == digests(texts)


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("slow"):
            self.server.over.wait(20)
        self.send_response(302 if self.path.endswith("moved") else 200)
        self.send_header("Location", "/in/good")
        self.end_headers()
        self.wfile.write(json.dumps({"text": ["from afar"]}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def pages():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_inputs_at_a_url(fleet, pages):
    root = f"http://127.0.0.1:{pages.server_port}/in/"
    fleet.serve(draft_of("echo", "remote", limits=limits(preprocess_ms=2000)))
    fleet.operator_sets("remote", input_prefixes=[root])
    until(lambda: fleet.ask("remote", None, inputs_at=root + "good").status == "ok", "allowed")
    slow = fleet.submit("remote", None, inputs_at=root + "slow")
    reply = fleet.ask("remote", None, inputs_at=root + "good")
    assert decode_columns(reply.outputs)["digest"] == digests(["from afar"])
    assert fleet.ask("remote", "here").status == "ok"
    assert fleet.items("remote", slow) == []
    reply = fleet.ask("remote", None, inputs_at=root + "moved")
    assert reply.error["name"] == "forbidden_reference"
    reply = fleet.ask("remote", None, inputs_at=root + "../x")
    assert reply.error["name"] == "forbidden_reference"
    assert fleet.ask(MODEL, None, inputs_at=root + "good").error["name"] == "forbidden_reference"
    assert fleet.reply("remote", slow).error["name"] == "payload_missing"
