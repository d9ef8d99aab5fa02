"""Methods of a user's class that cannot be called as they will be."""
# ruff: noqa: ARG002  the signatures are what these tests are about

import pytest

from batchfleet.models.hooks import check_hooks
from batchfleet.models.model import Model
from batchfleet.wire.errors import StoreError


class Fine(Model):
    def predict(self, *everything):
        return everything


class Without(Model):
    def postprocess(self, row):
        return row


class Narrow(Fine):
    def load(self):
        """Takes no context."""


class Greedy(Fine):
    def preprocess(self, rows, context):
        return rows


class Late(Model):
    async def predict(self, rows, context):
        return rows


@pytest.mark.parametrize(
    ("model_class", "reason"),
    [
        (Without, r"Without does not define predict\(self, rows, context\)"),
        (Narrow, r"Narrow.load must take \(self, context\)"),
        (Greedy, r"Greedy.preprocess must take \(self, row\)"),
        (Late, "Late.predict is async"),
    ],
)
def test_what_cannot_be_called_is_refused_by_name(model_class, reason):
    check_hooks(Fine())
    with pytest.raises(StoreError, match=reason):
        check_hooks(model_class())
