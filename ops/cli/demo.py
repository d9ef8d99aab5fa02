"""`batchfleet demo`."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ...models.engines import Engine
from ...models.importing import MINILM_NAMES, import_minilm
from ...models.manifest import Manifest
from ...models.store import Store
from ...producer.async_client import AsyncClient
from ...service.clock import Clock, SystemClock
from ...service.events import Events
from ...service.lifecycle import StopSignal
from ...service.settings import Settings
from ...wire.deployment import EXACT, VersionRecord
from ...wire.names import shown
from ...wire.numbers import Range
from ..demo.command import (
    BASELINE_TEXTS,
    IDEAL_BATCHES,
    NAIVE_BATCHES,
    Baseline,
    Embedded,
    Embedder,
    Pass,
    answer_questions,
)
from ..demo.report import (
    Baselines,
    Figures,
    Finding,
    Served,
    engines_that_answered,
    figures,
    figures_by_bucket,
    least_cosine,
    same_results,
    summary,
)
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
from ..trying import candidate_of_store, judge_candidate
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
    with minilm, 256 requests in flight, on a private server unless you name one; then once more
    with minilm-auto, the same weights with precision auto. For comparison, one process runs minilm
    without a fleet: `naive` is its best batch size in order of arrival with the plain engine,
    `ideal` its best batch size and best exact engine with the texts sorted by length. The last line
    on stdout is one JSON object. Takes three to four minutes.
    """
    settings = demo_settings(loaded.settings, secrets.token_hex(4))
    exact, auto = (_ensure_model(Store(settings.store), name) for name in MINILM_NAMES)
    _say("reading the docstrings of the standard library")
    chosen = sample(read_docstrings(standard_library()), texts, SAMPLE_SEED)
    _say("comparing the engines that this machine offers")
    candidate = candidate_of_store(settings, auto)
    judgement = judge_candidate(candidate, (), settings, loaded.environ)
    baseline = Baseline(
        store=settings.store,
        model=exact.model,
        version=exact.version,
        threads=settings.threads,
        texts=[text.text for text in chosen[:BASELINE_TEXTS]],
    )
    _say(f"running {len(baseline.texts)} texts in one process without a fleet")
    best = judgement.serving[EXACT]
    ideal_before = _best(baseline, IDEAL_BATCHES, sort=True, engine=best)
    naive = _best(baseline, NAIVE_BATCHES, sort=False, engine=judgement.engines[0].name)
    records = {exact.model: exact.record()}
    records[auto.model] = replace(auto.record(), precision=judgement.settled)
    passes = _run_fleet(replace(loaded, settings=settings), records, chosen)
    _say("running without a fleet again")
    ideal_after = _best(baseline, IDEAL_BATCHES, sort=True, engine=best)
    engines = [Engine(one.name, one.precision) for one in judgement.engines]
    served = [_served(one, records[one.model], engines) for one in passes]
    cosine = least_cosine(*(one.harvest.vectors for one in passes))
    baselines = Baselines(naive_per_s=naive, ideal_per_s=(ideal_before + ideal_after) / 2)
    _report(passes[0].harvest, served, cosine, baselines)


def _best(baseline: Baseline, batch_sizes: Sequence[int], *, sort: bool, engine: str) -> float:
    rates = baseline.rates(batch_sizes, sort=sort, engine=engine)
    order = "sorted by length" if sort else "in order of arrival"
    shown = "  ".join(f"{size}: {rate:.1f}" for size, rate in rates.items())
    say(f"without a fleet, engine {engine}, {order}, texts/s by batch size   {shown}")
    return max(rates.values())


def _say(sentence: str) -> None:
    say(sentence, err=True)


def _ensure_model(store: Store, name: str) -> Manifest:
    if not store.versions(name):
        _say(f"adding {name} to the store {store.root}")
        with progress_bar() as report:
            import_minilm(store, progress=report, name=name)
    return find_version(store, name)


def demo_settings(settings: Settings, token: str) -> Settings:
    """Settings of the demo's fleet: alone in a namespace of its own, one worker, one thread."""
    models = ",".join(MINILM_NAMES)
    return replace(settings, namespace=f"demo-{token}", models=models, workers=1, threads=1)


def _run_fleet(
    loaded: Loaded, records: Mapping[str, VersionRecord], texts: Sequence[DemoText]
) -> list[Pass]:
    clock = SystemClock()
    # Without signal handlers: Ctrl-C interrupts the demo wherever it is, and ends the fleet.
    process = ProcessContext(
        environ=loaded.environ, clock=clock, events=Events(), stop=StopSignal()
    )
    _say("starting a fleet: server, router and one worker")
    with LocalFleet(loaded.settings, 0, process) as local:
        local.start_server()
        with connected(local.settings) as operator:
            for model, record in records.items():
                deploy(operator, model, record, [local.settings.tenant])
        local.start_programs(_say)
        return [asyncio.run(_pass(local.settings, model, texts, clock)) for model in records]


async def _pass(settings: Settings, model: str, texts: Sequence[DemoText], clock: Clock) -> Pass:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    client = AsyncClient(settings.redis_url, namespace=settings.namespace, tenant=settings.tenant)
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(f"embedding with {model}", total=len(texts))
        async with client:
            embedder = Embedder(client, model, clock, lambda: progress.advance(task))
            harvest = await embedder.embed([text.text for text in texts])
            findings = await answer_questions(client, model, texts, harvest)
    return Pass(model, harvest, findings)


def _served(done: Pass, record: VersionRecord, engines: Sequence[Engine]) -> Served:
    harvest = done.harvest
    for error in harvest.errors[:5]:
        _say(f"error of {done.model}: {error}")
    return Served(
        precision=record.precision,
        engine=engines_that_answered(harvest.served, record, engines),
        overall=figures(harvest.served, harvest.duration_s),
        errors=len(harvest.errors),
        findings=done.findings,
    )


def _report(
    harvest: Embedded, served: Sequence[Served], cosine: float, baselines: Baselines
) -> None:
    exact, auto = served
    buckets = figures_by_bucket(harvest.served, harvest.duration_s)
    _print_figures([*buckets, exact.overall])
    for finding in exact.findings:
        _print_finding(finding)
    say("", _beside(exact, baselines), _beside_exact(auto, exact, cosine), "")
    print_json(summary(exact, auto, cosine, baselines))
    if not (exact.is_right and auto.is_right):
        _say("the demo failed: there were errors, or a question did not find its module")
        click.get_current_context().exit(1)


def _beside(exact: Served, baselines: Baselines) -> str:
    rate = exact.overall.throughput_per_s
    naive, ideal = baselines.naive_per_s, baselines.ideal_per_s
    return (
        f"fleet {rate:.1f} texts/s, engine {exact.engine};  "
        f"naive {naive:.1f} (fleet is {rate / naive:.2f} ×);  "
        f"ideal {ideal:.1f} ({rate / ideal:.2f} ×)"
    )


def _beside_exact(auto: Served, exact: Served, cosine: float) -> str:
    rate = auto.overall.throughput_per_s
    same = same_results(exact.findings, auto.findings)
    return (
        f"precision auto: {rate:.1f} texts/s, engine {auto.engine} "
        f"({rate / exact.overall.throughput_per_s:.2f} × exact);  least cosine {cosine:.5f};  "
        f"the same texts found for {same} of {len(exact.findings)} questions"
    )


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
