"""The blocking client: threads, forks, interrupts, and a clean end of the process."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from support.stub_fleet import StubFleet

from batchfleet import Client
from batchfleet.producer.errors import ClientClosedError
from batchfleet.wire.errors import CallerError
from batchfleet.wire.states import State

PATIENCE_S = 20


@pytest.fixture
def client(redis_url, namespace):
    with Client(redis_url, namespace=namespace, tenant="default") as client:
        yield client


def run_script(redis_url, namespace, text):
    """Run a script in a process where every warning is an error; return what it printed."""
    script = f"""
import os, sys
from batchfleet import Client
url, namespace = {redis_url!r}, {namespace!r}
client = Client(url, namespace=namespace, tenant="default")
{text}
"""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_every_method_answers(client, stub):
    assert client.infer("m", "hello").text == "hello"
    handle = client.submit("m", "there")
    assert client.result(handle, timeout_s=PATIENCE_S).text == "there"
    assert client.status(handle) is State.OK
    assert client.poll(("m", "never-seen")) is None
    assert [r.text for r in client.map("m", ["a", "b", "c"], concurrency=2)] == ["a", "b", "c"]
    with pytest.raises(CallerError):
        client.infer("m", 7)


def test_map_left_early_ends_its_requests(client, stub):
    answers = client.map("m", (str(n) for n in range(1000)), concurrency=8)
    assert next(answers).text == "0"
    answers.close()
    assert client._core().client.waiting == 0


def test_many_threads_share_its_connections(client, stub, redis_url):
    texts = [str(n) for n in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda text: client.infer("m", text).text, texts))
    assert answers == texts
    with redis.Redis.from_url(redis_url, socket_timeout=10, retry=None) as server:
        ours = [c for c in server.client_list() if c["name"].startswith("batchfleet-client")]
    assert 1 <= len(ours) <= 4


def test_close_ends_calls_of_other_threads(client, keys):
    handle = client.submit("m", "x")
    errors = []

    def wait():
        try:
            client.result(handle)
        except ClientClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    inner = client._core().client
    while inner.waiting == 0:
        client.poll(handle)
    client.close()
    thread.join(PATIENCE_S)
    assert len(errors) == 1
    client.close()
    with pytest.raises(ClientClosedError):
        client.poll(handle)


def test_dropped_client_ends_its_thread(redis_url, namespace, stub):
    client = Client(redis_url, namespace=namespace, tenant="default")
    client.infer("m", "x")
    thread = client._core()._thread
    assert thread.is_alive()
    del client
    assert not thread.is_alive()


def test_process_ends_cleanly_without_close(redis_url, namespace, stub):
    said = run_script(
        redis_url,
        namespace,
        """
print(client.infer("m", "one").text, flush=True)
client.submit("m", "two")
""",
    )
    assert said == ["one"]


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"])
def test_works_on_both_sides_of_a_fork(redis_url, namespace, stub, end):
    said = run_script(
        redis_url,
        namespace,
        f"""
client.infer("m", "warm")
if os.fork() == 0:
    print(client.infer("m", "child").text, flush=True)
    {end}
print(os.wait()[1], flush=True)
if os.fork() == 0:
    {end}
print(os.wait()[1], flush=True)
print(client.infer("m", "parent").text, flush=True)
""",
    )
    assert said == ["child", "0", "0", "parent"]


def test_interrupt_ends_a_waiting_call(redis_url, namespace, keys):
    script = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
from batchfleet import Client
with Client({redis_url!r}, namespace={namespace!r}, tenant="default") as client:
    try:
        client.infer("m", "x", id="interrupted")
    except KeyboardInterrupt:
        print(client.poll(("m", "interrupted")), client._core().client.waiting)
"""
    command = [sys.executable, "-W", "error", "-c", script]
    fleet = StubFleet(redis_url, keys)
    fleet.open.clear()
    with (
        fleet,
        Client(redis_url, namespace=namespace, tenant="default") as watcher,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        while watcher.status(("m", "interrupted")) is not State.ACCEPTED:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        said, complaints = process.communicate(timeout=PATIENCE_S)
    assert (said.split(), complaints) == ([b"None", b"0"], b"")


HALF_READ = {
    "until the process ends": "answers = client.map('m', texts)\nprint(next(answers).text)",
    "and the client closed": (
        "answers = client.map('m', texts)\nprint(next(answers).text)\nclient.close()\ndel answers"
    ),
    "and closed after the client": (
        "answers = client.map('m', texts)\nprint(next(answers).text)\n"
        "client.close()\nanswers.close()"
    ),
    "in a loop that is left": "for one in client.map('m', texts):\n    print(one.text)\n    break",
    "in a ring of references": (
        "kept = [client.map('m', texts)]\nkept.append(kept)\nprint(next(kept[0]).text)"
    ),
    "on both sides of a fork": (
        "answers = client.map('m', texts)\nfirst = next(answers).text\n"
        "child = os.fork()\n"
        "if not child:\n    del answers\n    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\nprint(first)"
    ),
    "by an asyncio client": (
        "import asyncio\nfrom batchfleet import AsyncClient\n"
        "async def main():\n    other = AsyncClient(url, namespace=namespace)\n"
        "    answers = other.map('m', texts)\n    print((await anext(answers)).text)\n"
        "    await other.close()\n"
        "asyncio.run(main())"
    ),
    "by a thread": (
        "import threading\nkept = []\n"
        "def read():\n    kept.append(client.map('m', texts))\n    print(next(kept[0]).text)\n"
        "thread = threading.Thread(target=read)\nthread.start()\nthread.join(20)"
    ),
}


@pytest.mark.parametrize("how", HALF_READ)
def test_a_map_that_is_half_read_ends_with_its_process_without_a_word(
    redis_url, namespace, stub, how
):
    texts = "texts = (str(n) for n in range(1000))\n"
    assert run_script(redis_url, namespace, texts + HALF_READ[how]) == ["0"]
