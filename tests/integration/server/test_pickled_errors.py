"""Errors and answers on their way between real processes, as pools and task queues send them."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from support.stub_fleet import StubFleet, deploy_model

from batchfleet import Client
from batchfleet.producer.errors import WaitTimeoutError
from batchfleet.wire.errors import BatchfleetError, CallerError, ErrorKind, SettingsError

PATIENCE_S = 30


def ask(job):
    """What a worker of a pool does: a client of its own, and one request."""
    url, namespace, model, inputs, parameters = job
    with Client(url, namespace=namespace, tenant="default") as client:
        return client.infer(model, inputs, parameters=parameters)


def wait_in_vain(job):
    url, namespace = job
    with Client(url, namespace=namespace, tenant="default") as client:
        client.result(("m", "never-seen"), timeout_s=0.05)


@pytest.fixture
def jobs(redis_url, namespace):
    with StubFleet(redis_url, deploy_model(redis_url, namespace, "m")):
        yield {
            "good": (redis_url, namespace, "m", "hello", None),
            "bad inputs": (redis_url, namespace, "m", 7, None),
            "unknown model": (redis_url, namespace, "nothing", "hello", None),
            "no server": ("nonsense", namespace, "m", "hello", None),
            "NaN": (redis_url, namespace, "m", "hello", {"t": float("nan")}),
            "wait": (redis_url, namespace),
        }


FAILS = {
    "bad inputs": (CallerError, ErrorKind.BAD_INPUTS),
    "unknown model": (CallerError, ErrorKind.UNKNOWN_MODEL),
    "no server": (SettingsError, None),
    "NaN": (CallerError, ErrorKind.BAD_REQUEST),
}


@pytest.mark.parametrize("way", ["spawn", "fork"])
def test_a_pool_hands_over_answers_and_errors(jobs, way):
    with multiprocessing.get_context(way).Pool(1) as pool:
        assert pool.map_async(ask, [jobs["good"]]).get(PATIENCE_S)[0].text == "hello"
        for name, (kind, number) in FAILS.items():
            with pytest.raises(BatchfleetError) as caught:
                pool.map_async(ask, [jobs[name]]).get(PATIENCE_S)
            assert type(caught.value) is kind
            assert getattr(caught.value, "kind", None) is number
            assert str(caught.value)
        with pytest.raises(WaitTimeoutError, match="never-seen"):
            pool.apply_async(wait_in_vain, [jobs["wait"]]).get(PATIENCE_S)


def test_an_executor_hands_over_answers_and_errors(jobs):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(ask, jobs["good"]).result(PATIENCE_S).text == "hello"
        with pytest.raises(CallerError, match="nothing is not deployed"):
            pool.submit(ask, jobs["unknown model"]).result(PATIENCE_S)
        with Client(jobs["good"][0]) as client, pytest.raises(TypeError, match="one in each"):
            pool.submit(client.infer, "m", "hello").result(PATIENCE_S)
        assert pool.submit(ask, jobs["good"]).result(PATIENCE_S).text == "hello"
