"""The caller whose requests are made to cost as much as they can, as a process of its own.

`python -m tests.acceptance.measuring.costly_caller URL NAMESPACE FETCHED`: sends one round of
requests for each line of JSON, which names their kind, and answers with a line once all of them
have their right answer. `FETCHED` is the address of a server that trickles.
"""

import json
import secrets
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import redis

from batchfleet.wire.codec import MSGPACK
from tests.support.fleet import Fleet

COSTLY, ENCODING, FAILING = "costly", "encoding", "failing"
NOTHING = "nothing"
_BODY_BYTES = 4 * 1024 * 1024
_MAPS = b"\xdd" + struct.pack(">I", _BODY_BYTES - 5) + b"\x80" * (_BODY_BYTES - 5)
# Made once: what it costs the caller is not what it costs the fleet.
_WORD = b'{"text": ["' + b"a" * (_BODY_BYTES - 1000) + b'"]}'
_TRICKLE_S = 30.0


def _nothing(_fleet, _root):
    """What a quiet fleet is compared with."""


def _large_entry(fleet, _root):
    """A server of ours does not take it; what one does that takes it is a matter of quotas."""
    stream = fleet.keys(COSTLY).ingress("default")
    with suppress(redis.RedisError):
        fleet.server.xadd(stream, {"id": "large", "inputs": bytes(300_000_000)}, nomkstream=True)
        raise AssertionError("it was taken")


def _many_maps(fleet, _root):
    _ask(fleet, COSTLY, "bad_inputs", inputs=_MAPS, content_type=MSGPACK)


def _long_text(fleet, _root):
    _ask(fleet, ENCODING, "too_long", inputs=_WORD, truncate="refuse")


def _same_echoed(fleet, _root):
    reply = fleet.ask(COSTLY, None, inputs=_WORD)
    assert reply.error is None, reply.error


def _trickling(fleet, root):
    where = {"text": None, "inputs_at": f"{root}x", "inputs_bytes": "10"}
    ids = fleet.submit_all(COSTLY, [where] * 8)
    for reply in fleet.replies(COSTLY, ids, _TRICKLE_S):
        assert reply.error["name"] == "payload_missing", reply.error


def _failing(fleet, _root):
    ids = fleet.submit_all(FAILING, [{"text": secrets.token_hex(2000)}] * 100)
    for reply in fleet.replies(FAILING, ids):
        assert reply.error["name"] == "model_error", reply.error


KINDS = {
    NOTHING: _nothing,
    "X3: entries of 300 MB": _large_entry,
    "X4: 4 MB of empty maps": _many_maps,
    "X5: a word of 4 MB": _long_text,
    "X5: the same, echoed": _same_echoed,
    "X6: eight that trickle": _trickling,
    "X7: a hundred that fail": _failing,
}


def _ask(fleet, model, error, text=None, **fields):
    reply = fleet.ask(model, text, **fields)
    assert reply.error["name"] == error, reply.error


def _say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(url, namespace, root):
    with tempfile.TemporaryDirectory(prefix="batchfleet-costly-") as folder:
        fleet = Fleet(url=url, namespace=namespace, folder=Path(folder))
        try:
            _say("ready")
            for line in sys.stdin:
                kind = json.loads(line)
                KINDS[kind](fleet, root)
                _say(kind)
        finally:
            fleet.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
