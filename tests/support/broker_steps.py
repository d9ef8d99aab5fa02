"""Random plays of the contract's commands: steps with their arguments, for `broker_play.Player`."""

from hypothesis import strategies as st
from support.broker_wire import BUCKETS, INPUTS, REFUSAL

from batchfleet.wire import limits
from batchfleet.wire.keys import PRIORITIES

IDS = ("a", "b", "c", "d", "e", "f")
WORKERS = ("w1", "w2", "w3")
ROUTERS = ("r1", "r2")
OTHER = "other"
BODIES = {"small": INPUTS, "large": b"x" * (limits.COPY_IN_SERVER_BYTES + 1)}
AHEAD = b"99999999999999-0"
HOUR_MS = 3_600_000

_ids = st.sampled_from(IDS)
_workers = st.sampled_from(WORKERS)
_routers = st.sampled_from(ROUTERS)
_index = st.integers(0, 7)
_buckets = st.sampled_from(BUCKETS)
_priorities = st.sampled_from(PRIORITIES)
_item = st.fixed_dictionaries(
    {
        "entry": _index,
        "bucket": _buckets,
        "priority": _priorities,
        "refusal": st.sampled_from((b"", b"", b"", REFUSAL)),
        "rows": st.sampled_from((None, 3, 500)),
        # Of no time at all: late, whatever the clock says.
        "timeout_ms": st.sampled_from((60_000, 60_000, 60_000, 0)),
        "is_ahead": st.sampled_from((False, False, False, False, True)),
        "delay_ms": st.sampled_from((0, 0, 0, HOUR_MS)),
        "retries": st.sampled_from((None, None, 2)),
    }
)
_end = st.tuples(_index, st.booleans(), st.sampled_from((b"", b"{}")), st.booleans())

# How often each step comes, and its arguments. What routers and workers do most of the time comes
# most often, so that the rest meets something.
_WEIGHED = (
    (12, "admit", _ids, _item, st.sampled_from((2, 100, 100))),
    (8, "serve", _workers, st.integers(1, 8)),
    (3, "submit", _ids, st.sampled_from(tuple(BODIES))),
    (2, "read_ingress", _routers, st.integers(1, 4)),
    (1, "reread_ingress", _routers),
    (1, "claim_ingress", _routers, st.sampled_from((0, HOUR_MS))),
    (1, "drop_ingress", _index),
    (2, "delete_entry", _index),
    (6, "accept", st.lists(_item, min_size=1, max_size=4), st.sampled_from((0, 3, 100, 100))),
    (1, "join", _workers),
    (1, "beat", _workers),
    (1, "leave", _workers),
    (1, "bury", _workers),
    (1, "vanish", _workers),
    (6, "take", _workers, st.integers(0, 8), st.permutations(BUCKETS)),
    (1, "reread_work", _workers, _buckets),
    (8, "finish", _workers, st.lists(_end, min_size=1, max_size=4)),
    (3, "retry", _workers, _index, st.booleans()),
    (4, "promote", st.booleans(), st.integers(1, 4)),
    (1, "list_waiting", _buckets),
    (1, "move", _buckets, _buckets),
    (3, "pass_on", _item, _workers, st.integers(0, 2), st.booleans()),
    (2, "lose_parked", _index),
    (2, "uproot", _workers, _item, _buckets),
    (3, "replay", _index, _ids),
    (2, "trim_letters", st.sampled_from((True, True, False))),
    (4, "give_up", _workers, _item, st.booleans()),
    (4, "fail", _workers, _item, st.booleans()),
    (2, "list_letters", st.integers(1, 3)),
    (2, "spoil_letters", _item),
    (1, "list_queue", _buckets, st.integers(1, 3)),
    (1, "lose_record"),
    (2, "mend", st.booleans()),
    (1, "prune", st.sampled_from((-1, HOUR_MS))),
    (3, "expire", _ids),
    (3, "be_late", _ids),
    (2, "overdue", st.integers(1, 3)),
    (2, "look_up", _ids),
    (1, "forget_reply", _ids),
    (1, "spoil_reply", _ids),
    (2, "remove_queue", _buckets),
    (1, "ring", _workers),
    (5, "hear", _workers),
    (2, "deploy", st.sampled_from((1, 2))),
    (1, "configure", st.sampled_from((b"5", b""))),
    (1, "undeploy", st.booleans()),
)
_STEPS_OF = {name: st.tuples(st.just(name), *arguments) for _, name, *arguments in _WEIGHED}
_NAMES = [name for weight, name, *_ in _WEIGHED for _ in range(weight)]

STEPS = st.lists(st.sampled_from(_NAMES).flatmap(_STEPS_OF.get), min_size=10, max_size=60)
