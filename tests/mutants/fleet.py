"""Faults of the scripts about workers, of those about what waits, and of the twin."""

from tests.mutants.mutant import Mutant, on_server, on_twin

REQUESTS, TAKE, RECOVERY = "test_broker_requests", "test_broker_take", "test_broker_recovery"
RECORDS_ON = "test_interleavings_records"
INTERLEAVINGS, LATER_ON = "test_interleavings", "test_interleavings_later"

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
        before="if room <= 0 or bytes <= 0 then ring(KEYS[3]) end\n",
        after="",
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
        before="then redis.call('SADD', KEYS[2], ARGV[1]) end",
        after="then end",
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
        path="broker/lua/parts/streams.lua",
        before="stream, group, '0', 'MKSTREAM'",
        after="stream, group, '$', 'MKSTREAM'",
        tests=on_server(INTERLEAVINGS, "test_what_lay_there_before_its_group_is_handed_out"),
    ),
]

RECORDS = [
    Mutant(
        name="accept by an old record",
        breaks="a router that was frozen accepts and refuses nothing by a record that is over",
        path="broker/lua/accept.lua",
        before="(record[2] or '0') ~= ARGV[6] or (record[3] or '') ~= ARGV[7] then",
        after="false then",
        tests=on_server(RECORDS_ON, "test_a_router_that_slept_through_a_pause_accepts_nothing"),
    ),
    Mutant(
        name="accept looks at the epoch alone",
        breaks="an epoch comes a second time after a model was taken out of service",
        path="broker/lua/accept.lua",
        before=" or (record[3] or '') ~= ARGV[7] then",
        after=" then",
        tests=on_server(
            RECORDS_ON, "test_a_router_that_slept_through_a_redeployment_accepts_nothing"
        ),
    ),
    Mutant(
        name="take by an old record",
        breaks="a worker that was frozen takes nothing that is on hold or another version's by now",
        path="broker/lua/take.lua",
        before="(record[2] or '0') ~= ARGV[5] or (record[3] or '') ~= ARGV[6] then",
        after="false then",
        tests=on_server(RECORDS_ON, "test_a_worker_that_slept_through_a_pause_takes_nothing"),
    ),
    Mutant(
        name="recover by an old record",
        breaks="a worker that was frozen takes nothing over by a record that is over",
        path="broker/lua/recover.lua",
        before="(record[2] or '0') ~= ARGV[4] or (record[3] or '') ~= ARGV[5] then",
        after="false then",
        tests=on_server(RECORDS_ON, "test_a_worker_that_slept_through_a_pause_takes_nothing_over"),
    ),
    Mutant(
        name="promote by an old record",
        breaks="nothing is placed where nobody reads any more",
        path="broker/lua/promote.lua",
        before="(record[2] or '0') ~= ARGV[1] or (record[3] or '') ~= ARGV[2] then",
        after="false then",
        tests=on_server(
            RECORDS_ON, "test_a_router_that_slept_promotes_nothing_where_a_version_was_withdrawn"
        ),
    ),
]

LATER = [
    Mutant(
        name="a letter that could not be written is as good as one that was",
        breaks="a failed dead-letter write ends nothing",
        path="broker/lua/finish.lua",
        before="  if type(written) == 'table' then return false end\n",
        after="  if type(written) == 'table' then return true end\n",
        tests=on_server(LATER_ON, "test_a_letter_that_cannot_be_written_ends_nothing"),
    ),
    Mutant(
        name="whoever comes second leaves a letter as well",
        breaks="only what was given up is a dead letter",
        path="broker/lua/finish.lua",
        before="ARGV[a + 10] == '1' and redis.call('ZSCORE', due, ARGV[a + 2]) then",
        after="ARGV[a + 10] == '1' then",
        tests=on_server(LATER_ON, "test_who_expires_first_leaves_no_letter"),
    ),
    Mutant(
        name="a retry without a look at the owner",
        breaks="a request lies in one place",
        path="broker/lua/retry.lua",
        before="or pending[1][2] ~= worker then",
        after="then",
        tests=on_server(LATER_ON, "test_a_worker_that_lost_an_entry_does_not_park_it"),
    ),
    Mutant(
        name="a retry leaves its entry where it was",
        breaks="a request lies in one place",
        path="broker/lua/retry.lua",
        before="redis.call('XACK', stream, 'worker', id)\nredis.call('XDEL', stream, id)\n",
        after="",
        tests=on_server(LATER_ON, "test_who_parked_a_request_answers_it_no_more"),
    ),
    Mutant(
        name="a retry of what is closed",
        breaks="what expired does not run again",
        path="broker/lua/retry.lua",
        before="if entry and redis.call('ZSCORE', due, member) then",
        after="if entry then",
        tests=on_server(LATER_ON, "test_what_expired_while_it_ran_is_not_parked"),
    ),
    Mutant(
        name="a retry without its pause",
        breaks="a retry rests before it runs",
        path="broker/lua/retry.lua",
        before="now_ms() + tonumber(ARGV[4])",
        after="now_ms()",
        tests=on_server(LATER_ON, "test_a_retry_is_not_moved_before_its_time"),
    ),
    Mutant(
        name="promotion of what is closed",
        breaks="what expired does not run",
        path="broker/lua/promote.lua",
        before="if not redis.call('ZSCORE', due, member) then",
        after="if false then",
        tests=on_server(LATER_ON, "test_a_parked_request_that_expires_runs_no_more"),
    ),
    Mutant(
        name="promotion leaves the request parked",
        breaks="a request lies in one place",
        path="broker/lua/promote.lua",
        before="  if outcome ~= 'STALE' then\n",
        after="  if outcome == 'CLOSED' then\n",
        tests=on_server(LATER_ON, "test_a_parked_request_is_moved_once_whoever_moves_it"),
    ),
    Mutant(
        name="promotion recreates a queue",
        breaks="no entry lies where nobody reads",
        path="broker/lua/promote.lua",
        before="'XADD', queue, 'NOMKSTREAM', '*'",
        after="'XADD', queue, '*'",
        tests=on_server(
            LATER_ON, "test_a_parked_request_whose_version_is_gone_stays_until_it_has_a_place"
        ),
    ),
    Mutant(
        name="a letter goes before its request is there",
        breaks="replaying loses nothing",
        path="broker/lua/replay.lua",
        before="if added then redis.call('XDEL', KEYS[1], ARGV[1]) end",
        after="redis.call('XDEL', KEYS[1], ARGV[1])",
        tests=on_server(LATER_ON, "test_a_letter_stays_where_its_model_has_no_such_tenant"),
    ),
    Mutant(
        name="a lost group made at the end of its stream",
        breaks="what came since the loss is read",
        path="broker/lua/mend.lua",
        before="KEYS[i], group, '0', 'MKSTREAM'",
        after="KEYS[i], group, '$', 'MKSTREAM'",
        tests=on_server(
            LATER_ON, "test_streams_that_were_lost_are_recreated_with_all_that_came_since"
        ),
    ),
    Mutant(
        name="mending of what was undeployed",
        breaks="an operator's word counts",
        path="broker/lua/mend.lua",
        before="if redis.call('EXISTS', KEYS[3]) == 1 then return -2 end\n",
        after="",
        tests=on_server(LATER_ON, "test_what_an_operator_took_out_of_service_is_not_mended"),
    ),
]

TWIN = [
    Mutant(
        name="the twin removes what is not there",
        breaks="the twin behaves as a server does",
        path="testing/twin/data_commands.py",
        before="    gone = sum(scores.pop(member, None) is not None for member in args[1:])\n",
        after="    gone = sum(scores.pop(member, 0) is not None for member in args[1:])\n",
        tests=on_twin(REQUESTS, "test_an_expired_request_is_not_answered_by_its_worker"),
    ),
    Mutant(
        name="the twin hands nil to a script",
        breaks="a script does on the twin what it does on a server",
        path="testing/twin/scripting.py",
        before="        return False if value is None else value\n",
        after="        return value\n",
        tests=on_twin("test_broker_scripting", "test_what_is_not_there_is_false_in_a_script"),
    ),
    Mutant(
        name="the twin ends a script at an error that it asked for",
        breaks="a script does on the twin what it does on a server",
        path="testing/twin/scripting.py",
        before='            return self._table({b"err": error.text.encode()})\n',
        after="            raise\n",
        tests=on_twin("test_broker_scripting", "test_an_error_that_a_script_asked_for_is_a_value"),
    ),
]

FLEET_MUTANTS = [*WORKERS, *RECORDS, *LATER, *TWIN]
