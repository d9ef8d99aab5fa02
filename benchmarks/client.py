"""The load client of ours: `python -m benchmarks.client URL NAMESPACE`; see `load.py`."""

import sys

import uvloop

from batchfleet.producer.async_client import AsyncClient

from .load import serve_bursts
from .payload import one_row

MODEL = "noop"


async def main(redis_url: str, namespace: str) -> None:
    """Run bursts of `infer` calls of one client."""
    row = one_row()
    async with AsyncClient(redis_url, namespace=namespace, tenant="default") as client:
        await serve_bursts(lambda: client.infer(MODEL, row))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
