"""Faults of `finish` and `accept`, which every request passes through."""

from tests.mutants.mutant import Mutant, on_server

REQUESTS, TAKE, INTERLEAVINGS = "test_broker_requests", "test_broker_take", "test_interleavings"
TTLS, NUMBERS = "test_broker_ttl", "test_broker_numbers"
READ_AS_TEXT = "tests/unit/broker/test_scripts.py"

FINISH = [
    Mutant(
        name="no gate",
        breaks="exactly one terminal item: only who removed the request from `due` writes it",
        path="broker/lua/finish.lua",
        before="if redis.call('ZREM', due, ARGV[a + 2]) ~= 1 then",
        after="if redis.call('ZREM', due, ARGV[a + 2]) < 0 then",
        tests=on_server(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="no owner check",
        breaks="only the holder of an entry settles it",
        path="broker/lua/finish.lua",
        before="pending[1] ~= nil and pending[1][2] == worker",
        after="pending[1] ~= nil",
        tests=on_server(REQUESTS, "test_only_the_holder_of_an_entry_settles_it"),
    ),
    Mutant(
        name="entry ended before the reply",
        breaks="a failed finish leaves the entry pending",
        path="broker/lua/finish.lua",
        before="    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])\n",
        after="    if s > 0 then\n"
        "      redis.call('XACK', KEYS[4 + s], 'worker', ARGV[a + 1])\n"
        "      redis.call('XDEL', KEYS[4 + s], ARGV[a + 1])\n"
        "    end\n"
        "    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])\n",
        tests=on_server(
            "test_broker_dead", "test_a_letter_that_cannot_be_written_keeps_entry_and_request"
        ),
    ),
    Mutant(
        name="no TTL on the reply",
        breaks="every key ends",
        path="broker/lua/finish.lua",
        before="  redis.call('PEXPIRE', reply, string.format('%d', ttl))\n",
        after="",
        tests=on_server(REQUESTS, "test_an_answer_and_its_tombstone_live_as_long_as_was_asked"),
    ),
    Mutant(
        name="no TTL on the tombstone",
        breaks="every key ends",
        path="broker/lua/finish.lua",
        before="ARGV[a + 6], 'PX', string.format('%d', remembered))",
        after="ARGV[a + 6])",
        tests=on_server(REQUESTS, "test_an_answer_and_its_tombstone_live_as_long_as_was_asked"),
    ),
    Mutant(
        name="no tombstone",
        breaks="a repeated id joins while it is remembered",
        path="broker/lua/finish.lua",
        before="  redis.call('SET', tombstone, ARGV[a + 6], 'PX', "
        "string.format('%d', remembered))\n",
        after="",
        tests=on_server(REQUESTS, "test_a_late_copy_joins_the_finished_request"),
    ),
    Mutant(
        name="a closed entry stays pending",
        breaks="settling ends the entry whether or not it answered",
        path="broker/lua/finish.lua",
        before="    if s > 0 and outcomes[i] ~= 'KEPT' then",
        after="    if s > 0 and outcomes[i] == 'ANSWERED' then",
        tests=on_server(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="acknowledged and never deleted",
        breaks="finished work takes no memory",
        path="broker/lua/finish.lua",
        before="  redis.call('XDEL', KEYS[5 + s], unpack(entries))\n",
        after="",
        tests=on_server(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="a foreign reply key stops the call",
        breaks="each item of a finish stands alone",
        path="broker/lua/finish.lua",
        before="if redis.pcall('RPUSH', reply, ARGV[a + 3]) ~= 1 then",
        after="if redis.call('RPUSH', reply, ARGV[a + 3]) ~= 1 then",
        tests=on_server(REQUESTS, "test_a_reply_key_of_the_wrong_type_spoils_nothing"),
    ),
    Mutant(
        name="a foreign journal stops the call",
        breaks="what is no part of the promise stops no answer",
        path="broker/lua/finish.lua",
        before="local written = redis.pcall('XADD', journal",
        after="local written = redis.call('XADD', journal",
        tests=on_server(
            "test_broker_foreign_keys",
            "test_a_journal_of_the_wrong_type_stops_no_answer_and_is_started_again",
        ),
    ),
    Mutant(
        name="who has no entry forgets what was asked",
        breaks="a reply lives as its caller asked, however the request ends",
        path="broker/lua/finish.lua",
        before="  if not has_asked then return default end\n",
        after="  if true then return default end\n",
        tests=(
            f"tests/contract/{TTLS}.py::test_a_request_that_is_parked_ends_with_it[session-30000]",
        ),
    ),
    Mutant(
        name="what was asked is never forgotten",
        breaks="what is kept of requests is bounded by those that are open",
        path="broker/lua/finish.lua",
        before="  redis.call('HDEL', ttls, member)\n",
        after="",
        tests=(
            f"tests/contract/{TTLS}.py::"
            "test_a_request_that_waits_ends_with_the_ttl_that_was_asked_for[session-30000]",
        ),
    ),
    Mutant(
        name="the memory of an id does not follow its reply",
        breaks="an id is remembered for longer than its reply lives",
        path="broker/lua/finish.lua",
        before="  remembered = remembered - default + ttl\n",
        after="",
        tests=(
            f"tests/contract/{TTLS}.py::"
            "test_a_request_that_waits_ends_with_the_ttl_that_was_asked_for[session-3600000]",
        ),
    ),
    Mutant(
        name="finish without allow-oom",
        breaks="finishing goes on when memory is full",
        path="broker/lua/finish.lua",
        before="#!lua flags=allow-oom",
        after="#!lua",
        tests=(
            "tests/contract/test_broker_take.py::"
            "test_finish_goes_through_when_memory_is_full_and_accept_does_not[server]",
        ),
    ),
]

ACCEPT = [
    Mutant(
        name="accept without the bound of the backlog",
        breaks="work is bounded by refusing",
        path="broker/lua/accept.lua",
        before="elseif ARGV[a + 4] ~= '' or open >= backlog then",
        after="elseif ARGV[a + 4] ~= '' then",
        tests=on_server(REQUESTS, "test_a_full_backlog_is_busy_and_keeps_the_entry"),
    ),
    Mutant(
        name="accept looks at room before it looks for a copy",
        breaks="a repeated id joins, also when the backlog is full",
        path="broker/lua/accept.lua",
        before="    if redis.call('ZSCORE', due, ARGV[a + 1]) then\n",
        after="    if ARGV[a + 4] ~= '' and redis.call('ZSCORE', due, ARGV[a + 1]) then\n",
        tests=on_server(INTERLEAVINGS, "test_a_copy_joins_although_the_backlog_is_full"),
    ),
    Mutant(
        name="a refusal is written over an open request",
        breaks="exactly one terminal item: a refusal never stands beside an answer",
        path="broker/lua/accept.lua",
        before="    if redis.call('ZSCORE', due, ARGV[a + 1]) then\n",
        after="    if ARGV[a + 4] == '' and redis.call('ZSCORE', due, ARGV[a + 1]) then\n",
        tests=on_server(
            REQUESTS, "test_an_invalid_entry_with_the_id_of_an_open_request_writes_nothing"
        ),
    ),
    Mutant(
        name="a refusal leaves a tombstone",
        breaks="who was refused may try again under the same id",
        path="broker/lua/accept.lua",
        before="      refuse(reply, ARGV[a + 4], ARGV[a + 5])\n",
        after="      refuse(reply, ARGV[a + 4], ARGV[a + 5])\n"
        "      redis.call('SET', tombstone, 'error', 'PX', refusal_ttl)\n",
        tests=on_server(REQUESTS, "test_a_refused_id_may_be_sent_again_and_its_refusal_goes"),
    ),
    Mutant(
        name="a refusal without TTL",
        breaks="every key ends",
        path="broker/lua/accept.lua",
        before="  redis.call('PEXPIRE', reply, refusal_ttl)\n",
        after="",
        tests=on_server(REQUESTS, "test_refusals_live_for_half_a_minute_and_leave_no_tombstone"),
    ),
    Mutant(
        name="an old refusal stays in front of the answer",
        breaks="readers of the reply key see the answer",
        path="broker/lua/accept.lua",
        before="    if found and outcome == 'OK' then redis.call('DEL', reply) end\n",
        after="",
        tests=on_server(REQUESTS, "test_a_refused_id_may_be_sent_again_and_its_refusal_goes"),
    ),
    Mutant(
        name="accept recreates a removed stream",
        breaks="no entry lies where nobody reads",
        path="broker/lua/accept.lua",
        before="'XADD', queue, 'NOMKSTREAM', '*'",
        after="'XADD', queue, '*'",
        tests=on_server(REQUESTS, "test_a_removed_work_stream_is_not_made_again"),
    ),
    Mutant(
        name="a work stream is trimmed",
        breaks="work is never trimmed",
        path="broker/lua/accept.lua",
        before="'XADD', queue, 'NOMKSTREAM', '*'",
        after="'XADD', queue, 'NOMKSTREAM', 'MAXLEN', '1', '*'",
        tests=(
            f"{READ_AS_TEXT}::test_no_script_trims_a_stream_of_requests[accept]",
            *on_server(INTERLEAVINGS, "test_arrivals_keep_their_order_also_after_a_death"),
        ),
    ),
    Mutant(
        name="a request that could not be placed stays open",
        breaks="open requests have an entry",
        path="broker/lua/accept.lua",
        before="    redis.call('ZREM', due, ARGV[a + 1])\n    return 'STALE'",
        after="    return 'STALE'",
        tests=on_server(REQUESTS, "test_a_removed_work_stream_is_not_made_again"),
    ),
    Mutant(
        name="the deadline counts from the caller's entry id alone",
        breaks="a deadline is never later than the server's clock allows",
        path="broker/lua/accept.lua",
        before="math.min(entered, now) + tonumber(ARGV[a + 6])",
        after="entered + tonumber(ARGV[a + 6])",
        tests=on_server(
            REQUESTS, "test_an_entry_a_little_ahead_gets_its_deadline_from_the_servers_clock"
        ),
    ),
    Mutant(
        name="an id far ahead of the clock is accepted",
        breaks="a deadline exists",
        path="broker/lua/accept.lua",
        before="  if entered > now + ahead then return 'CLOCK' end\n",
        after="",
        tests=on_server(REQUESTS, "test_an_entry_from_the_future_is_told_and_kept"),
    ),
    Mutant(
        name="accept opens what is late already",
        breaks="nothing runs after its deadline",
        path="broker/lua/accept.lua",
        before="  if deadline <= now then return 'LATE' end\n",
        after="",
        tests=on_server(REQUESTS, "test_an_entry_past_its_deadline_is_late"),
    ),
    Mutant(
        name="nobody rings the bell",
        breaks="an idle worker wakes at once",
        path="broker/lua/accept.lua",
        before="  if start <= now then ring_once(bell) end\n",
        after="",
        tests=on_server(TAKE, "test_the_bell_is_rung_again_when_room_runs_out"),
    ),
    Mutant(
        name="a foreign stream stops the call",
        breaks="each item of an accept stands alone",
        path="broker/lua/accept.lua",
        before="or redis.pcall('XLEN', stream)",
        after="or redis.call('XLEN', stream)",
        tests=on_server(
            INTERLEAVINGS, "test_accept_leaves_nothing_open_where_the_work_stream_is_none"
        ),
    ),
    Mutant(
        name="a stream that takes nothing leaves requests open",
        breaks="open requests have an entry",
        path="broker/lua/accept.lua",
        before="local added = redis.pcall('XADD', queue",
        after="local added = redis.call('XADD', queue",
        tests=on_server(INTERLEAVINGS, "test_accept_leaves_nothing_open_where_ids_are_used_up"),
    ),
]

FIRST_WRITES = [
    Mutant(
        name="numbers as Lua reads them",
        breaks="a number that somebody else wrote is whole and in its range",
        path="broker/lua/parts/whole.lua",
        before="not string.find(text, '^%d+$')",
        after="not tonumber(text)",
        tests=(
            f"tests/contract/{NUMBERS}.py::test_a_ttl_that_others_wrote_is_brought_into_its_range"
            "[session-1E9]",
        ),
    ),
    Mutant(
        name="promotion finds a foreign key when it is half done",
        breaks="a script that fails has written nothing",
        path="broker/lua/promote.lua",
        before="redis.call('ZCARD', later)\n",
        after="",
        tests=(
            "tests/contract/test_script_keys.py::"
            "test_a_script_that_meets_a_foreign_key_writes_nothing_or_is_done[session-promote-text]",
        ),
    ),
    Mutant(
        name="a worker joins what was undeployed",
        breaks="no key outlives its model",
        path="broker/lua/join.lua",
        before="if redis.call('EXISTS', KEYS[4]) == 0 then return 0 end\n",
        after="",
        tests=(
            "tests/contract/test_script_keys.py::"
            "test_a_script_that_comes_after_its_model_is_gone_makes_nothing_that_stays"
            "[session-join-at_once]",
        ),
    ),
    Mutant(
        name="all at once",
        breaks="a script never fails after its first write",
        path="broker/lua/parts/portions.lua",
        before="from, math.min(from + 999, last)",
        after="from, last",
        tests=on_server(
            "test_script_keys",
            "test_a_model_of_many_tenants_is_deployed_mended_and_undeployed",
        ),
    ),
]

REQUEST_MUTANTS = [*FINISH, *ACCEPT, *FIRST_WRITES]
