"""`batchfleet undeploy`."""

import click

from ...broker import membership
from ...models.store import Store
from .. import deployment
from ..store_deployment import remove_copy
from ._shared.connecting import changing
from ._shared.following import follow, programs_json, report_following, wait_option
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import print_json, say


@click.command()
@click.argument("model")
@click.option("--force", is_flag=True, help="Undeploy even if requests are open; they are dropped.")
@wait_option
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet undeploy minilm",
    "batchfleet undeploy minilm --force",
)
def undeploy(loaded: Loaded, *, model: str, force: bool, wait_s: float, as_json: bool) -> None:
    """Take a model out of service.

    Its streams are deleted, so new requests fail at once. Replies are kept until they expire, and
    versions stay in the store. The command returns when all live routers and workers have dropped
    the model. If one has not within --wait, it is named and the exit code is 1.
    """
    with changing(loaded.settings) as operator:
        workers = operator.executor.run(membership.living(operator.keys(model)))
        forgotten = deployment.undeploy(operator, model, forced=force)
        remove_copy(Store(loaded.settings.store), model)
        found = follow(operator, model, wait_s, workers)
    if as_json:
        left = {"model": model, "forgotten_requests": forgotten}
        print_json(left | programs_json(found))
    else:
        say(f"{model} is out of service; {forgotten} open requests were dropped")
    report_following(found, wait_s)
