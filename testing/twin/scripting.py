"""The scripts of `broker/lua/` as a server runs them: in Lua 5.1, on the twin's commands."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import hiredis
import msgpack
import orjson

from ...broker.commands import Script
from ...broker.errors import RefusedError, refused
from .database import Status

try:
    from lupa import lua51
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "batchfleet.testing needs lupa: pip install 'batchfleet[testing]'", name="lupa"
    ) from error

Call = Callable[[bytes, Sequence[bytes]], Any]
"""Runs one command of the database that a script was called on."""


class ScriptRunner:
    """Runs scripts, one at a time: its owner holds a lock meanwhile."""

    def __init__(self, call: Call) -> None:
        self._carry_out = call
        # No way from Lua to Python but the functions that are handed in.
        lua = lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._table = lua.table_from
        prelude = (files(__package__) / "scripting.lua").read_bytes()
        self._compile, self._run = lua.execute(
            prelude, self._call, self._protected_call, _packed, self._decoded
        )
        self._compiled: dict[str, Any] = {}  # by digest

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        """The raw answer of a script, as it would be read from a connection.

        Raises:
            RefusedError: the script answered with an error, or failed.
        """
        compiled = self._compiled.get(script.sha)
        try:
            if compiled is None:
                compiled = self._compile(script.name.encode(), script.source.encode())
                self._compiled[script.sha] = compiled
            answer = self._run(compiled, self._table(keys), self._table(args))
        except lua51.LuaError as error:
            raise refused("ERR " + str(error).partition("\n")[0]) from error
        reader = hiredis.Reader(replyError=refused)
        reader.feed(answer)
        raw = reader.gets()
        if isinstance(raw, RefusedError):
            raise raw
        return raw

    def _call(self, name: bytes, *args: bytes | float) -> Any:
        sent = [part if isinstance(part, bytes) else _written(part) for part in args]
        return self._as_lua(self._carry_out(name, sent))

    def _protected_call(self, name: bytes, *args: bytes | float) -> Any:
        try:
            return self._call(name, *args)
        except RefusedError as error:
            return self._table({b"err": error.text.encode()})

    def _decoded(self, text: bytes) -> Any:
        try:
            return self._as_lua(orjson.loads(text))
        except orjson.JSONDecodeError:
            return None

    def _as_lua(self, value: Any) -> Any:
        """A value as Lua has it: nil is false there, and a status a table."""
        if type(value) is bytes or type(value) is int:
            return value
        if isinstance(value, list):
            return self._table([self._as_lua(one) for one in value])
        if isinstance(value, dict):
            return self._table({name.encode(): self._as_lua(one) for name, one in value.items()})
        if isinstance(value, Status):
            return self._table({b"ok": value})
        if isinstance(value, str):
            return value.encode()
        return False if value is None else value


def _written(part: float) -> bytes:
    """A number as a server writes it where a script hands it to a command."""
    if type(part) not in (int, float):
        raise refused("ERR Lua redis lib command arguments must be strings or integers")
    return b"%.17g" % part


def _packed(*items: bytes) -> bytes:
    """What `cmsgpack.pack` makes of a list of texts, which need not be UTF-8."""
    texts = [item.decode(errors="surrogateescape") for item in items]
    packed: bytes = msgpack.packb(texts, unicode_errors="surrogateescape")
    return packed
