"""`batchfleet.testing` where Lua is missing."""

import sys
from importlib import import_module

import pytest


def test_without_lua_the_remedy_is_named(monkeypatch):
    for name in ("twin.scripting", "twin.server", "twin.executors", "serving"):
        monkeypatch.delitem(sys.modules, f"batchfleet.testing.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "batchfleet.testing", raising=False)
    monkeypatch.setitem(sys.modules, "lupa", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'batchfleet\[testing\]'$"):
        import_module("batchfleet.testing")
