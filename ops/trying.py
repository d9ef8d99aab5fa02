"""A version tried without a fleet: out of the store, or straight from a `model.py`."""

import base64
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from ..consumer.device.judging import JudgedEngine, Judgement, JudgingJob
from ..consumer.device.trial import Trial, TrialJob
from ..consumer.device.version_job import EXIT_INTERRUPTED, VersionJob
from ..consumer.link.device_command import module_command
from ..consumer.link.device_environment import device_environment
from ..consumer.link.link import log_stream
from ..models.cache import default_cache, find_cache
from ..models.drafting import PublishOptions, draft_of_file
from ..models.environment_rule import EnvironmentRule
from ..models.environments import python_of
from ..models.manifest import Manifest
from ..models.store import Store
from ..service.lifecycle import interrupts_left_to_children
from ..service.settings import Settings
from ..wire.codec import MSGPACK, encode_body
from ..wire.errors import RequestError, VersionRefusedError, kind_of
from ..wire.inputs import encode_inputs

# A file that somebody names on his own command line is his to run.
_NAMED_BY_HAND = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version to try, where it lies, what of it may run, and whose files its traces name."""

    manifest: Manifest
    store: str
    allow_code: str
    environments: EnvironmentRule
    sources: Path | None = None


@contextmanager
def candidate_of_file(path: Path, wishes: PublishOptions) -> Iterator[Candidate]:
    """The class of a file as a version, in a store that is gone afterwards."""
    named = replace(wishes, model=wishes.model or path.stem, version=wishes.version or "try")
    draft, sources = draft_of_file(path, named)
    with tempfile.TemporaryDirectory(prefix="batchfleet-try-") as folder:
        manifest = Store(folder).publish(draft, sources)
        yield Candidate(
            manifest=manifest,
            store=folder,
            allow_code=_NAMED_BY_HAND,
            environments=EnvironmentRule(built=True, folders=frozenset({manifest.environment})),
            sources=path.resolve().parent,
        )


def candidate_of_store(settings: Settings, manifest: Manifest) -> Candidate:
    """A version of the store; its own user may run it here."""
    allow_code = settings.allow_code or "own"
    return Candidate(
        manifest=manifest,
        store=settings.store,
        allow_code=allow_code,
        environments=EnvironmentRule.parse(settings.allow_environments),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """What to ask: inputs as a client takes them, parameters in JSON, the last stage to run."""

    inputs: Any
    parameters: str = ""
    stage: str = "postprocess"


def try_candidate(
    candidate: Candidate, wanted: TrialRequest, settings: Settings, environ: Mapping[str, str]
) -> Trial:
    """Run one request through a version; `environ` is our environment, of which it gets little.

    Raises:
        CallerError: the inputs cannot be put on the wire.
        VersionRefusedError: the version cannot be loaded.
        RequestError: the request ends in an error, as a caller would get it.
    """
    body, _ = encode_inputs(wanted.inputs)
    job = TrialJob(
        **_of_version(candidate, settings),
        inputs=base64.b64encode(encode_body(body, MSGPACK)).decode(),
        parameters=wanted.parameters,
        stage=wanted.stage,
    )
    python = _python_of(candidate, settings)
    allowed = device_environment(environ, settings.device_environment)
    trial = Trial(**_run_apart("trial", job, python, allowed))
    if trial.refused:
        raise VersionRefusedError(trial.refused)
    if trial.error is not None:
        error = trial.error
        raise RequestError.of(kind_of(error["code"]), error["message"], rows=tuple(error["rows"]))
    return trial


def judge_precision(manifest: Manifest, settings: Settings, environ: Mapping[str, str]) -> str:
    """What precision `auto` means on this machine, for a version of the store.

    Raises:
        VersionRefusedError: the version cannot be loaded.
    """
    candidate = candidate_of_store(settings, manifest)
    return judge_candidate(candidate, (), settings, environ).settled


def judge_candidate(
    candidate: Candidate, inputs: Sequence[Any], settings: Settings, environ: Mapping[str, str]
) -> Judgement:
    """Measure all engines of a version on this machine; `environ` is our environment.

    `inputs` are of requests, in wire form, on which engines are compared besides its own examples.

    Raises:
        VersionRefusedError: the version cannot be loaded.
    """
    job = JudgingJob(**_of_version(candidate, settings), inputs=inputs)
    python = _python_of(candidate, settings)
    allowed = device_environment(environ, settings.device_environment)
    found = _run_apart("judging", job, python, allowed)
    engines = [JudgedEngine(**engine) for engine in found.pop("engines")]
    judgement = Judgement(**found, engines=engines)
    if judgement.refused:
        raise VersionRefusedError(judgement.refused)
    return judgement


def _of_version(candidate: Candidate, settings: Settings) -> dict[str, Any]:
    """The fields of a `VersionJob`."""
    manifest = candidate.manifest
    return {
        "store": candidate.store,
        "model": manifest.model,
        "version": manifest.version,
        "device": settings.device,
        "threads": settings.threads,
        "allow_code": candidate.allow_code,
        "cache": str(find_cache(settings.cache) or ""),
        "record": manifest.record().to_wire().decode(),
        "sources": "" if candidate.sources is None else str(candidate.sources),
        "log_level": settings.log_level,
        "log_format": settings.log_format,
    }


def _python_of(candidate: Candidate, settings: Settings) -> Path | None:
    """The interpreter of a version's environment; None is our own."""
    manifest = candidate.manifest
    if not manifest.environment:
        return None
    cache = find_cache(settings.cache) or default_cache()
    version = f"{manifest.model}/{manifest.version}"
    return python_of(manifest.environment, version, candidate.environments, cache)


def _run_apart(
    module: str, job: VersionJob, python: Path | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Run a job in a process of its own at this terminal, whose standard output is left to us.

    `module` is one of `consumer/device`; returns the fields of its result.
    """
    command = module_command(python, f"consumer.device.{module}")
    with tempfile.TemporaryDirectory(prefix="batchfleet-try-") as folder:
        question, answer = Path(folder, "job.json"), Path(folder, "result.json")
        question.write_bytes(orjson.dumps(asdict(job)))
        # Without a timeout on purpose: somebody may stand in a debugger.
        with interrupts_left_to_children():
            done = subprocess.run(
                [*command, str(question), str(answer)],
                check=False,
                stdout=log_stream(),
                env=environ,
            )
        if done.returncode == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if done.returncode or not answer.exists():
            raise VersionRefusedError(
                f"{job.model}/{job.version}: the process that tried it exited with code "
                f"{done.returncode}; see its output above"
            )
        found: dict[str, Any] = orjson.loads(answer.read_bytes())
        return found
