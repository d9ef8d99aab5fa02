"""A model that holds the interpreter lock for three leases, in each stage: it still runs once.

The model itself writes down every time that it runs. A second worker stands by, which would bury
the first and run the request again if the first fell silent.
"""

from collections import Counter
from time import perf_counter

from batchfleet.service.settings import SETTING_ROWS

from .mortal_server import mortal_fleet, mortal_server
from .promise import at_least, equals

MODEL = "holder"
_STAGES = ("preprocess", "predict", "postprocess")
_LEASES = 3
_PATIENCE_S = 30.0
_READY_S = 60.0
_NEIGHBOURS = 4
# PyDLL, unlike CDLL, keeps the interpreter lock for as long as the call lasts.
_HOLDER = """
import ctypes
import os

from batchfleet import Model


def note_and_hold(stage, text):
    file = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{stage} of {text}\\n".encode())
    os.close(file)
    if text.startswith(stage):
        ctypes.PyDLL(None).usleep(HELD_US)


class Holder(Model):
    limits = {"preprocess_ms": 60000, "predict_ms": 60000, "postprocess_ms": 60000}

    def preprocess(self, row):
        note_and_hold("preprocess", row["text"])
        return 1

    def predict(self, rows, context):
        for row in rows:
            note_and_hold("predict", row["text"])
        return [{"text": row["text"]} for row in rows]

    def postprocess(self, row):
        note_and_hold("postprocess", row["text"])
        return row
"""


def held_interpreter_lock(*, quick):
    """One request a stage that holds the lock in it, with neighbours that do not."""
    settings = {"lease_ms": 900, "beat_ms": 300} if quick else {}
    lease_ms = settings.get("lease_ms", SETTING_ROWS["lease_ms"].default)
    promises = []
    with mortal_server() as server, mortal_fleet(server, allow_code="own", **settings) as fleet:
        notes = fleet.folder / "notes"
        _serve(fleet, notes, _LEASES * lease_ms)
        for stage in _STAGES:
            promises += _hold(fleet, stage, notes, lease_ms)
    return promises


def _serve(fleet, notes, held_ms):
    """Publish the model and serve it by two workers."""
    text = f"NOTES = {str(notes)!r}\nHELD_US = {held_ms * 1000}\n{_HOLDER}"
    fleet.deploy_code(text, MODEL)
    fleet.bring_up(workers=2, ready_s=_READY_S)
    fleet.wait_until_served(MODEL, workers=2)


def _hold(fleet, stage, notes, lease_ms):
    texts = [f"{stage} held", *(f"neighbour {at} of {stage}" for at in range(_NEIGHBOURS))]
    began = perf_counter()
    ids = fleet.submit_all(MODEL, [{"text": text} for text in texts], together=True)
    replies = fleet.replies(MODEL, ids, _PATIENCE_S)
    took_ms = (perf_counter() - began) * 1000
    runs = Counter(notes.read_text().splitlines())
    once = sum(runs[f"{part} of {text}"] == 1 for part in _STAGES for text in texts)
    first = sum(reply.status == "ok" and reply.receipt["attempt"] == 1 for reply in replies)
    buried = sum(len(worker.events("worker.buried")) for worker in fleet.workers)
    return [
        at_least(
            f"interpreter lock held in {stage}: how long, in leases of {lease_ms} ms",
            took_ms / lease_ms,
            _LEASES,
        ),
        equals("… stages of it and its neighbours that ran once", once, len(_STAGES) * len(texts)),
        equals("… answers of the first attempt", first, len(texts)),
        equals("… workers buried", buried, 0),
    ]
