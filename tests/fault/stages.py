"""Plays runs on arenas side by side. An arena on which a run failed is replaced by a fresh one."""

import queue
import threading
from itertools import count
from time import monotonic

from .arena import Arena, keep_logs
from .checker import check
from .history import read_histories
from .provoking import NotPlayedError
from .report import RunResult

# A run that could not be played is played again, so many times in all.
ATTEMPTS_MAX = 3


def play_all(runs, server, folder, arenas, tell):
    """Play the runs, each told of by `tell` as it ends; the results come in the order of `runs`.

    Raises:
        Exception: what is no run's own failure.
    """
    players = Players(runs, server, folder, tell)
    threads = [
        threading.Thread(target=players.play, name=f"arena {at}", daemon=True)
        for at in range(min(arenas, len(runs)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if players.failure is not None:
        raise players.failure
    order = {run.name: at for at, run in enumerate(runs)}
    return sorted(players.results, key=lambda result: order[result.run])


class Players:
    """What the arenas' threads share. An arena is made, used and closed by one thread."""

    def __init__(self, runs, server, folder, tell):
        self._server = server
        self._folder = folder
        self._tell = tell
        self._left = queue.SimpleQueue()
        for run in runs:
            self._left.put(run)
        self._numbers = count()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self.results = []  # guarded by _lock
        self.failure = None

    def play(self):
        """Take runs until none is left; on a thread of its own."""
        arena = None
        try:
            while self.failure is None:
                run = self._left.get_nowait()
                for attempt in range(1, ATTEMPTS_MAX + 1):
                    arena = arena or self._fresh_arena()
                    result = self._play_one(arena, run, attempt)
                    if result.broken:
                        arena.close()
                        arena = None
                    if result.was_played:
                        break
                with self._lock:
                    self.results.append(result)
                    self._tell(result)
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self.failure = error
        finally:
            if arena is not None:
                arena.close()

    def _fresh_arena(self):
        return Arena(self._server, self._folder / f"arena-{next(self._numbers)}")

    def _play_one(self, arena, run, attempt):
        folder = self._folder / (run.name if attempt == 1 else f"{run.name}-{attempt}")
        began_s = monotonic()
        broken, is_provoked = "", True
        try:
            if arena.fleet is None:
                # One at a time: Python 3.11 cannot parse in two threads at once (gh-106905).
                with self._opening:
                    arena.open()
            arena.ensure()
            with arena.stage(run.name, folder) as stage:
                run.play(stage)
            arena.mend()
        except Exception as error:  # noqa: BLE001 - told and counted as the failure of this run
            broken = f"{type(error).__name__}: {error}"[:600]
            is_provoked = not isinstance(error, NotPlayedError)
            folder.mkdir(parents=True, exist_ok=True)
        if arena.fleet is not None:
            keep_logs(arena, folder)
        return RunResult(
            run=run.name,
            verdict=check(read_histories(folder), run.requests_min),
            duration_s=monotonic() - began_s,
            folder=folder,
            broken=broken,
            is_provoked=is_provoked,
        )
