"""The table of errors against servers that really say so; what a program does is in the fleet's."""

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
import redis
from support.broker_wire import cluster_node
from support.fleet import until
from support.ports import free_port
from support.server import KINDS, private_server, url_as

from batchfleet.broker import ingress, membership, requests
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import CODES, DeniedError, MovedError, RefusedError
from batchfleet.wire.deployment import Stamp
from batchfleet.wire.errors import Remedy
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("e", "m")
WRITE = requests.store_blob(KEYS, "default", "a", b"x", 60_000)
READ = requests.open_requests(KEYS)
TIMEOUT_S = 20.0


class Bench:
    """A server of the test's own, an administrator's hand on it, and the executor under test."""

    def __init__(self, url, folder):
        self.url = url
        self.folder = folder
        self.admin = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, retry=None)
        self.executor = BlockingExecutor(url, "tested")

    def close(self):
        self.admin.close()
        self.executor.close()

    def configure(self, **values):
        for name, value in values.items():
            self.admin.config_set(name.replace("_", "-"), value)

    def refusal_of(self, command, executor=None):
        with pytest.raises(RefusedError) as caught:
            (executor or self.executor).run(command)
        error = caught.value
        assert type(error) is CODES[error.code].error
        return error

    def is_connected(self):
        return any(entry["name"] == "tested" for entry in self.admin.client_list())


@pytest.fixture(params=KINDS)
def bench(request, tmp_path):
    """Private, since it is configured into ruin."""
    folder = tmp_path / "server"
    folder.mkdir()
    with (
        private_server(request.param, folder) as server,
        closing(Bench(server.url, folder)) as found,
    ):
        yield found


def test_a_full_server(bench):
    bench.configure(maxmemory="1")
    assert bench.refusal_of(WRITE).code == "OOM"
    assert bench.refusal_of(requests.accept(KEYS, KEYS.ingress("t"), Stamp(), 1, [])).code == "OOM"
    assert bench.executor.run(READ) == 0
    bench.configure(maxmemory="0")
    bench.executor.run(WRITE)


def test_a_full_disk(bench):
    """A server whose folder is gone cannot write, whoever it runs as."""
    bench.configure(save="3600 1", stop_writes_on_bgsave_error="yes")
    shutil.rmtree(bench.folder)
    bench.admin.bgsave()
    until(
        lambda: bench.admin.info("persistence")["rdb_last_bgsave_status"] == "err", "it has failed"
    )
    assert bench.refusal_of(WRITE).code == "MISCONF"
    assert bench.refusal_of(membership.beat(KEYS, "w", 1000, {})).code == "MISCONF"
    assert bench.executor.run(READ) == 0
    bench.configure(stop_writes_on_bgsave_error="no")
    bench.executor.run(WRITE)
    # For the fixture's end: a server that cannot save does not stop in good order.
    bench.configure(save="")
    bench.folder.mkdir()


def test_a_server_without_the_replicas_that_it_wants(bench):
    bench.configure(min_replicas_to_write="1")
    assert bench.refusal_of(WRITE).code == "NOREPLICAS"
    assert bench.refusal_of(membership.beat(KEYS, "w", 1000, {})).code == "NOREPLICAS"
    assert bench.executor.run(READ) == 0


def test_a_server_that_has_become_a_replica(bench):
    bench.executor.run(WRITE)
    bench.admin.replicaof("127.0.0.1", free_port())
    error = bench.refusal_of(WRITE)
    assert (error.code, isinstance(error, MovedError)) == ("READONLY", True)
    until(lambda: not bench.is_connected(), "the connection is given up: another may be the master")
    bench.configure(replica_serve_stale_data="no")
    assert bench.refusal_of(READ).code == "MASTERDOWN"
    bench.admin.execute_command("REPLICAOF", "NO", "ONE")
    bench.executor.run(WRITE)


def test_a_wait_that_is_broken_off(bench):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bench.refusal_of, requests.wait_for_bell(["bell"], 3.0))
        entry = until(lambda: _blocked(bench.admin), "it waits")
        bench.admin.client_unblock(entry["id"], error=True)
        assert waiting.result(TIMEOUT_S).code == "UNBLOCKED"
    assert bench.executor.run(READ) == 0


def _blocked(admin):
    return next((entry for entry in admin.client_list() if "b" in entry["flags"]), None)


def test_a_group_that_is_gone_and_a_key_of_the_wrong_type(bench):
    read = ingress.read([KEYS.ingress("t")], "r", 1, 0)
    assert bench.refusal_of(read).code == "NOGROUP"
    bench.admin.set(KEYS.ingress("t"), "x")
    assert bench.refusal_of(read).code == "WRONGTYPE"


def test_a_transaction_that_was_spoilt(bench):
    for parts in (("MULTI",), ("NONSENSE",)):
        bench.executor.run_each([plain(as_is, *parts)])
    assert bench.refusal_of(plain(as_is, "EXEC")).code == "EXECABORT"


def test_an_emptied_script_cache_is_no_error(bench):
    bench.admin.hset(KEYS.deploy, "stable", "1")  # a worker joins what is deployed
    bench.executor.run(membership.lost(KEYS))
    for _ in range(2):
        bench.admin.script_flush()
        bench.executor.run(membership.join(KEYS, "w", 1000, {}))
        bench.admin.script_flush()
        assert bench.executor.run_all([READ, membership.beat(KEYS, "w", 1000, {}), READ])[1] > 1


def test_a_script_that_runs_too_long(bench):
    bench.configure(busy_reply_threshold="1")
    with ThreadPoolExecutor(1) as pool:
        spinning = pool.submit(_spin, bench.url)
        error = until(lambda: _refusal_now(bench.executor), "others are refused")
        assert error.code == "BUSY"
        bench.admin.script_kill()
        spinning.result(TIMEOUT_S)
    assert bench.executor.run(READ) == 0


def _spin(url):
    client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, retry=None)
    with closing(client), pytest.raises(redis.ResponseError):
        client.eval("while true do end", 0)


def _refusal_now(executor):
    answer = executor.run_each([READ])[0]
    return answer if isinstance(answer, RefusedError) else None


def test_who_is_not_let_in(bench):
    bench.admin.hset(KEYS.deploy, "stable", "1")
    bench.admin.execute_command("ACL", "SETUSER", "half", "on", ">x", "~e:*", "+@all", "-set")
    bench.admin.execute_command("ACL", "SETUSER", "deaf", "on", ">x", "+@all")
    for user, password, code in (
        ("half", "x", "NOPERM"),
        ("deaf", "x", "NOPERM"),
        ("half", "y", "WRONGPASS"),
    ):
        url = url_as(bench.url, user, password)
        with BlockingExecutor(url, "other") as executor:
            error = bench.refusal_of(WRITE, executor)
        assert (error.code, type(error)) == (code, DeniedError)
    bench.admin.execute_command("ACL", "SETUSER", "half", "-zadd", "+set")
    with BlockingExecutor(url_as(bench.url, "half", "x"), "other") as executor:
        executor.run(WRITE)
        with pytest.raises(RefusedError) as caught:
            executor.run(membership.join(KEYS, "w", 1000, {}))
    # Servers give no code of its own to what a script may not do: it is told, and tried again.
    assert (caught.value.code, caught.value.remedy) == ("ERR", Remedy.REPORT)


def test_a_password_that_came_later(bench):
    bench.configure(requirepass="secret")
    with BlockingExecutor(bench.url, "other") as executor:
        assert type(bench.refusal_of(WRITE, executor)) is DeniedError
    bench.admin.execute_command("AUTH", "secret")


def test_a_stream_whose_ids_are_used_up(bench):
    """It has no code of its own, so that nothing decides by it; the router sees it by the ids."""
    highest = "18446744073709551615-18446744073709551615"
    bench.admin.xadd(KEYS.ingress("t"), {"a": "b"}, id=highest)
    with pytest.raises(RefusedError) as caught:
        bench.executor.run(plain(as_is, "XADD", KEYS.ingress("t"), "*", "a", "b"))
    assert caught.value.code == "ERR"


def test_a_cluster_says_where_what_lies(tmp_path):
    with cluster_node(tmp_path) as url, closing(Bench(url, tmp_path)) as bench:
        apart = plain(as_is, "MGET", "{a}x", "{b}x")
        assert bench.refusal_of(apart).code == "CROSSSLOT"
        slot = bench.admin.execute_command("CLUSTER", "KEYSLOT", "{a}x")
        bench.admin.execute_command("CLUSTER", "DELSLOTS", slot)
        assert bench.refusal_of(plain(as_is, "GET", "{a}x")).code == "CLUSTERDOWN"


# What no server can be made to say at will.


class Answers(StreamRequestHandler):
    """Lets a client in, and then says one thing to whatever it asks."""

    def handle(self):
        while line := self.rfile.readline():
            if not re.fullmatch(rb"\*\d+\r\n", line):
                continue
            parts = [self._part() for _ in range(int(line[1:]))]
            is_greeting = parts[0].upper() in (b"CLIENT", b"SELECT", b"HELLO")
            self.wfile.write(b"+OK\r\n" if is_greeting else self.server.says)

    def _part(self):
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:-2]


@pytest.mark.parametrize("code", ["LOADING", "TRYAGAIN", "MOVED", "ASK"])
def test_what_a_server_says_only_in_passing(code):
    with ThreadingTCPServer(("127.0.0.1", 0), Answers) as server:
        server.daemon_threads = True
        server.says = f"-{code} 3999 127.0.0.1:1\r\n".encode()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"redis://127.0.0.1:{server.server_address[1]}/0"
        with BlockingExecutor(url, "tested") as executor, pytest.raises(RefusedError) as caught:
            executor.run(WRITE)
        server.shutdown()
    assert (caught.value.code, type(caught.value)) == (code, CODES[code].error)
