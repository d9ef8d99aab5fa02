"""A caller who asks one model all the time, and is to be kept waiting by nobody."""

import threading
from contextlib import contextmanager
from time import monotonic

from .fleet import PATIENCE_S, check_all_ok


@contextmanager
def asked_all_the_time(fleet, model):
    """Another thread asks without pause; yields the waits in seconds."""
    waits, over, failures = [], threading.Event(), []

    def ask():
        try:
            while not over.is_set():
                began = monotonic()
                check_all_ok([fleet.ask(model, timeout_ms="60000")])
                waits.append(monotonic() - began)
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join(PATIENCE_S)
    assert not failures
