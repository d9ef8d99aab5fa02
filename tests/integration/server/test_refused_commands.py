"""T12, T16, T18: what the documented rights of each user keep it from, asked of servers."""

import pytest
import redis
from support.rights import rights_in
from support.server import KINDS, private_server

PASSWORD = "pw"
# Of everybody: what would reach the server itself, all its keys, or its other clients.
EVERYBODY = """
    XGROUP DESTROY bf:{m}:in:acme router
    PSUBSCRIBE *
    KEYS *
    SCAN 0
    RANDOMKEY
    DBSIZE
    EVAL return 1
    FUNCTION LIST
    CONFIG GET requirepass
    CONFIG SET dir /tmp
    FLUSHALL
    FLUSHDB
    SHUTDOWN NOSAVE
    DEBUG SLEEP 1
    MODULE LIST
    REPLICAOF h 1
    ACL LIST
    ACL SETUSER acme +@all
    CLIENT LIST
    CLIENT KILL TYPE normal
    MONITOR
    SAVE
    BGREWRITEAOF
    DUMP bf:{m}:deploy
    SWAPDB 0 1
    GET elsewhere
"""
# Of the tenant `acme`, who knows the names of all keys.
TENANT = """
    GET bf:{m}:re:acme:x
    GET bf:{m}:deploy
    HGETALL bf:{m}:deploy
    HSET bf:{m}:deploy version:1 x
    HSET bf:{m}:deploy stable 2
    DEL bf:{m}:deploy
    UNLINK bf:{m}:deploy
    SADD bf:models m
    SREM bf:models m
    SMEMBERS bf:models
    SADD bf:{m}:tenants evil
    SMEMBERS bf:{m}:tenants
    SMEMBERS bf:routers
    GET bf:router:r
    XADD bf:{m}:in:other * id x
    XRANGE bf:{m}:in:other - +
    XLEN bf:{m}:in:other
    XDEL bf:{m}:in:acme 1-1
    XTRIM bf:{m}:in:acme MAXLEN 0
    XREADGROUP GROUP router r STREAMS bf:{m}:in:acme >
    XGROUP CREATE bf:{m}:in:acme g 0
    XACK bf:{m}:in:acme router 1-1
    XADD bf:{m}:q:1:normal:16 * id x
    XRANGE bf:{m}:q:1:normal:16 - +
    XADD bf:{m}:w:w1 * id x
    XRANGE bf:{m}:dead - +
    XRANGE bf:{m}:journal - +
    XADD bf:{m}:dead * id x
    XRANGE bf:{m}:parked - +
    LRANGE bf:{m}:re:other:x 0 -1
    BLMOVE bf:{m}:re:other:x bf:{m}:re:other:x LEFT LEFT 1
    BLMOVE bf:{m}:re:other:x bf:{m}:re:acme:x LEFT LEFT 1
    BLMOVE bf:{m}:re:acme:x bf:{m}:re:other:x LEFT LEFT 1
    BLPOP bf:{m}:re:other:x 1
    RPUSH bf:{m}:re:other:x forged
    RPUSH bf:{m}:re:acme:x forged
    UNLINK bf:{m}:re:other:x
    GET bf:{m}:req:other:x
    SET bf:{m}:req:acme:x ok
    GET bf:{m}:blob:other:x
    SET bf:{m}:blob:other:x y
    ZADD bf:{m}:due 1 acme:x
    ZRANGE bf:{m}:due 0 -1
    ZREM bf:{m}:due other:x
    ZADD bf:{m}:workers 1 w
    HGETALL bf:{m}:worker:w1
    RPUSH bf:{m}:bell:1 x
    SSUBSCRIBE bf:{m}:done:other:12345678
    SPUBLISH bf:{m}:done:other:12345678 x
    SPUBLISH bf:{m}:done:acme:12345678 x
    PUBLISH news x
    EVALSHA 0000000000000000000000000000000000000000 0
    SCRIPT LOAD x
    INFO
    MIGRATE h 1 bf:{m}:deploy 0 1
    RESTORE bf:{m}:blob:acme:x 0 x
    COPY bf:{m}:deploy bf:{m}:blob:acme:x
    RENAME bf:{m}:re:acme:x bf:{m}:re:other:x
    SORT bf:{m}:due
    OBJECT FREQ bf:{m}:deploy
    MEMORY USAGE bf:{m}:deploy
    SELECT 1
    SET elsewhere x
"""
# Of every program: what no program of ours sends, and other fleets on the same server.
PROGRAMS = """
    SCRIPT FLUSH
    MIGRATE h 1 bf:models 0 1
    RESTORE bf:x 0 x
    RENAME bf:a bf:b
    COPY bf:a bf:b
    XGROUP SETID bf:{m}:in:acme router 0
    PUBLISH bf:x y
    GET other:x
    SET other:x y
    HGETALL other:{m}:deploy
    SMEMBERS other:models
    XADD other:{m}:in:acme * id x
    XRANGE other:{m}:in:acme - +
    UNLINK other:{m}:deploy
"""


def lines_of(text):
    return [words for line in text.splitlines() if (words := line.split())]


@pytest.fixture(scope="module", params=KINDS)
def server(request):
    """A server with a user for each role, by the rights that are documented."""
    with private_server(request.param) as found:
        admin = redis.Redis.from_url(found.url, socket_timeout=20, retry=None)
        router, worker, operator, _ = rights_in("rights.md")
        (tenant,) = rights_in("protocol.md")
        roles = {"router": router, "worker": worker, "operator": operator, "acme": tenant}
        for name, rules in roles.items():
            admin.execute_command("ACL", "SETUSER", name, "reset", "on", f">{PASSWORD}", *rules)
        yield admin
        admin.close()


def allowed(server, user, commands):
    """Which of the commands the server would let the user send."""
    return [
        " ".join(command)
        for command in commands
        if server.execute_command("ACL", "DRYRUN", user, *command) in (b"OK", "OK")
    ]


def test_a_tenant_is_refused_all_but_its_own(server):
    """T12, T11, X1: at least 60 commands stay refused, the record of a deployment among them."""
    refused = lines_of(EVERYBODY + TENANT)
    assert len(refused) >= 60
    assert allowed(server, "acme", refused) == []
    assert allowed(server, "acme", [["XADD", "bf:{m}:in:acme", "*", "id", "x"]]) != []


@pytest.mark.parametrize("user", ["router", "worker", "operator"])
def test_a_program_is_refused_the_server_and_other_fleets(server, user):
    """T16, T18: whoever takes a worker over has its fleet, and not the server."""
    assert allowed(server, user, lines_of(EVERYBODY + PROGRAMS)) == []
    assert allowed(server, user, [["TIME"]]) != []
