"""`batchfleet demo`."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...models.importing import import_minilm
from ...models.manifest import Manifest
from ...models.store import Store
from ...producer.async_client import AsyncClient
from ...service.clock import Clock, SystemClock
from ...service.events import Events
from ...service.lifecycle import StopSignal
from ...service.settings import Settings
from ...wire.names import shown
from ...wire.numbers import Range
from ..demo.command import (
    BASELINE_TEXTS,
    IDEAL_BATCHES,
    MODEL,
    NAIVE_BATCHES,
    Baseline,
    Embedded,
    Embedder,
    answer_questions,
)
from ..demo.report import Baselines, Figures, Finding, figures, figures_by_bucket, summary
from ..demo.texts import (
    SAMPLE_COUNT,
    SAMPLE_SEED,
    DemoText,
    read_docstrings,
    sample,
    standard_library,
)
from ..deployment import deploy
from ..local_fleet import LocalFleet, ProcessContext
from ._shared.connecting import connected
from ._shared.finding import find_version
from ._shared.options import Loaded, examples, with_settings
from ._shared.output import make_table, print_json, print_table, say
from ._shared.progress import progress_bar

_COUNT = Range(1, 1_000_000)


def _read_count(_context: click.Context, _option: click.Parameter, value: str) -> int | None:
    """How many texts; None for all."""
    if value == "all":
        return None
    count: int | None = _COUNT.read(value)
    if count is None:
        raise click.BadParameter(f"{shown(value)} is neither {_COUNT.words} nor 'all'")
    return count


@click.command()
@click.option(
    "--texts",
    metavar="NUMBER|all",
    callback=_read_count,
    envvar="TEXTS",
    default=str(SAMPLE_COUNT),
    show_default=True,
    help="How many texts to embed, or 'all'.  [TEXTS]",
)
@with_settings("redis_url", "store", "log_level", "log_format")
@examples(
    "batchfleet demo",
    "batchfleet demo --texts all",
)
def demo(loaded: Loaded, *, texts: int | None) -> None:
    """Embed real texts with a fleet, measure it and search them.

    The texts are docstrings of Python's standard library. One worker with one thread embeds them
    with minilm, 256 requests in flight, on a private server unless you name one. For comparison,
    one process runs the same model without a fleet: `naive` is its best batch size in order of
    arrival, `ideal` its best batch size with the texts sorted by length. The last line on stdout is
    one JSON object. Takes about three minutes.
    """
    clock = SystemClock()
    store = Store(loaded.settings.store)
    manifest = _ensure_model(store)
    _say("reading the docstrings of the standard library")
    chosen = sample(read_docstrings(standard_library()), texts, SAMPLE_SEED)
    baseline = Baseline(
        store=loaded.settings.store,
        version=manifest.version,
        threads=1,
        texts=[text.text for text in chosen[:BASELINE_TEXTS]],
    )
    _say(f"running {len(baseline.texts)} texts in one process without a fleet")
    ideal_before = _best(baseline, IDEAL_BATCHES, sort=True)
    naive_per_s = _best(baseline, NAIVE_BATCHES, sort=False)
    harvest, findings = _run_fleet(loaded, manifest, chosen, clock)
    _say("running without a fleet again")
    ideal_after = _best(baseline, IDEAL_BATCHES, sort=True)
    baselines = Baselines(naive_per_s=naive_per_s, ideal_per_s=(ideal_before + ideal_after) / 2)
    _report(harvest, findings, baselines)


def _best(baseline: Baseline, batch_sizes: Sequence[int], *, sort: bool) -> float:
    rates = baseline.rates(batch_sizes, sort=sort)
    order = "sorted by length" if sort else "in order of arrival"
    shown = "  ".join(f"{size}: {rate:.1f}" for size, rate in rates.items())
    say(f"without a fleet, {order}, texts/s by batch size   {shown}")
    return max(rates.values())


def _say(sentence: str) -> None:
    say(sentence, err=True)


def _ensure_model(store: Store) -> Manifest:
    if not store.versions(MODEL):
        _say(f"fetching {MODEL} into the store {store.root}")
        with progress_bar() as report:
            import_minilm(store, progress=report)
    return find_version(store, MODEL)


def demo_settings(settings: Settings, token: str) -> Settings:
    """Settings of the demo's fleet: alone in a namespace of its own, one worker, one thread."""
    return replace(settings, namespace=f"demo-{token}", models=MODEL, workers=1, threads=1)


def _run_fleet(
    loaded: Loaded, manifest: Manifest, texts: Sequence[DemoText], clock: Clock
) -> tuple[Embedded, list[Finding]]:
    settings = demo_settings(loaded.settings, secrets.token_hex(4))
    # Without signal handlers: Ctrl-C interrupts the demo wherever it is, and ends the fleet.
    process = ProcessContext(
        environ=loaded.environ, clock=clock, events=Events(), stop=StopSignal()
    )
    _say("starting a fleet: server, router and one worker")
    with LocalFleet(settings, 0, process) as local:
        local.start_server()
        with connected(local.settings) as operator:
            deploy(operator, MODEL, manifest.record(), [settings.tenant])
        local.start_programs(_say)
        return asyncio.run(_embed_and_search(local.settings, texts, clock))


async def _embed_and_search(
    settings: Settings, texts: Sequence[DemoText], clock: Clock
) -> tuple[Embedded, list[Finding]]:
    columns = (TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    client = AsyncClient(settings.redis_url, namespace=settings.namespace, tenant=settings.tenant)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("embedding", total=len(texts))
        async with client:
            embedder = Embedder(client, clock, lambda: progress.advance(task))
            harvest = await embedder.embed([text.text for text in texts])
            findings = await answer_questions(client, texts, harvest)
    return harvest, findings


def _report(harvest: Embedded, findings: Sequence[Finding], baselines: Baselines) -> None:
    overall = figures(harvest.served, harvest.duration_s)
    _print_figures([*figures_by_bucket(harvest.served, harvest.duration_s), overall])
    for finding in findings:
        _print_finding(finding)
    say(
        "",
        f"fleet {overall.throughput_per_s:.1f} texts/s;  naive {baselines.naive_per_s:.1f} "
        f"(fleet is {overall.throughput_per_s / baselines.naive_per_s:.2f} ×);  "
        f"ideal {baselines.ideal_per_s:.1f} "
        f"({overall.throughput_per_s / baselines.ideal_per_s:.2f} ×)",
        "",
    )
    for error in harvest.errors[:5]:
        _say(f"error: {error}")
    print_json(summary(overall, len(harvest.errors), baselines, findings))
    if harvest.errors or not all(finding.found for finding in findings):
        _say("the demo failed: there were errors, or a question did not find its module")
        click.get_current_context().exit(1)


def _print_figures(rows: Sequence[Figures]) -> None:
    table = make_table(
        None,
        ">bucket",
        ">requests",
        ">answers/s",
        ">p50 ms",
        ">p99 ms",
        ">mean batch",
        ">padded ÷ real",
    )
    for row in rows:
        table.add_row(
            "all" if row.bucket is None else f"≤ {row.bucket}",
            str(row.requests),
            f"{row.throughput_per_s:.1f}",
            f"{row.p50_ms:.0f}",
            f"{row.p99_ms:.0f}",
            f"{row.mean_batch:.1f}",
            f"{row.padding_ratio:.3f}",
            end_section=row is rows[-2],
        )
    print_table(table)


def _print_finding(finding: Finding) -> None:
    say("", finding.question.text)
    for hit in finding.hits:
        mark = "*" if hit.module == finding.found else " "
        first_line = hit.text.strip().splitlines()[0][:70]
        say(f" {mark} {hit.similarity:.3f}  {hit.module:28} {first_line}")
