"""Faults of routers, workers and clients."""

from tests.mutants.mutant import Mutant

CORE = "tests/unit/consumer/batching/test_core.py"
LIVENESS = "tests/unit/wire/test_liveness.py"
HEART = "tests/unit/consumer/worker/test_heartbeat.py"
COST = "tests/unit/consumer/batching/test_cost.py"
VIEW = "tests/unit/router/test_view.py"
PUMP = "tests/unit/router/test_pump.py"
OUTAGE = "tests/unit/service/test_outage.py"
MENDING = "tests/unit/router/test_mending.py"
APART = "tests/unit/router/test_apart.py"
INTAKE = "tests/unit/consumer/worker/test_intake.py"
BATCHER = "tests/unit/consumer/batching/test_batcher.py"
NEIGHBOURS = "tests/unit/consumer/device/test_neighbours.py"
ENGINES = "tests/unit/models/test_engines.py"
CHOICE = "tests/unit/consumer/device/test_engine_choice.py"
UNIT = "tests/unit/consumer/worker/test_device_unit.py"
LANES = "tests/unit/consumer/worker/test_lanes.py"
PRECISION = "tests/unit/ops/test_precision.py"

PROGRAM_MUTANTS = [
    Mutant(
        name="a fast engine serves whatever it answers",
        breaks="an engine that is wrong is not used",
        path="models/engines.py",
        before=" and not one.fault and is_alike(one.likeness, precision)",
        after=" and not one.fault",
        tests=(f"{ENGINES}::test_an_engine_that_is_wrong_is_not_taken",),
    ),
    Mutant(
        name="any gain is worth another engine",
        breaks="another engine is used for a gain of a tenth or more",
        path="models/engines.py",
        before="    if gain_of(best, able[0]) < GAIN_MIN:\n",
        after="    if gain_of(best, able[0]) < 1.0:\n",
        tests=(f"{ENGINES}::test_a_small_gain_is_not_worth_another_engine",),
    ),
    Mutant(
        name="examples are believed from the last start",
        breaks="golden examples run at each start",
        path="consumer/device/readiness.py",
        before=(
            "        check_golden(loaded, files.golden, loaded.record.precision)\n"
            "        try_once(loaded, known.curve)\n"
        ),
        after="        try_once(loaded, known.curve)\n",
        tests=(f"{CHOICE}::test_the_next_start_measures_nothing_and_still_checks",),
    ),
    Mutant(
        name="precision is settled at each deploy",
        breaks="a version keeps its precision",
        path="ops/precision.py",
        before="    if not wanted and before is not None and before.lineage == record.lineage:\n",
        after="    if False:\n",
        tests=(f"{PRECISION}::test_a_version_keeps_its_precision_when_it_is_deployed_again",),
    ),
    Mutant(
        name="burial after one look",
        breaks="a worker is buried after a whole lease",
        path="wire/liveness.py",
        before="if now_ms - sighting.since_ms >= self._lease_ms",
        after="if now_ms - sighting.since_ms >= 0",
        tests=(f"{LIVENESS}::test_a_counter_that_stands_still_for_a_lease_proves_a_death",),
    ),
    Mutant(
        name="burial by age",
        breaks="a stall of the server or of the observer buries nobody",
        path="wire/liveness.py",
        before="        if gone or server != self._server:\n",
        after="        if server != self._server:\n",
        tests=(f"{LIVENESS}::test_a_gap_in_contact_restarts_the_watch",),
    ),
    Mutant(
        name="another server's counters go on",
        breaks="a failover buries nobody",
        path="wire/liveness.py",
        before="        if gone or server != self._server:\n",
        after="        if gone:\n",
        tests=(f"{LIVENESS}::test_another_run_of_the_server_restarts_the_watch",),
    ),
    Mutant(
        name="the heart goes on after it was fenced",
        breaks="a buried worker starts nothing more",
        path="consumer/worker/heartbeat.py",
        before="                self.fenced.set()\n                return\n",
        after="                return\n",
        tests=(f"{HEART}::test_a_buried_worker_stops_and_its_name_does_not_come_back",),
    ),
    Mutant(
        name="a name that may be buried enters again",
        breaks="a buried worker starts over as another",
        path="consumer/worker/heartbeat.py",
        before="        if not self._is_safe(keys) or not self._join(",
        after="        if not self._join(",
        tests=(f"{HEART}::test_who_may_have_been_buried_does_not_enter_again",),
    ),
    Mutant(
        name="an error of the server's ends no outage",
        breaks="a server that came back empty is mended",
        path="service/outage.py",
        before="            self.ends(loop)  # any answer shows that the server is up\n",
        after="",
        tests=(f"{OUTAGE}::test_an_error_that_the_server_answers_with_shows_that_it_is_back",),
    ),
    Mutant(
        name="tenants that were not found are forgotten",
        breaks="what is lost is served on as it was known",
        path="router/view.py",
        before="    tenants = tenants or (known.tenants if known else ())\n",
        after="",
        tests=(f"{MENDING}::test_tenants_are_served_on_while_nothing_can_be_recreated",),
    ),
    Mutant(
        name="a step of one model ends the pass",
        breaks="what fails for one model stops nothing else",
        path="service/steps.py",
        before="            self._failed = True\n",
        after="            raise\n",
        tests=(f"{APART}::test_what_fails_for_one_model_does_not_keep_another_from_its_deadlines",),
    ),
    Mutant(
        name="an entry that was passed over stays",
        breaks="an entry that makes a router fail is answered once, and ended",
        path="router/admitter.py",
        before="            return self._handle_apart(tenant, entries[done:], error)\n",
        after="            self._shared.report_failed(self._keys.model, error)\n",
        tests=(f"{APART}::test_an_entry_that_makes_the_router_fail_is_answered_and_passed_over",),
    ),
    Mutant(
        name="work is started on an old beat",
        breaks="who may be buried soon starts nothing new",
        path="consumer/batching/core.py",
        before="        if not self.device_up or now_ms > self.fresh_until_ms:\n",
        after="        if not self.device_up:\n",
        tests=(f"{CORE}::test_nothing_is_started_on_an_old_beat",),
    ),
    Mutant(
        name="suspects do not run alone",
        breaks="only the culprit of a crash fails",
        path="consumer/batching/core.py",
        before="lane.weigh(held)\n                self.suspects.add_alone(held)\n",
        after="lane.weigh(held)\n"
        "                held.phase = Phase.WAITING\n"
        "                held.lane.waiting.append(held)\n",
        tests=(
            f"{CORE}::test_after_a_lost_device_the_suspects_run_alone_and_only_the_culprit_fails",
        ),
    ),
    Mutant(
        name="real runs teach nothing",
        breaks="a slow model whose batches cost as much as one row gets full ones",
        path="consumer/batching/cost.py",
        before="replace(self, growth=self.growth + _SMOOTH * (seen - self.growth))",
        after="self",
        tests=(
            f"{COST}::test_a_slow_model_whose_batches_cost_as_much_as_one_row_gets_full_ones_soon",
        ),
    ),
    Mutant(
        name="a foreign key of one model ends the beat of all",
        breaks="what is wrong with one model concerns no other",
        path="consumer/worker/heartbeat.py",
        before="            if error.remedy not in _OF_ONE_MODEL:\n",
        after="            if True:\n",
        tests=(f"{HEART}::test_leaving_continues_behind_a_foreign_key",),
    ),
    Mutant(
        name="a frozen router trusts what it saw before",
        breaks="a gap in the watch proves nothing",
        path="router/view.py",
        before="            self._since = {}\n",
        after="            pass\n",
        tests=(f"{VIEW}::test_a_gap_between_two_looks_begins_the_watch_again",),
    ),
    Mutant(
        name="one look for what dead routers left",
        breaks="what is old is found behind whatever is fresh",
        path="router/pump.py",
        before="            while after is not None:\n",
        after="            if after is not None:\n",
        tests=(f"{PUMP}::test_what_a_dead_router_had_read_is_found_behind_what_is_fresh",),
    ),
    Mutant(
        name="what is left for lack of a record is forgotten",
        breaks="an entry that met no record waits for it",
        path="router/pump.py",
        before="        if not handle(self._tenant_of[stream], entries):\n",
        after="        if handle(self._tenant_of[stream], entries) is None:\n",
        tests=(f"{PUMP}::test_entries_of_a_model_whose_record_is_gone_wait_for_it",),
    ),
    Mutant(
        name="an old record is no reason to read it again",
        breaks="a worker takes nothing before its keeper has read the record again",
        path="consumer/worker/intake.py",
        before="            self._worker.reread(self._keys.model, offer.stamp)\n",
        after="",
        tests=(f"{INTAKE}::test_by_an_old_record_nothing_is_taken_before_it_was_read_again",),
    ),
    Mutant(
        name="suspects run beside others",
        breaks="a suspect has nothing beside it in the device process",
        path="consumer/batching/core.py",
        before="        if not self.suspects.is_inside and not self.requests.inside():\n",
        after="        if not self.suspects.is_inside:\n",
        tests=(f"{CORE}::test_a_recovered_suspect_waits_until_the_device_process_is_empty",),
    ),
    Mutant(
        name="nobody is given up",
        breaks="a request that ends every worker ends",
        path="consumer/batching/core.py",
        before="            if attempt > most:\n",
        after="            if attempt > 99 * most:\n",
        tests=(f"{CORE}::test_a_request_that_ended_too_many_workers_is_given_up",),
    ),
    Mutant(
        name="all that was inside is blamed",
        breaks="only the culprit of a crash fails",
        path="consumer/batching/core.py",
        before="            if held is culprit:\n",
        after="            if True:\n",
        tests=(
            f"{CORE}::test_after_a_lost_device_the_suspects_run_alone_and_only_the_culprit_fails",
        ),
    ),
    Mutant(
        name="a lost answer of take is not looked for",
        breaks="what was handed out is run",
        path="consumer/worker/intake.py",
        before="            worker.note_lost_answer()\n",
        after="",
        tests=(
            "tests/unit/consumer/worker/test_intake_losses.py::"
            "test_what_a_lost_answer_handed_out_is_held_once",
        ),
    ),
    Mutant(
        name="a batch of one row too many",
        breaks="batches keep the limit",
        path="consumer/batching/cutting.py",
        before="min(len(lengths), limits.max_batch_size or AUTO_ROWS) + 1",
        after="min(len(lengths), limits.max_batch_size + 1) + 1",
        tests=(f"{BATCHER}::test_never_more_rows_than_the_limit",),
    ),
    Mutant(
        name="padding costs nothing",
        breaks="batches keep the limit of tokens, padding included",
        path="consumer/batching/cutting.py",
        before="padded > limits.max_batch_tokens\n",
        after="padded - 2 * counts > limits.max_batch_tokens\n",
        tests=(f"{BATCHER}::test_tokens_that_are_only_padding_count_as_well",),
    ),
    Mutant(
        name="a batch of different parameters",
        breaks="only rows that agree share a batch",
        path="consumer/batching/batcher.py",
        before="[row for row in rows if row.key == head.key]",
        after="list(rows)",
        tests=(f"{BATCHER}::test_only_rows_with_the_same_key_share_a_batch",),
    ),
    Mutant(
        name="the oldest row may wait for ever",
        breaks="nobody starves",
        path="consumer/batching/batcher.py",
        before="    return (top if aged else row.level,",
        after="    return (row.level,",
        tests=(f"{BATCHER}::test_high_priority_goes_first_until_a_low_one_has_aged",),
    ),
    Mutant(
        name="a batch of several kinds",
        breaks="a neighbour never changes an answer",
        path="consumer/batching/dispatch.py",
        before="            (held.entry.parameters, kind),\n",
        after="            (held.entry.parameters, 0),\n",
        tests=(
            "tests/unit/consumer/batching/test_core.py::"
            "test_rows_of_several_kinds_run_one_kind_after_the_other",
        ),
    ),
    Mutant(
        name="a failed run's values run again",
        breaks="every run sees what was prepared",
        path="consumer/device/running.py",
        before="        request.values[place] = NOT_AT_HAND\n",
        after="",
        tests=(f"{NEIGHBOURS}::test_a_run_that_failed_leaves_nothing_to_the_next",),
    ),
    Mutant(
        name="the first half waits in the model's own buffer",
        breaks="what a model gives is copied before it runs again",
        path="consumer/device/running.py",
        before="[keep_output(loaded, output) for output in _run_in_halves(",
        after="[output for output in _run_in_halves(",
        tests=(f"{NEIGHBOURS}::test_halves_may_be_given_in_one_buffer",),
    ),
    Mutant(
        name="a version loads where others serve",
        breaks="a load keeps nobody waiting, and its crash touches nobody",
        path="consumer/worker/unit_key.py",
        before="version=name) if shared in serving else shared\n",
        after="version=name) if not serving else shared\n",
        tests=(f"{UNIT}::test_a_version_that_comes_while_others_serve_has_a_process_of_its_own",),
    ),
    Mutant(
        name="a lane goes with what intake has in its hands",
        breaks="what was taken is answered, or runs elsewhere",
        path="consumer/worker/worker.py",
        before="return lane.is_handed_over and (",
        after="return lane.is_draining and (",
        tests=(f"{LANES}::test_a_lane_waits_for_what_intake_has_in_its_hands",),
    ),
    Mutant(
        name="a load is blamed for a batch that runs between its parts",
        breaks="only whose code ran is to blame for a loss",
        path="consumer/batching/device_queue.py",
        before="            self._jobs.appendleft(None)\n",
        after="            self._jobs.append(None)\n",
        tests=(
            "tests/unit/consumer/batching/test_core_losses.py::"
            "test_a_batch_that_runs_between_the_parts_of_a_load_is_timed_and_at_work",
        ),
    ),
]
