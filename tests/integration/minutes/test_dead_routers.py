"""A router that dies over what it has read, and the one that takes it over."""

from support.fleet import check_all_ok, draft_of, until

MODEL = "m"
# What an entry waits at most once the router that read it is dead, with all that follows.
HEIR_S = 5.0


def test_what_a_dead_router_had_read_is_answered_within_five_seconds(fleet):
    fleet.deploy(draft_of("echo", MODEL))
    fleet.consumer()
    fleet.wait_served(MODEL)
    victim = fleet.start("router", faults="router.before_accept=kill@1").wait_until_ready()
    fleet.wait_routed(MODEL)
    ids = fleet.submit_all(MODEL, [{}] * 8)
    until(lambda: not victim.is_running(), "it dies over what it has read")
    heir = fleet.router()
    check_all_ok([fleet.reply(MODEL, one, HEIR_S) for one in ids])
    assert heir.is_running()
