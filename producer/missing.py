"""Why a request could not be added: there is no such model, or the server has lost its keys."""

from dataclasses import dataclass

from ..broker import fleet
from ..broker.errors import DeniedError, UnusableKeyError
from ..broker.interface import AsyncExecutor
from ..wire.errors import ErrorKind, RequestError, ServerError
from ..wire.keys import ModelKeys
from .errors import unknown_model

_RETRY_AFTER_MS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What the server knows of a model that has no ingress stream for a tenant.

    Attributes:
        is_marked: an operator undeployed the model.
        has_record: it has a deploy record.
        tenants: those that it is deployed for.
        models: the names of all deployed models.
    """

    is_marked: bool
    has_record: bool
    tenants: list[str]
    models: list[str]


def was_lost(traces: Traces, model: str, tenant: str) -> bool:
    """Whether the server may have lost the stream, so that routers restore it. Pure.

    A server that knows no model at all may have come back without its data.
    """
    if traces.is_marked:
        return False
    if traces.has_record:
        return tenant in traces.tenants or not traces.tenants
    return model in traces.models or not traces.models


async def not_added_error(executor: AsyncExecutor, keys: ModelKeys, tenant: str) -> RequestError:
    """The error of a request for which there is no stream: `unknown_model` or `unavailable`.

    Raises:
        ServerError: the server refused, or cannot be reached.
    """
    answers = await executor.run_each(
        [
            fleet.is_undeployed(keys),
            fleet.is_deployed(keys),
            fleet.tenants(keys),
            fleet.models(keys.namespace),
        ]
    )
    errors = [answer for answer in answers if isinstance(answer, ServerError)]
    if any(isinstance(error, DeniedError) for error in errors):
        return unknown_model(keys, tenant)  # as far as this caller may know
    for error in errors:
        if not isinstance(error, UnusableKeyError):
            raise error
    is_marked, has_record, tenants, models = (
        [] if isinstance(answer, ServerError) else answer for answer in answers
    )
    traces = Traces(is_marked=is_marked, has_record=has_record, tenants=tenants, models=models)
    if was_lost(traces, keys.model, tenant):
        return _lost(keys, tenant, has_models=bool(models))
    return unknown_model(keys, tenant)


def _lost(keys: ModelKeys, tenant: str, *, has_models: bool) -> RequestError:
    if has_models:
        what = f"the server has lost what {keys.model} needs for tenant {tenant}"
    else:
        what = f"no model is deployed in namespace {keys.namespace}, or the server has lost them"
    return RequestError.of(
        ErrorKind.UNAVAILABLE,
        f"{what}; routers restore what they know within seconds; otherwise "
        f"`batchfleet deploy {keys.model}/VERSION`",
        retry_after_ms=_RETRY_AFTER_MS,
    )
