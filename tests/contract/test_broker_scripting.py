"""What a script meets, on every kind of broker: the twin gives its Lua what a server gives."""

from hashlib import sha1

import msgpack
import pytest

from batchfleet.broker.commands import Command, Script, as_is
from batchfleet.broker.errors import RefusedError

WRONGTYPE = "string.sub(redis.pcall('HLEN', KEYS[1]).err, 1, 9)"


def run(wire, body, *args):
    """The answer of a script of one key, a list that holds `x`."""
    source = f"#!lua\n{body}"
    lua = Script("test", source, sha1(source.encode(), usedforsecurity=False).hexdigest())
    key = f"{wire.keys.prefix}list"
    wire.ask("DEL", key)
    wire.ask("RPUSH", key, "x")
    return wire.run(Command(("EVALSHA", lua.sha, 1, key, *args), as_is, lua))


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("return", None),
        ("return nil", None),
        ("return false", None),
        ("return true", 1),
        ("return 3.9", 3),
        ("return -3.9", -3),
        ("return 2 ^ 53", 2**53),
        ("return '3.9'", b"3.9"),
        ("return 'a\\r\\n\\0b'", b"a\r\n\0b"),
        ("return {}", []),
        ("return {1, 'a', {2, {}}, false, true}", [1, b"a", [2, []], None, 1]),
        ("return {1, nil, 3}", [1]),
        ("return {a = 1}", []),
        ("return redis.status_reply('FINE')", b"FINE"),
        ("return {redis.status_reply('FINE')}", [b"FINE"]),
        ("return #KEYS .. ':' .. #ARGV", b"1:2"),
        ("return ARGV", [b"one", b"\xff\0"]),
        ("return {ARGV[3] == nil}", [1]),
    ],
)
def test_the_answer_of_a_script(wire, body, answer):
    assert run(wire, body, "one", b"\xff\0") == answer


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("return redis.call('LRANGE', KEYS[1], 0, -1)", [b"x"]),
        ("return type(redis.call('LLEN', KEYS[1]))", b"number"),
        ("return type(redis.call('LPOP', KEYS[1]))", b"string"),
        ("return redis.call('SET', KEYS[1], 'x').ok", b"OK"),
        ("redis.call('DEL', KEYS[1]) return redis.call('HMGET', KEYS[1], 'a', 'b')", [None, None]),
        (f"return {WRONGTYPE}", b"WRONGTYPE"),
        ("return type(redis.pcall('NONSENSE').err)", b"string"),
        ("return type(redis.pcall('SET', KEYS[1], {}).err)", b"string"),
        ("return type(redis.pcall('SET', KEYS[1], true).err)", b"string"),
        ("return redis.error_reply('STALE it is').err", b"STALE it is"),
    ],
)
def test_what_a_command_answers_a_script(wire, body, answer):
    assert run(wire, body) == answer


def test_what_is_not_there_is_false_in_a_script(wire):
    body = """
        redis.call('DEL', KEYS[1])
        local found = redis.call('HMGET', KEYS[1], 'a', 'b')
        return {#found, tostring(found[1]), tostring(redis.call('GET', KEYS[1]))}
    """
    assert run(wire, body) == [2, b"false", b"false"]


def test_an_error_that_a_script_asked_for_is_a_value(wire):
    assert run(wire, f"return {WRONGTYPE}") == b"WRONGTYPE"
    assert run(wire, "return redis.call('LLEN', KEYS[1])") == 1


def test_numbers_that_a_script_hands_to_a_command(wire):
    body = "redis.call('RPUSH', KEYS[1], 1, -7, 2.5, 2 ^ 53, 1700000000000)"
    run(wire, f"{body} return 1")
    written = run(wire, f"{body} return redis.call('LRANGE', KEYS[1], 1, -1)")
    assert written == [b"1", b"-7", b"2.5", b"9007199254740992", b"1700000000000"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return redis.call('HLEN', KEYS[1])", "WRONGTYPE"),
        ("return redis.pcall('HLEN', KEYS[1])", "WRONGTYPE"),
        ("return redis.error_reply('STALE it is')", "STALE"),
        ("return {err = 'FENCED out'}", "FENCED"),
        ("return redis.call('NONSENSE')", "ERR"),
        ("return redis.call('SET', KEYS[1], {})", "ERR"),
        ("return nothing", "ERR"),
        ("nothing = 1", "ERR"),
        ("return {} + 1", "ERR"),
        ("return print", "ERR"),
        ("return nonsense nonsense", "ERR"),
    ],
)
def test_the_error_of_a_script(wire, body, code):
    with pytest.raises(RefusedError) as caught:
        run(wire, body)
    assert caught.value.code == code
    assert run(wire, "return 1") == 1


def test_what_a_script_has_done_before_it_fails_stays_done(wire):
    with pytest.raises(RefusedError):
        run(wire, "redis.call('RPUSH', KEYS[1], 'y') return nothing")
    assert wire.ask("LRANGE", f"{wire.keys.prefix}list", 0, -1) == [b"x", b"y"]


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 65_535, 65_536])
def test_texts_are_packed_as_the_client_reads_them(wire, size):
    packed = run(wire, "return cmsgpack.pack({ARGV[1], ARGV[2]})", "x" * size, b"\xff\xfe")
    assert packed == msgpack.packb("x" * size).join((b"\x92", b"\xa2\xff\xfe"))


@pytest.mark.parametrize("count", [1, 15, 16, 1_000])
def test_lists_are_packed_as_the_client_reads_them(wire, count):
    packed = run(wire, "return cmsgpack.pack(ARGV)", *["a"] * count)
    assert packed == msgpack.packb(["a"] * count)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[]", [1, b"table", 0]),
        ("[16, 32]", [1, b"table", 2, b"number", b"number"]),
        ('[1.5, "a", null, true, [], {}]', None),
        ('{"a": [1]}', [1, b"table", 0]),
        ("7", [1, b"number"]),
        ('"a"', [1, b"string"]),
        ("", [0]),
        ("[", [0]),
        ("nonsense", [0]),
    ],
)
def test_json_that_somebody_else_has_written(wire, text, answer):
    body = """
        local is_read, value = pcall(cjson.decode, ARGV[1])
        if not is_read then return {0} end
        local found = {1, type(value)}
        if type(value) ~= 'table' then return found end
        found[3] = #value
        for i, one in ipairs(value) do found[3 + i] = type(one) end
        return found
    """
    kinds = [b"number", b"string", b"userdata", b"boolean", b"table", b"table"]
    found = run(wire, body, text)
    if answer is None:
        # What null is there differs, and no script looks: it is no number.
        found[5] = b"userdata"
        answer = [1, b"table", 6, *kinds]
    assert found == answer
