"""What an operator does with rolls. Each is one compare-and-set; jobs workers do the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...broker import fleet, rolls
from ...wire.announcements import WorkerAnnouncement
from ...wire.deployment import Deployment, VersionRecord
from ...wire.errors import BatchfleetError, SettingsError
from ...wire.names import require_name
from ..deployment import Operator, reconfigure, require_deployment, streams_of
from ..handing_over import fits_beside
from ..verdict import read_verdict
from .changing import Cause, begun, record_fields
from .observing import Look, first_look, look_at
from .plan import BESIDE, WORKER_BY_WORKER, Plan
from .state import TRANSITIONS, Event, Phase, RollState, read_state
from .steps import StepContext, write


class RollError(BatchfleetError):
    """A roll cannot be started or changed so; the text says why, in one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What `roll start` is asked for.

    A plan without a strategy gets one by the memory of the workers. `allows_signature_change` lets
    inputs or outputs be others than before.
    """

    model: str
    record: VersionRecord
    plan: Plan
    allows_signature_change: bool = False


def start(operator: Operator, wish: Wish) -> RollState:
    """Offer a version, and have traffic move to it step by step.

    Raises:
        RollError: it is the stable version, its signature is another, another roll runs, or no
            jobs worker is alive.
        ChangedError: somebody else has changed the record meanwhile; the text says who.
        CallerError: `unknown_model`.
        SettingsError: a foreign hand wrote the record.
        ServerError: the server failed; look at the status before trying again.
    """
    keys = operator.keys(wish.model)
    version = require_name("version", wish.record.version)
    deployment = require_deployment(wish.model, operator.deploy_hash(wish.model))
    _require_startable(deployment, wish)
    _require_jobs_worker(operator)
    nonce = operator.draw_nonce()
    said = read_verdict(operator, wish.model, version, stable=deployment.stable).said
    state = RollState(
        roll=nonce.rpartition(":")[2],
        model=wish.model,
        source=deployment.stable,
        target=version,
        plan=_settled(wish.plan, deployment.stable, said),
        by=nonce.rpartition(":")[0],
    )
    look = first_look(operator, deployment, state)
    state = begun(state, look.seen, look.now_ms)
    fields = {
        **record_fields(state, deployment.stable),
        f"version:{version}": replace(wish.record, deployed=nonce).to_wire(),
        f"kept:{version}": b"",
    }
    streams = streams_of(keys, wish.record, deployment.overrides)
    reconfigure(operator, deployment, fields, streams)
    return state


def _require_startable(deployment: Deployment, wish: Wish) -> None:
    """Refuse what must not begin."""
    model, version = wish.model, wish.record.version
    if version == deployment.stable:
        raise RollError(f"{model}/{version} is the stable version already")
    running = read_state(model, deployment.roll)
    if running is not None and not running.has_ended:
        raise RollError(
            f"a roll of {model} from {running.source} to {running.target}, started by "
            f"{running.by}, is {running.phase.replace('_', ' ')}; "
            "`batchfleet roll promote` or `roll rollback` ends it"
        )
    if deployment.canary is not None:
        raise RollError(f"{model}/{deployment.canary.version} is a canary already")
    stable = deployment.versions[deployment.stable]
    if wish.record.signature != stable.signature and not wish.allows_signature_change:
        raise RollError(
            f"the signature of {model}/{version} is another than that of {model}/{stable.version}: "
            "callers may fail; --allow-signature-change rolls it all the same"
        )


def _settled(plan: Plan, stable: str, said: Mapping[str, WorkerAnnouncement]) -> Plan:
    """The plan with its strategy, by what the workers say of their memory where it has none."""
    least = max(plan.min_ready, 1) + 1
    if not plan.strategy:
        is_beside = len(said) < least or fits_beside(stable, said)
        return replace(plan, strategy=BESIDE if is_beside else WORKER_BY_WORKER)
    if plan.strategy == WORKER_BY_WORKER and len(said) < least:
        raise RollError(
            f"{len(said)} workers are alive; worker by worker, {least} are needed, so that "
            f"{least - 1} serve while one changes over"
        )
    return plan


def _require_jobs_worker(operator: Operator) -> None:
    if not live_jobs_workers(operator):
        raise RollError(
            "no jobs worker is alive, so nothing would take the steps; start `batchfleet jobs`"
        )


def live_jobs_workers(operator: Operator) -> list[str]:
    """Names of the jobs workers that live.

    Raises:
        ServerError: the server failed.
    """
    now_ms = operator.executor.run(fleet.server_time())
    return operator.executor.run(rolls.jobs_workers(operator.namespace, now_ms))


def command(context: StepContext, model: str, event: Event) -> RollState:
    """Pause, resume, promote or roll back the roll of a model.

    Raises:
        RollError: there is no roll, or it cannot be done now.
        TransitionError: the table does not allow it now.
        ChangedError: somebody else has changed the record meanwhile; the text says who.
        SettingsError: a foreign hand wrote the record.
        ServerError: the server failed; look at the status before trying again.
    """
    require_deployment(model, context.operator.deploy_hash(model))
    look = look_at(context.operator, model)
    if look is None:
        raise RollError(f"{model} has no roll; `batchfleet roll start {model}/VERSION` starts one")
    if event in TRANSITIONS[look.state.phase]:  # else the table says why not
        _require_possible(context.operator, look, event)
    by = context.operator.draw_nonce().rpartition(":")[0]
    return write(context, look, Cause(event=event, reason=_REASONS.get(event, ""), by=by))


def _require_possible(operator: Operator, look: Look, event: Event) -> None:
    """Refuse what the table allows and the fleet does not."""
    state, seen, model = look.state, look.seen, look.state.model
    if event is Event.PROMOTE and not seen.ready:
        raise RollError(f"no worker is ready to serve {model}/{state.target}")
    if event is Event.PROMOTE and seen.stable != state.source:
        raise RollError(f"{model}/{seen.stable} was made the stable version meanwhile")
    is_leaving = state.phase is Phase.DRAINING and event is Event.ROLL_BACK
    if is_leaving and state.source not in seen.offered:
        raise RollError(
            f"{model}/{state.source} is out of service; `batchfleet roll start "
            f"{model}/{state.source}` or `batchfleet deploy` brings it back"
        )
    if event is Event.RESUME:
        _require_jobs_worker(operator)


_REASONS = {
    Event.PAUSE: "paused by an operator",
    Event.PROMOTE: "promoted by an operator",
    Event.ROLL_BACK: "rolled back by an operator",
}


def past_rolls(operator: Operator, model: str) -> Sequence[RollState]:
    """The rolls of a model that have ended, the newest first; each once.

    Raises:
        ServerError: the server failed.
    """
    keys = operator.keys(model)
    found: dict[str, RollState] = {}
    for raw in operator.executor.run(rolls.past(keys)):
        try:
            state = read_state(model, raw)
        except SettingsError:
            continue  # a foreign hand, or another release: the others are still of use
        if state is not None and state.has_ended:
            found.setdefault(state.roll, state)
    return list(found.values())
