"""Promises about real texts on a running fleet: answers equal to plain torch, in real batches."""

import asyncio
import secrets
from collections import Counter

import numpy as np
import orjson

from batchfleet.ops.demo.texts import read_docstrings, sample, standard_library
from batchfleet.producer.async_client import AsyncClient

from .promise import at_least, at_most, equals
from .raw_client import RawClient, TwoCommandCaller

MODEL = "minilm"
TOLERANCE = 1e-5
_SEED = 11
_TEXTS_PER_BUCKET = 25
_ROWS = 300
_NEIGHBOURS = 16
# What the body of a one-text request has besides its text, for the router's estimate of lengths.
_BODY_BYTES = 13


def two_commands(fleet, judge):
    """The two commands of the protocol through a raw socket."""
    text = "hello world"
    request_id = secrets.token_hex(16)
    with RawClient(fleet.url) as client:
        caller = TwoCommandCaller(client, fleet.namespace, MODEL)
        caller.submit(request_id, orjson.dumps({"text": [text]}))
        reply = orjson.loads(caller.wait(request_id))
    (tensor,) = reply["outputs"]
    vector = np.array(tensor["data"], np.float64).reshape(tensor["shape"])
    distance = float(np.abs(vector - judge.embed(text)).max())
    return [
        equals("two commands through a raw socket: shape of the embedding", vector.shape, (1, 384)),
        at_most("… its largest difference from plain torch", distance, TOLERANCE),
    ]


def docstrings(judge, tokens_max):
    """Real texts that need no cutting, in an order that looks random."""
    texts = sample(read_docstrings(standard_library()), 4000, _SEED)
    return [one.text for one in texts if judge.token_count(one.text) <= tokens_max]


def spread_over_buckets(texts, record):
    """The first 25 texts of each length bucket, in the order given."""
    chosen, counts = [], Counter()
    for text in texts:
        bucket = record.bucket_of(record.length_of(len(text.encode()) + _BODY_BYTES, 1))
        if counts[bucket] < _TEXTS_PER_BUCKET:
            counts[bucket] += 1
            chosen.append(text)
    return chosen


def many_texts(fleet, judge, manifest):
    """200 texts at once, on two workers."""
    limits = manifest.limits
    texts = spread_over_buckets(docstrings(judge, limits.max_length), manifest.record())
    results = asyncio.run(_infer_at_once(fleet, texts))
    distance = max(
        float(np.abs(result.output[0] - judge.embed(text)).max())
        for text, result in zip(texts, results, strict=True)
    )
    receipts = [result.receipt for result in results]
    in_company = sum(receipt["rows"] >= 4 for receipt in receipts) / len(receipts)
    by_bucket = Counter(receipt["bucket"] for receipt in receipts)
    workers = {receipt["batch"].rpartition(":")[0] for receipt in receipts}
    return [
        equals("texts at once", len(results), _TEXTS_PER_BUCKET * len(limits.buckets)),
        equals("… workers that answered them", len(workers), 2),
        at_most("… largest difference from single runs", distance, TOLERANCE),
        at_least("… share that ran in batches of ≥ 4", in_company, 0.8),
        at_least("… fewest in a bucket", min(by_bucket[edge] for edge in limits.buckets), 10),
    ]


async def _infer_at_once(fleet, texts):
    async with AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default") as client:
        return await asyncio.gather(*(client.infer(MODEL, text) for text in texts))


def long_request(fleet, judge, manifest):
    """One request of many rows while others send single rows."""
    texts = docstrings(judge, manifest.limits.max_length)
    rows, others = texts[:_ROWS], texts[_ROWS:]
    result, neighbours = asyncio.run(_infer_beside_traffic(fleet, rows, others))
    expected = np.stack([judge.embed(text) for text in rows])
    distances = np.abs(result.output - expected).max(axis=1)
    receipts = [result.receipt, *(one.receipt for one in neighbours)]
    padded = sum(receipt["padded_tokens"] for receipt in receipts)
    padding = padded / sum(receipt["tokens"] for receipt in receipts)
    own_padding = result.receipt["padded_tokens"] / result.receipt["tokens"]
    return [
        equals(f"one request of {_ROWS} rows: rows in its answer", len(result.output), _ROWS),
        at_least("… single-row requests answered meanwhile", len(neighbours), _NEIGHBOURS),
        equals("… rows right and in order", int((distances <= TOLERANCE).sum()), _ROWS),
        at_most("… its padded ÷ real tokens", own_padding, 1.3),
        at_most("… padded ÷ real tokens of all that traffic", padding, 1.3),
    ]


async def _infer_beside_traffic(fleet, rows, others):
    """The answer to all rows in one request, and those to the single rows until it came."""
    remaining, answered, done = iter(others), [], asyncio.Event()
    async with AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default") as client:

        async def call():
            for text in remaining:
                answered.append(await client.infer(MODEL, text))
                if done.is_set():
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(_NEIGHBOURS):
                group.create_task(call())
            result = await client.infer(MODEL, rows)
            done.set()
    return result, answered
