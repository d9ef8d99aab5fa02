import traceback

import pytest

from batchfleet.models.importing import builtin_draft
from batchfleet.models.lengths import tokens_to_cut
from batchfleet.models.model import Model
from batchfleet.models.traces import with_own_frames
from batchfleet.wire.errors import BatchfleetError


def frames(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_our_frames_in_front_of_the_authors_are_cut(load):
    class Broken(Model):
        def load(self, context):  # noqa: ARG002 (the signature of Model)
            self.open_weights()

        def open_weights(self):
            try:
                raise OSError("unreadable")
            except OSError as error:
                raise KeyError("weights") from error

    with pytest.raises(KeyError) as caught:
        load(Broken)
    error = with_own_frames(caught.value)
    assert frames(error)[-2:] == ["load", "open_weights"]
    assert frames(error.__cause__) == ["open_weights"]


def test_an_error_of_ours_alone_keeps_its_trace():
    with pytest.raises(BatchfleetError) as caught:
        builtin_draft("nonsense")
    error = caught.value
    error.__traceback__ = error.__traceback__.tb_next  # this test's own frame
    assert frames(with_own_frames(error)) == ["builtin_draft"]
    assert tokens_to_cut(1, 2, "end") == 0
