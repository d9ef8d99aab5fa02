"""The document that a test file names as DOCUMENT, done once by all of its tests."""

import pytest
from documents.play import Play


@pytest.fixture(scope="module")
def play(request):
    """It begins with the first test that asks for a block."""
    found = Play(request.module.DOCUMENT)
    yield found
    found.close()
