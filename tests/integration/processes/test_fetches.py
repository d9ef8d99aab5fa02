"""Inputs at URLs through a whole fleet, of several tenants."""

import json
from http.server import BaseHTTPRequestHandler

import pytest
from support.fleet import draft_of, limits, running_fleet, until
from support.pages import served_pages

MODEL = "m"
# Fetches of one tenant at one host that are under way in one device process.
AT_ONCE = 4


class Pages(BaseHTTPRequestHandler):
    """`/slow` says nothing until the end; the others say at once what they have."""

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        if name == "slow":
            self.server.over.wait()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"text": [name]}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def pages():
    with served_pages(Pages) as server:
        server.handle_error = lambda *_: None  # the fetcher has left
        yield server


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_slow_fetches_of_one_tenant_hold_up_no_other(
    redis_server, namespace, tmp_path, pages, count
):
    """X6, T5: neither the fetchers nor the room of the worker are full for the other."""
    draft = draft_of("echo", MODEL, limits=limits(input_prefixes=(pages.root,)))
    with running_fleet(redis_server, namespace, tmp_path) as fleet:
        fleet.deploy_record(MODEL, fleet.store.publish(draft, {}).record(), ("a", "b"))
        fleet.start_all("router", "consumer")
        fleet.wait_served(MODEL)
        fleet.wait_routed(MODEL, "a")
        slow = {"text": None, "inputs_at": f"{pages.root}slow", "inputs_bytes": "10"}
        fleet.submit_all(MODEL, [slow] * count, "a")
        until(lambda: len(pages.asked) == AT_ONCE, "the fetchers of one tenant are full")
        quick = fleet.submit(MODEL, None, "b", inputs_at=f"{pages.root}quick", inputs_bytes="10")
        assert fleet.reply(MODEL, quick, tenant="b").status == "ok"
        assert pages.asked[: AT_ONCE + 1] == ["slow"] * AT_ONCE + ["quick"]
        pages.over.set()
