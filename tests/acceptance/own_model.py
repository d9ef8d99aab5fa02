"""A model of one's own, and any input: culprits alone, neighbours unharmed, many models beside."""

from .measuring.beats import beats_beside_a_silent_device
from .measuring.company import alone_and_in_company, many_batch_sizes
from .measuring.crowd import many_rows_among_singles, ten_models, two_models
from .measuring.culprits import culprits_alone
from .measuring.large import router_cpu_by_blob
from .measuring.own_class import own_class_by_commands, two_environments
from .measuring.promise import attempt


def measure(*, quick):
    """All figures, the quickest first."""
    return [
        *attempt("an own class by the commands", own_class_by_commands),
        *attempt("packages that differ", two_environments),
        *attempt("the same row alone and in company", alone_and_in_company),
        *attempt("batches of many sizes", many_batch_sizes),
        *attempt("culprits alone", lambda: culprits_alone(quick=quick)),
        *attempt("large inputs", lambda: router_cpu_by_blob(quick=quick)),
        *attempt("a device process that is silent", beats_beside_a_silent_device),
        *attempt("two models at saturation", lambda: two_models(quick=quick)),
        *attempt("many rows among singles", lambda: many_rows_among_singles(quick=quick)),
        *attempt("ten models with two versions each", lambda: ten_models(quick=quick)),
    ]
