"""What `tests/gpu/run.sh` runs. Prints what it finds; exit code 1 where batch ≠ single."""

import argparse
import asyncio
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import structlog
import torch
from encoders import open_store, publish_encoders

from batchfleet.consumer.device.inputs import RequestInputs
from batchfleet.consumer.device.load_pace import LoadPace
from batchfleet.consumer.device.loaded_models import PreparedRequest, take_all
from batchfleet.consumer.device.loading import load_version
from batchfleet.consumer.device.opened import OpeningOptions
from batchfleet.consumer.device.opening import store_opener
from batchfleet.consumer.device.preparing import prepare_inputs
from batchfleet.consumer.device.running import batch_of, outputs_of
from batchfleet.consumer.link.protocol import Load
from batchfleet.models.store import Store
from batchfleet.ops.cli._shared.connecting import connected
from batchfleet.ops.deployment import deploy
from batchfleet.ops.local_fleet import LocalFleet, ProcessContext
from batchfleet.producer.async_client import AsyncClient
from batchfleet.service.clock import SystemClock
from batchfleet.service.events import Events
from batchfleet.service.lifecycle import StopSignal
from batchfleet.service.logs import configure_logs
from batchfleet.service.settings_sources import load_settings

DTYPES = ("fp32", "fp16")
FP32_DIFFERENCE_MAX = 1e-4
FP16_COSINE_MIN = 0.9999
EQUAL_ROWS = 64
BUCKET_S = 1.0
OFFLINE_BATCHES = (8, 16, 32, 64, 128, 256)
ROWS_PER_REQUEST = (1, 16)
IN_FLIGHT = 512
_CLOCK = SystemClock()


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A loaded version."""

    lane: object
    lineage: str

    def prepared(self, texts):
        """What predict gets for each text, and its length."""
        request = prepare_inputs(self.lane, RequestInputs({"text": texts}, len(texts), None, "end"))
        return request.values, request.lengths

    def predict(self, values, lengths):
        """Vectors of one batch; the device is done with it when this returns."""
        count = len(values)
        request = PreparedRequest(
            number=0,
            lane=self.lane.number,
            accept="",
            wanted=(),
            inputs=RequestInputs({}, count, None, "end"),
            values=list(values),
            lengths=list(lengths),
            kinds=[0] * count,
            truncated_tokens=0,
            outputs=[None] * count,
            missing=count,
        )
        outputs = outputs_of(self.lane, batch_of(0, take_all([request])))
        return np.stack([output["embedding"] for output in outputs])


def texts_by_chance(count, seed=7):
    """Texts of log-normal length (mean 37 tokens, p95 110), in words that both tokenizers know."""
    draw = random.Random(seed)
    words = ["time", "people", "water", "house", "music", "light", "paper", "river"]
    lengths = [min(250, max(1, round(draw.lognormvariate(3.1, 0.95)))) for _ in range(count)]
    return [" ".join(draw.choices(words, k=length)) for length in lengths]


def load(store, manifest, device):
    message = Load(
        1,
        manifest.model,
        manifest.version,
        store.root,
        device,
        4,
        manifest.record().to_wire(),
        "",
        0,
        0,
    )
    lane, ready = load_version(
        message, store_opener(OpeningOptions()), LoadPace(), _CLOCK, structlog.get_logger()
    )
    return Encoder(lane=lane, lineage=ready.lineage)


def check_equal(encoder, dtype):
    """One batch of mixed lengths against each row alone: figures, and whether they hold."""
    values, lengths = encoder.prepared(texts_by_chance(EQUAL_ROWS, seed=1))
    together = encoder.predict(values, lengths)
    alone = np.concatenate(
        [encoder.predict([v], [n]) for v, n in zip(values, lengths, strict=True)]
    )
    difference = float(np.abs(together - alone).max())
    cosine = float((together * alone).sum(axis=1).min())
    holds = cosine >= FP16_COSINE_MIN if dtype == "fp16" else difference <= FP32_DIFFERENCE_MAX
    return {"max_difference": difference, "min_cosine": cosine, "holds": holds}


def rows_per_s(encoder, length, rows):
    """Rows a second of equal batches, for about a second."""
    values, lengths = encoder.prepared([" ".join(["time"] * max(1, length - 2))])
    values, lengths = values * rows, lengths * rows
    encoder.predict(values, lengths)
    started_ms, batches = _CLOCK.monotonic_ms(), 0
    while _CLOCK.monotonic_ms() - started_ms < BUCKET_S * 1000:
        encoder.predict(values, lengths)
        batches += 1
    return batches * rows / (_CLOCK.monotonic_ms() - started_ms) * 1000


def by_bucket(encoder):
    """Bucket → rows a second of the largest batch that the limits allow."""
    limits = encoder.lane.record.limits
    return {
        edge: round(
            rows_per_s(encoder, edge, min(limits.max_batch_size, limits.max_batch_tokens // edge))
        )
        for edge in limits.buckets
    }


def offline_ideal(encoder, texts):
    """Rows a second over texts sorted by length, at the best batch size, without preprocessing."""
    values, lengths = encoder.prepared(texts)
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    return max(_sorted_rate(encoder, values, lengths, order, size) for size in OFFLINE_BATCHES)


def _sorted_rate(encoder, values, lengths, order, size):
    started_ms = _CLOCK.monotonic_ms()
    for start in range(0, len(order), size):
        part = order[start : start + size]
        encoder.predict([values[at] for at in part], [lengths[at] for at in part])
    return len(order) / (_CLOCK.monotonic_ms() - started_ms) * 1000


def through_a_fleet(store, manifest, texts, device):
    """The same texts through server, router and one worker, by rows of a request."""
    settings, _ = load_settings(
        {"store": store.root, "device": device, "threads": 4, "log_level": "warning"}, {}
    )
    configure_logs("warning", "console")
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    process = ProcessContext(environ=environ, clock=_CLOCK, events=Events(), stop=StopSignal())
    with LocalFleet(settings, None, process) as local:
        local.start_server()
        with connected(local.settings) as operator:
            deploy(operator, manifest.model, manifest.record(), [settings.tenant])
        local.start_programs()
        return {
            rows: asyncio.run(_ask(local.settings.redis_url, manifest.model, texts, rows))
            for rows in ROWS_PER_REQUEST
        }


async def _ask(url, model, texts, rows):
    chunks = [texts[start : start + rows] for start in range(0, len(texts), rows)]
    batches, device_ms = {}, 0.0
    async with AsyncClient(url) as client:
        await client.infer(model, chunks[0])
        started_ms = _CLOCK.monotonic_ms()
        async for result in client.map(model, chunks, concurrency=max(8, IN_FLIGHT // rows)):
            batches[result.receipt["batch"]] = result.receipt["rows"]
            device_ms += result.usage["device_ms"]
        wall_ms = _CLOCK.monotonic_ms() - started_ms
    figures = {
        "rows_per_s": round(len(texts) / wall_ms * 1000, 1),
        "device_busy": round(device_ms / wall_ms, 3),
    }
    # A receipt names the last batch only, so that batches of larger requests go uncounted.
    return figures | (
        {"mean_batch": round(sum(batches.values()) / len(batches), 1)} if rows == 1 else {}
    )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--texts", type=int, default=8000)
    parser.add_argument("--store", type=Path, default=Path("store"), help="where minilm may lie")
    parser.add_argument("--out", type=Path, help="a file for all figures as JSON")
    return parser.parse_args()


def measure(given, folder):
    """All figures, printed as they come."""
    target = Store(str(folder / "store"))
    (folder / "files").mkdir()
    manifests, real = publish_encoders(open_store(given.store), target, folder / "files", DTYPES)
    texts = texts_by_chance(given.texts)
    name = torch.cuda.get_device_name(given.device) if given.device != "cpu" else "CPU"
    print(
        f"{name}, torch {torch.__version__}, {'MiniLM' if real else 'random weights of its size'}"
    )
    figures = {"device": name, "real_weights": real, "texts": len(texts)}
    for dtype in DTYPES:
        encoder = load(target, manifests[dtype], given.device)
        found = figures[dtype] = {"equal": check_equal(encoder, dtype)}
        print(f"{dtype}  batch = single  {found['equal']}")
        found["rows_per_s_by_bucket"] = by_bucket(encoder)
        print(f"{dtype}  rows/s by bucket  {found['rows_per_s_by_bucket']}")
        found["offline_per_s"] = round(offline_ideal(encoder, texts), 1)
        print(f"{dtype}  offline ideal  {found['offline_per_s']} rows/s")
        del encoder
        found["fleet"] = through_a_fleet(target, manifests[dtype], texts, given.device)
        for rows, fleet in found["fleet"].items():
            fleet["of_ideal"] = round(fleet["rows_per_s"] / found["offline_per_s"], 3)
            print(f"{dtype}  fleet, {rows} rows a request  {fleet}")
    return figures


def main():
    given = arguments()
    if given.device != "cpu" and not torch.cuda.is_available():
        print("no CUDA device here: nothing was measured")
        return 0
    with tempfile.TemporaryDirectory(prefix="batchfleet-gpu-") as folder:
        figures = measure(given, Path(folder))
    line = orjson.dumps(figures, option=orjson.OPT_NON_STR_KEYS)
    print(line.decode())
    if given.out:
        given.out.write_bytes(line)
    return 0 if all(figures[dtype]["equal"]["holds"] for dtype in DTYPES) else 1


if __name__ == "__main__":
    sys.exit(main())
