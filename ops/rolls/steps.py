"""One step of a roll: read, decide, change the record, each by compare-and-set.

A step may be tried by several jobs workers at once, and may end anywhere: whoever comes second
finds another record, or does what is left.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...broker import rolls
from ...models.store import Store
from ...wire.errors import StoreError
from ..clearing import forget_surplus
from ..deployment import Operator, reconfigure, withdraw
from ..store_deployment import keep_copy
from .changing import Cause, changed, record_fields
from .deciding import decide, leaving_version
from .observing import Look, look_at
from .state import Phase, RollState

Told = Callable[[RollState], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step needs.

    Attributes:
        operator: of the fleet.
        store: where copies of the deploy records lie.
        tell: called with each state that a step has made.
        tell_copy: called with what kept a copy from being written.
    """

    operator: Operator
    store: Store
    tell: Told
    tell_copy: Callable[[str, StoreError], object]


def take_step(context: StepContext, model: str) -> RollState | None:
    """Do what is due in the roll of a model; the new state, None where nothing is.

    Raises:
        ChangedError: somebody else has changed the record meanwhile; nothing was done.
        CallerError: `unknown_model`: it is not deployed any more.
        SettingsError: a foreign hand wrote the record.
        ServerError: the server failed; take the step again.
    """
    look = look_at(context.operator, model)
    if look is None:
        return None
    decision = decide(look.state, look.seen, look.now_ms)
    if decision.withdraws:
        is_kept = look.state.phase is Phase.DRAINING
        withdraw(context.operator, model, leaving_version(look.state), keep=is_kept)
        look = look_at(context.operator, model)
        if look is None:
            return None
        decision = decide(look.state, look.seen, look.now_ms)
    if decision.event is None:
        return None
    return write(context, look, Cause(event=decision.event, reason=decision.reason, by="jobs"))


def write(context: StepContext, look: Look, cause: Cause) -> RollState:
    """Change a roll, and what the record says of it, if the record is still the one that was read.

    Raises:
        ChangedError: it is another by now; the text says who has changed it.
        TransitionError: the table does not allow it.
        CallerError: `unknown_model`: it is not deployed any more.
        ServerError: the server failed; whether it was written is unknown.
    """
    after = changed(look.state, cause, look.seen, look.now_ms)
    operator, model = context.operator, look.deployment.model
    if after.has_ended:
        # Before the record: it may be written twice, and must not be missing.
        operator.executor.run_all(rolls.record_end(operator.keys(model), after.to_wire()))
    reconfigure(operator, look.deployment, record_fields(after, look.seen.stable))
    context.tell(after)
    if after.phase is Phase.COMPLETED:
        forget_surplus(operator, model, after.plan.keep)
    try:
        keep_copy(operator, context.store, model)
    except StoreError as error:
        context.tell_copy(model, error)
    return after
