"""Users with exactly the documented rights, on every server: all calls work, none without a right.

The rights are read out of the documents, so that these cannot say something else.
"""

import asyncio
import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis
from click.testing import CliRunner
from support.fleet import Fleet, draft_of, until
from support.ports import free_port
from support.rights import rights_in
from support.server import KINDS, program_or_skip, url_as

from batchfleet.broker.advice import advise
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from batchfleet.broker.errors import DeniedError
from batchfleet.broker.rights import OPERATOR, ROUTER, WORKER, missing_rights, require_rights
from batchfleet.ops.cli import main
from batchfleet.ops.rolls.commands import Wish, past_rolls, start
from batchfleet.ops.rolls.observing import look_at
from batchfleet.ops.rolls.plan import Plan
from batchfleet.ops.rolls.state import Phase
from batchfleet.producer.async_client import AsyncClient
from batchfleet.producer.client import Client
from batchfleet.service.settings import Settings
from batchfleet.wire.errors import ErrorKind, RequestError
from batchfleet.wire.states import State

PASSWORD = "secret"
LARGE_ROWS = ["x" * 40] * 2000  # both inputs and outputs lie under keys of their own


class Guarded:
    """A server with a user for each role, and its URL for each of them."""

    def __init__(self, program, folder):
        self._server = EmbeddedServer(
            ServerOptions(program=program, port=free_port(), folder=folder)
        )
        self._server.start()
        self.admin = redis.Redis.from_url(self._server.url, socket_timeout=20, retry=None)
        router, worker, operator, jobs = rights_in("rights.md")
        (tenant,) = rights_in("protocol.md")
        self.tenant_rules = [rule.replace("acme", "default") for rule in tenant]
        users = {"router": router, "worker": worker, "operator": operator, "jobs": jobs}
        for name, rules in {**users, "tenant": self.tenant_rules}.items():
            self.let(name, rules)

    @property
    def url(self):
        return self._server.url

    @property
    def socket_url(self):
        return self._server.socket_url

    def let(self, name, rules):
        self.admin.execute_command("ACL", "SETUSER", name, "reset", "on", f">{PASSWORD}", *rules)

    def url_of(self, name):
        return url_as(self.url, name, PASSWORD)

    def close(self):
        self.admin.close()
        self._server.stop()


@pytest.fixture(scope="module", params=KINDS)
def guarded(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    server = Guarded(program_or_skip(request.param), folder)
    yield server
    server.close()


@pytest.fixture(scope="module")
def fleet(guarded, tmp_path_factory):
    """A router and a worker, each under its own user, that serve echo; deployed by an operator."""
    found = Fleet(guarded.url, "bf", tmp_path_factory.mktemp("fleet"))
    found.deploy(draft_of("echo", "echo"))
    found.start("router", redis_url=guarded.url_of("router"))
    found.start("consumer", redis_url=guarded.url_of("worker"))
    for program in found.programs:
        program.wait_until_ready()
    found.wait_served("echo")
    found.wait_routed("echo")
    yield found
    assert all(program.is_running() for program in found.programs)
    found.close()


async def use_everything(url):
    """Every call of the client, each with what it needs."""
    async with AsyncClient(url, namespace="bf", tenant="default") as client:
        assert (await client.infer("echo", "hello")).usage["rows"] == 1
        handle = await client.submit("echo", "hello")
        assert (await client.result(handle)).usage["rows"] == 1
        large = await client.infer("echo", LARGE_ROWS)
        assert large.usage["rows"] == len(LARGE_ROWS)
        handle = await client.submit("echo", "late", delay_ms=60_000)
        assert await client.poll(handle) is None
        async with asyncio.timeout(20):
            while await client.status(handle) is not State.ACCEPTED:
                pass
        assert await client.cancel(handle) is State.CANCELLED
        answers = [answer async for answer in client.map("echo", ["a", "b"])]
        assert len(answers) == 2


def test_a_tenant_may_make_every_call(fleet, guarded):
    url = guarded.url_of("tenant")
    asyncio.run(use_everything(url))
    with Client(url, namespace="bf", tenant="default") as client:
        assert client.infer("echo", "hello").usage["rows"] == 1
        assert client.status(client.submit("echo", "x")) in State
        handle = client.submit("echo", LARGE_ROWS)
        reply = f"bf:{{echo}}:re:default:{handle.id}"
        raw = guarded.admin.blmove(reply, reply, 20)
        assert raw is not None
        assert b"outputs_at" in raw
        assert client.result(handle).usage["rows"] == len(LARGE_ROWS)
    assert guarded.admin.keys("bf:{echo}:blob:default:*") == []  # removed by who may remove it


def run(url, *arguments, exit_code=0):
    environ = {"BATCHFLEET_REDIS_URL": url, "BATCHFLEET_NAMESPACE": "bf"}
    done = CliRunner(env=environ).invoke(main, arguments)
    assert done.exit_code == exit_code, done.output
    return done.output


def test_a_tenants_commands_work(fleet, guarded, restored_logs):
    url = guarded.url_of("tenant")
    assert json.loads(run(url, "infer", "echo", "hello", "--json"))["status"] == "ok"
    request_id = run(url, "submit", "echo", "hello").strip()
    assert json.loads(run(url, "result", "echo", request_id, "--json"))["status"] == "ok"
    refused = run(url, "undeploy", "echo", exit_code=1)
    assert "NOPERM" in refused


def test_an_operators_commands_work(fleet, guarded, restored_logs):
    url = guarded.url_of("operator")
    store = ("--store", fleet.store.root)
    for version in ("1", "2"):
        fleet.store.publish(draft_of("echo", "other", version=version), {})
    commands = """
        deploy other/1 --wait 0
        deploy other/2
        models remove other/1
        deploy set other backlog=7
        status --json
        settings --model other --json
        pause other
        resume other
        requests list echo
        requests purge echo --yes
        requests show echo some-id
        dead list echo
        dead purge echo --yes
        deploy restore --yes
        undeploy other
    """
    for line in commands.strip().splitlines():
        words = shlex.split(line)
        uses_store = words[0] in ("deploy", "undeploy", "models") and words[1] != "set"
        on_store = store if uses_store else ()
        accepted = 1 if words[:2] == ["requests", "show"] else 0  # there is no such request
        assert "NOPERM" not in run(url, *words, *on_store, exit_code=accepted)


def test_an_operator_may_end_a_request_that_is_open(fleet, guarded, restored_logs):
    with Client(guarded.url_of("tenant"), namespace="bf", tenant="default") as client:
        handle = client.submit("echo", "hello", delay_ms=600_000)
        until(lambda: client.status(handle) is State.ACCEPTED, "it is accepted")
        run(guarded.url_of("operator"), "requests", "cancel", "echo", handle.id)
        assert client.status(handle) is State.CANCELLED


@pytest.mark.parametrize("rules", [
    ["(+xadd ~bf:{*}:in:default)", "(+lrange +blmove +blpop +unlink ~bf:{*}:re:default:*)",
     "(+set +get +unlink ~bf:{*}:blob:default:*)"],
    ["(+xadd ~bf:{*}:in:default)", "(+lrange ~bf:{*}:re:default:*)",
     "(+set +get ~bf:{*}:blob:default:*)", "&bf:{*}:done:default:*", "+ssubscribe"],
])  # fmt: skip
def test_what_may_be_missing_may_be_missing(fleet, guarded, rules):
    guarded.let("frugal", ["-@all", *rules])

    async def ask():
        url = guarded.url_of("frugal")
        async with AsyncClient(url, namespace="bf", tenant="default") as client:
            assert (await client.infer("echo", "hello")).usage["rows"] == 1
            assert (await client.infer("echo", LARGE_ROWS)).usage["rows"] == len(LARGE_ROWS)
            handle = await client.submit("echo", "hello")
            assert (await client.result(handle)).usage["rows"] == 1
            assert await client.poll(("echo", "never-heard-of")) is None
            waits = [client.infer("echo", f"{at}") for at in range(50)]
            assert len(await asyncio.gather(*waits)) == 50

    asyncio.run(ask())


@pytest.mark.parametrize(("call", "without", "named"), [
    ("submit", "+xadd", "XADD on bf:{echo}:in:default"),
    ("infer", "+xadd", "XADD on bf:{echo}:in:default"),
    ("infer", "~bf:{*}:in:default", "XADD on bf:{echo}:in:default"),
    ("large", "+set", "SET on bf:{echo}:blob:default:"),
    ("result", "+lrange", "LRANGE on bf:{echo}:re:default:"),
    ("result", "~bf:{*}:re:default:*", "LRANGE on bf:{echo}:re:default:"),
    ("poll", "+lrange", "LRANGE on bf:{echo}:re:default:"),
    ("status", "+zscore", "ZSCORE on bf:{echo}:due"),
    ("status", "~bf:{*}:due", "ZSCORE on bf:{echo}:due"),
    ("status", "+xrange", "XRANGE on bf:{echo}:in:default"),
    ("status", "~bf:{*}:req:default:*", "GET on bf:{echo}:req:default:"),
    ("cancel", "+zscore", "ZSCORE on bf:{echo}:due"),
])  # fmt: skip
def test_any_other_right_that_is_missing_is_named(fleet, guarded, call, without, named):
    rules = [rule.replace(without, "") for rule in guarded.tenant_rules]
    guarded.let("poor", [rule for rule in rules if rule.strip("( )")])

    async def ask():
        url = guarded.url_of("poor")
        async with AsyncClient(url, namespace="bf", tenant="default") as client:
            if call in ("submit", "infer"):
                await getattr(client, call)("echo", "x")
            elif call == "large":
                await client.infer("echo", LARGE_ROWS)
            else:
                await getattr(client, call)(("echo", "some-id"))

    with pytest.raises(DeniedError) as caught:
        asyncio.run(ask())
    assert named in str(caught.value)


def test_a_tenant_reaches_nothing_of_another(fleet, guarded):
    handle = {"id": "other-1"}

    async def ask():
        url = guarded.url_of("tenant")
        async with AsyncClient(url, namespace="bf", tenant="another") as client:
            await client.submit("echo", "x", **handle)

    with pytest.raises(DeniedError, match=r"bf:\{echo\}:in:another"):
        asyncio.run(ask())


@pytest.mark.parametrize("role", [ROUTER, WORKER, OPERATOR])
def test_each_right_that_a_program_lacks_is_named_at_its_start(guarded, role):
    rules = rights_in("rights.md")[[ROUTER, WORKER, OPERATOR].index(role)]
    for name in role.commands:
        rule = "+" + name.lower().replace(" ", "|")
        guarded.let("lacking", [one for one in rules if one != rule])
        guarded.admin.script_flush()
        with (
            BlockingExecutor(guarded.url_of("lacking"), "t") as executor,
            pytest.raises(DeniedError) as caught,
        ):
            require_rights(executor, role, "bf")
        assert name.lower().replace(" ", "|") in str(caught.value).lower().replace(" ", "|")


def test_keys_and_channels_that_a_program_lacks_are_named(guarded):
    worker = rights_in("rights.md")[1]
    for rule, expected in (("~bf:*", "XADD on bf:{any}:due"), ("&bf:*", "SPUBLISH on bf:{any}")):
        guarded.let("lacking", [one for one in worker if one != rule])
        with BlockingExecutor(guarded.url_of("lacking"), "t") as executor:
            missing = executor.run(missing_rights(WORKER, "bf"))
        assert any(one.startswith(expected) for one in missing)


def advice_to(url):
    said = []
    events = SimpleNamespace(emit=lambda name, reason: said.append((name, reason)))
    with BlockingExecutor(url, "t") as executor:
        advise(executor, events, replace(Settings(), redis_url=url, namespace="bf"))
    assert {name for name, _ in said} <= {"server.advice"}
    return [reason for _, reason in said]


@pytest.mark.parametrize("role", ["router", "worker", "operator"])
def test_who_has_the_documented_rights_gets_no_advice(guarded, role):
    """T16: nor is a command sent that would be refused."""
    guarded.admin.config_get("save")
    before = guarded.admin.info("commandstats")["cmdstat_config|get"]
    assert advice_to(guarded.url_of(role)) == []
    assert guarded.admin.info("commandstats")["cmdstat_config|get"] == before


def test_a_user_who_may_administer_the_server_is_told_to_have_less(guarded):
    """T16: the user `default` is the most frequent one; on a socket it is one user's own server."""
    rights, clients = advice_to(guarded.url)
    assert "may run ACL SETUSER, CONFIG SET, FLUSHALL" in rights
    assert "docs/rights.md" in rights
    assert clients.startswith("maxmemory-clients is 0")
    assert advice_to(guarded.socket_url) == []


def test_settings_that_are_wrong_are_named_to_who_may_read_them(guarded):
    """T7, T16."""
    guarded.let("reader", [*rights_in("rights.md")[0], "+config|get"])
    values = {"maxmemory-policy": "allkeys-lru", "proto-max-bulk-len": "1mb"}
    before = {name: guarded.admin.config_get(name)[name] for name in values}
    for name, value in values.items():
        guarded.admin.config_set(name, value)
    try:
        policy, bulk, _ = advice_to(guarded.url_of("reader"))
        (policy_alone,) = advice_to(guarded.url_of("router"))
    finally:
        for name, value in before.items():
            guarded.admin.config_set(name, value)
    assert "set `maxmemory-policy noeviction`" in policy
    assert policy_alone == policy
    assert "set `proto-max-bulk-len 65mb`" in bulk


@pytest.mark.parametrize("kind", ["router", "consumer"])
def test_a_program_gives_its_advice_at_its_start(guarded, fleet, kind):
    """T16."""
    program = Fleet.start(fleet, kind, redis_url=guarded.url, namespace="advised")
    program.wait_until_ready()
    program.process.terminate()
    program.wait()
    fleet.programs.remove(program)
    (rights, _) = program.events("server.advice")
    assert "FLUSHALL" in rights["reason"]
    assert [one.events("server.advice") for one in fleet.programs] == [[], []]


@pytest.mark.parametrize("kind", ["router", "consumer"])
def test_a_program_that_lacks_a_right_ends_and_says_which(guarded, fleet, kind):
    """Redis 7 gives no channels to a user unless they are named."""
    guarded.let("almost", ["~*", "+@all", "resetchannels"])
    program = Fleet.start(fleet, kind, redis_url=guarded.url_of("almost"))
    fleet.programs.remove(program)
    assert program.wait() == 1
    assert program.rest == b""  # it never said that it was ready
    assert "SPUBLISH on bf:{" in program.log_text()


def test_a_tenant_is_told_that_an_answer_was_handed_over(fleet, guarded):
    with Client(guarded.url_of("tenant"), namespace="bf", tenant="default", keep=True) as client:
        handle = client.submit("echo", "x")
        client.result(handle)
        assert guarded.admin.unlink(f"bf:{{echo}}:re:default:{handle.id}") == 1
        with pytest.raises(RequestError) as caught:
            client.result(handle, timeout_s=20)
    assert caught.value.kind is ErrorKind.UNKNOWN_REQUEST


@pytest.mark.slow
def test_a_jobs_worker_takes_steps_and_has_rights_for_nothing_else(fleet, guarded):
    """From its start to its end, with a step that fails and one of a worker that died."""
    jobs = fleet.start("jobs", redis_url=guarded.url_of("jobs")).wait_until_ready()
    dying = fleet.start(
        "jobs", redis_url=guarded.url_of("jobs"), faults="jobs.before_step=kill"
    ).wait_until_ready()
    fleet.store.publish(replace(draft_of("echo", "echo"), version="2"), {})
    plan = Plan(weights=(100.0,), hold_s=0, min_samples=0)
    record = fleet.store.manifest("echo", "2").record()
    with BlockingExecutor(guarded.url_of("operator"), "test") as executor:
        operator = replace(fleet.operator, executor=executor)
        start(operator, Wish(model="echo", record=record, plan=plan))
        until(lambda: look_at(operator, "echo").state.has_ended, "the roll has ended", 60)
        assert look_at(operator, "echo").state.phase is Phase.COMPLETED
        assert len(past_rolls(operator, "echo")) == 1
    assert not jobs.events("server.refused")
    assert not jobs.events("jobs.step_failed")
    jobs.stop()
    dying.stop()
    fleet.programs = [one for one in fleet.programs if one not in (jobs, dying)]
