"""Serve a model inside this process: for its author's tests, and for a debugger.

    from batchfleet.testing import serve

    def test_shouting():
        with serve(Shout) as client:
            assert client.infer("Shout", "hello").output == ["HELLO"]

Router, worker and client are the real ones, on threads; the server is its in-memory twin
(`twin/`). No Redis, no child process, no network.
"""

from .serving import ModelRefusedError, serve

__all__ = ["ModelRefusedError", "serve"]
