"""Faults of the Lua scripts, and of the twin's functions in their place."""

from tests.mutants.mutant import Mutant, on_server, on_twin

REQUESTS, TAKE, RECOVERY = "test_broker_requests", "test_broker_take", "test_broker_recovery"
INTERLEAVINGS, SUITE = "test_interleavings", "test_broker_suite"
READ_AS_TEXT = "tests/unit/broker/test_scripts.py"

FINISH = [
    Mutant(
        name="no gate",
        breaks="exactly one terminal item: only who removed the request from `due` writes it",
        path="broker/lua/finish.lua",
        before="if redis.call('ZREM', due, ARGV[a + 2]) ~= 1 then return 'CLOSED' end",
        after="redis.call('ZREM', due, ARGV[a + 2])",
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
        "      redis.call('XACK', KEYS[2 + s], 'worker', ARGV[a + 1])\n"
        "      redis.call('XDEL', KEYS[2 + s], ARGV[a + 1])\n"
        "    end\n"
        "    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])\n",
        tests=on_server(INTERLEAVINGS, "test_a_finish_that_fails_has_ended_no_entry"),
    ),
    Mutant(
        name="no TTL on the reply",
        breaks="every key ends",
        path="broker/lua/finish.lua",
        before="  redis.call('PEXPIRE', reply, ARGV[a + 4])\n",
        after="",
        tests=on_server(REQUESTS, "test_an_answer_and_its_tombstone_live_as_long_as_was_asked"),
    ),
    Mutant(
        name="no TTL on the tombstone",
        breaks="every key ends",
        path="broker/lua/finish.lua",
        before="ARGV[a + 6], 'PX', ARGV[a + 5])",
        after="ARGV[a + 6])",
        tests=on_server(REQUESTS, "test_an_answer_and_its_tombstone_live_as_long_as_was_asked"),
    ),
    Mutant(
        name="no tombstone",
        breaks="a repeated id joins while it is remembered",
        path="broker/lua/finish.lua",
        before="  redis.call('SET', tombstone, ARGV[a + 6], 'PX', ARGV[a + 5])\n",
        after="",
        tests=on_server(REQUESTS, "test_a_late_copy_joins_the_finished_request"),
    ),
    Mutant(
        name="a closed entry stays pending",
        breaks="settling ends the entry whether or not it answered",
        path="broker/lua/finish.lua",
        before="    if s > 0 then\n      over[s]",
        after="    if s > 0 and outcomes[i] == 'ANSWERED' then\n      over[s]",
        tests=on_server(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="acknowledged and never deleted",
        breaks="finished work takes no memory",
        path="broker/lua/finish.lua",
        before="  redis.call('XDEL', KEYS[2 + s], unpack(entries))\n",
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
        name="accept makes a removed stream anew",
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
        before="math.min(entered, now) + tonumber(ARGV[a + 3])",
        after="entered + tonumber(ARGV[a + 3])",
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
        before="  ring(bell)\n",
        after="",
        tests=on_server(TAKE, "test_the_bell_is_rung_again_when_room_runs_out"),
    ),
    Mutant(
        name="a foreign stream stops the call",
        breaks="each item of an accept stands alone",
        path="broker/lua/accept.lua",
        before="local added = redis.pcall(",
        after="local added = redis.call(",
        tests=on_server(
            INTERLEAVINGS, "test_accept_leaves_nothing_open_where_the_work_stream_is_none"
        ),
    ),
]

WORKERS = [
    Mutant(
        name="take without a look at who is alive",
        breaks="a buried worker is handed nothing",
        path="broker/lua/take.lua",
        before="if not redis.call('ZSCORE', KEYS[1], worker) then",
        after="if false then",
        tests=on_server(REQUESTS, "test_take_is_refused_for_a_worker_that_was_buried"),
    ),
    Mutant(
        name="take keeps closed entries",
        breaks="what expired or was cancelled does not run",
        path="broker/lua/take.lua",
        before="    if scores[i] then\n",
        after="    if true then\n",
        tests=on_server(TAKE, "test_entries_of_closed_requests_are_dropped_and_take_no_room"),
    ),
    Mutant(
        name="take acknowledges what it hands out",
        breaks="what a dead worker held is recovered",
        path="broker/lua/take.lua",
        before="'COUNT', count,\n",
        after="'COUNT', count, 'NOACK',\n",
        tests=on_server(RECOVERY, "test_what_was_inside_counts_one_attempt_more"),
    ),
    Mutant(
        name="take does not ring again",
        breaks="what is left over wakes another worker",
        path="broker/lua/take.lua",
        before="  redis.call('RPUSH', KEYS[3], '1')\n",
        after="  local _ = 0\n",
        tests=on_server(TAKE, "test_the_bell_is_rung_again_when_room_runs_out"),
    ),
    Mutant(
        name="burial without a look at the counter",
        breaks="a beat that comes in between wins",
        path="broker/lua/bury.lua",
        before="if not counter or tonumber(counter) ~= tonumber(ARGV[2]) then",
        after="if not counter then",
        tests=on_server(RECOVERY, "test_a_beat_that_comes_in_between_wins"),
    ),
    Mutant(
        name="a buried name may join again",
        breaks="identities never return",
        path="broker/lua/join.lua",
        before=" or redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then",
        after=" then",
        tests=on_server(RECOVERY, "test_a_beat_that_comes_in_between_wins"),
    ),
    Mutant(
        name="who leaves is not lost",
        breaks="a clean exit hands everything over",
        path="broker/lua/leave.lua",
        before="if left == 1 then redis.call('SADD', KEYS[2], ARGV[1]) end\n",
        after="",
        tests=on_server(REQUESTS, "test_take_is_refused_for_a_worker_that_left"),
    ),
    Mutant(
        name="recovery counts an attempt for everyone",
        breaks="what never ran is no suspect",
        path="broker/lua/recover.lua",
        before="if inside[member] then attempt = attempt + 1 end",
        after="attempt = attempt + 1",
        tests=on_server(RECOVERY, "test_what_was_inside_counts_one_attempt_more"),
    ),
    Mutant(
        name="recovery forgets the attempts",
        breaks="a request that ends every worker is given up",
        path="broker/lua/recover.lua",
        before=", 'RETRYCOUNT', attempt, 'JUSTID')",
        after=", 'JUSTID')",
        tests=on_server(
            INTERLEAVINGS, "test_a_buffered_request_that_loses_three_workers_keeps_its_count"
        ),
    ),
    Mutant(
        name="recovery robs the living",
        breaks="age is no death",
        path="broker/lua/recover.lua",
        before="if redis.call('SISMEMBER', KEYS[3], gone) == 0 then return {} end\n",
        after="",
        tests=on_server(INTERLEAVINGS, "test_an_entry_is_covered_from_the_instant_it_is_taken"),
    ),
    Mutant(
        name="the dead recover",
        breaks="only the living hold entries",
        path="broker/lua/recover.lua",
        before="if not redis.call('ZSCORE', KEYS[1], me) then",
        after="if false then",
        tests=on_server(RECOVERY, "test_only_the_living_take_over"),
    ),
    Mutant(
        name="forgotten without a look at what is pending",
        breaks="removing a consumer loses nothing",
        path="broker/lua/retire.lua",
        before="  if not pending.err and #pending > 0 then return 0 end\n",
        after="",
        tests=on_server(RECOVERY, "test_a_lost_worker_is_forgotten_once_nothing_is_pending"),
    ),
    Mutant(
        name="a group made at the end of its stream",
        breaks="what came before the group is read",
        path="broker/lua/deploy.lua",
        before="KEYS[i], group, '0', 'MKSTREAM'",
        after="KEYS[i], group, '$', 'MKSTREAM'",
        tests=on_server(INTERLEAVINGS, "test_what_lay_there_before_its_group_is_handed_out"),
    ),
]

TWIN = [
    Mutant(
        name="the twin has no gate",
        breaks="the twin behaves as a server does",
        path="broker/memory/scripts.py",
        before='    if call("ZREM", due, member) != 1:\n        return False\n',
        after='    call("ZREM", due, member)\n',
        tests=on_twin(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="the twin buries whoever it is told to",
        breaks="the twin behaves as a server does",
        path="broker/memory/fleet_scripts.py",
        before="    if found is None or float(found) != float(counter):\n",
        after="    if found is None:\n",
        tests=on_twin(RECOVERY, "test_a_beat_that_comes_in_between_wins"),
    ),
]

SCRIPT_MUTANTS = [*FINISH, *ACCEPT, *WORKERS, *TWIN]
