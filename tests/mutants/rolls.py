"""Faults of what rolls rest on: the switch, the canary's share, the counts, who moves along."""

from tests.mutants.mutant import Mutant, on_server

OFFER, MOVING, STATS = "test_broker_offer", "test_broker_moving", "test_broker_stats"
UNIT = "tests/unit"

ROLL_MUTANTS = [
    Mutant(
        name="configure without a look at the record",
        breaks="of two operators who change what they have read, one is told",
        path="broker/lua/configure.lua",
        before="if ARGV[at] and (",
        after="if false and (",
        tests=on_server(OFFER, "test_of_two_who_have_read_the_same_record_one_changes_it"),
    ),
    Mutant(
        name="a canary is withdrawn",
        breaks="no request goes to a version without queues",
        path="broker/lua/withdraw.lua",
        before="canary.version == version then return -2 end",
        after="canary.version == version then version = version end",
        tests=("tests/contract/test_broker_offer.py::test_a_canary_is_not_withdrawn[session-10]",),
    ),
    Mutant(
        name="a deployed version beside a canary",
        breaks="after a plain deploy all requests go to it",
        path="broker/lua/deploy.lua",
        before="redis.call('HDEL', KEYS[1], 'canary', 'kept:'",
        after="redis.call('HDEL', KEYS[1], 'kept:'",
        tests=on_server(OFFER, "test_deploying_ends_a_canary"),
    ),
    Mutant(
        name="who comes second counts",
        breaks="each request counts once",
        path="broker/lua/finish.lua",
        before="do count(field, -tonumber(by)) end",
        after="do count(field, 0) end",
        tests=on_server(STATS, "test_who_comes_second_counts_nothing"),
    ),
    Mutant(
        name="stats of the wrong type stop an answer",
        breaks="counts are no part of the promise",
        path="broker/lua/parts/count.lua",
        before="redis.pcall('HMGET', stats, unpack(fields))",
        after="redis.call('HMGET', stats, unpack(fields))",
        tests=(
            "tests/contract/test_broker_stats.py::"
            "test_stats_that_cannot_be_written_give_way_and_stop_nothing[session-foreign key]",
        ),
    ),
    Mutant(
        name="a cancel counts against the version",
        breaks="errors are never the caller's",
        path="broker/lua/finish.lua",
        before="and redis.pcall('GET', tombstone) == 'deadline_exceeded' then",
        after="then",
        tests=on_server(STATS, "test_what_was_cancelled_meanwhile_is_nobodys_fault"),
    ),
    Mutant(
        name="move by an old record",
        breaks="nothing is placed by a record that is another by now",
        path="broker/lua/move.lua",
        before="if record.err or not record[1] or",
        after="if record.err and not record[1] and",
        tests=on_server(MOVING, "test_by_a_record_that_is_another_by_now_nothing_moves"),
    ),
    Mutant(
        name="move of what a worker holds",
        breaks="what was handed out is answered by who holds it",
        path="broker/lua/move.lua",
        before="if not is_after(id, handed_out) then return 'TAKEN' end",
        after="",
        tests=on_server(MOVING, "test_what_was_taken_meanwhile_stays_with_its_worker"),
    ),
    Mutant(
        name="move without deleting",
        breaks="a request lies in one place only",
        path="broker/lua/move.lua",
        before="  redis.call('XDEL', queue, id)\n  ring(bell)",
        after="  ring(bell)",
        tests=on_server(MOVING, "test_two_routers_that_move_the_same_move_it_once"),
    ),
    Mutant(
        name="move of whoever waits",
        breaks="who named a version is answered by it",
        path="router/moving.py",
        before='if b"version" in values:',
        after="if not values:",
        tests=(f"{UNIT}/router/test_moving.py::test_who_named_a_version_is_left_alone",),
    ),
    Mutant(
        name="every roll on the same callers",
        breaks="the salt of a roll chooses who is first",
        path="wire/canary.py",
        before="(self.salt + request_id).encode()",
        after="request_id.encode()",
        tests=(f"{UNIT}/wire/test_canary.py::test_another_salt_chooses_others",),
    ),
    Mutant(
        name="parked work goes back to a version that was replaced",
        breaks="when a command returns, no later answer names the old version",
        path="router/sweeping.py",
        before="bool(item.version) or deployment.is_default(queue.version)",
        after="True",
        tests=(f"{UNIT}/router/test_moving.py::test_what_was_parked_follows_when_it_ripens",),
    ),
]
