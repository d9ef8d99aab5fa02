"""Promises about one answer for each request, whatever is sent twice.

One worker with the model `echo` numbers its batches, so the numbers before and after tell how many
runs there were in between.
"""

import asyncio
import secrets
from contextlib import AsyncExitStack

import orjson

from batchfleet.producer.async_client import AsyncClient

from .promise import equals
from .raw_client import RawClient, TwoCommandCaller

MODEL = "echo"
_REPEATS = 100
_CLIENTS = 4
# Long enough that most repeats come while the first runs.
_SLOW_TEXT = "!sleep:300"


def number_of(receipt):
    """The sequence number of the batch on its worker."""
    return int(receipt["batch"].rpartition(":")[2])


def same_id_at_once(fleet):
    """One id, submitted 100 times at once by four clients."""
    before, results, after = asyncio.run(_repeat(fleet))
    answers = {
        orjson.dumps([one.receipt, one.outputs["digest"]], option=orjson.OPT_SORT_KEYS)
        for one in results
    }
    runs = number_of(after.receipt) - number_of(before.receipt) - 1
    return [
        equals(f"one id submitted {_REPEATS} times: answered calls", len(results), _REPEATS),
        equals("… different answers or receipts", len(answers), 1),
        equals("… runs", runs, 1),
        equals("… rows in its batch", results[0].receipt["rows"], 1),
    ]


async def _repeat(fleet):
    request_id = secrets.token_hex(16)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default", keep=True)
            )
            for _ in range(_CLIENTS)
        ]
        before = await clients[0].infer(MODEL, "before")
        results = await asyncio.gather(
            *(
                clients[at % _CLIENTS].infer(MODEL, _SLOW_TEXT, id=request_id)
                for at in range(_REPEATS)
            )
        )
        after = await clients[0].infer(MODEL, "after")
    return before, results, after


def sent_again(fleet):
    """An XADD that is sent again while its request runs, and again after the answer."""
    with RawClient(fleet.url) as client:
        caller = TwoCommandCaller(client, fleet.namespace, MODEL)
        request_id = secrets.token_hex(16)
        inputs = orjson.dumps({"text": [_SLOW_TEXT]})
        for _ in range(2):
            caller.submit(request_id, inputs)
        first = caller.wait(request_id)
        after_run = _fence(caller)
        items = caller.all_items(request_id)
        caller.submit(request_id, inputs)
        after_all = _fence(caller)
        later_items = caller.all_items(request_id)
    number = number_of(orjson.loads(first)["receipt"])
    return [
        equals("an XADD sent again during the run: terminal items", len(items), 1),
        equals("… and again after the answer: terminal items", len(later_items), 1),
        equals("… the item is still the same", later_items == [first], True),
        equals("… runs of it besides the first", after_all - number - 2, 0),
        equals("… and before the answer", after_run - number - 1, 0),
    ]


def _fence(caller):
    """Run another request and return its batch's number.

    The router reads in order: when this one is answered, it has dealt with all that came before.
    """
    request_id = secrets.token_hex(16)
    caller.submit(request_id, orjson.dumps({"text": ["fence"]}))
    return number_of(orjson.loads(caller.wait(request_id))["receipt"])
