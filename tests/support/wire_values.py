"""Hypothesis strategies for parts of wire messages."""

from hypothesis import strategies as st

from batchfleet.wire.codec import CONTENT_TYPES
from batchfleet.wire.names import is_name

content_types = st.sampled_from(CONTENT_TYPES)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True).filter(is_name)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
finite_ms = st.floats(0, 3_600_000).map(lambda value: round(value, 3))

scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(), texts)
bodies = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def optional(strategy):
    """The strategy's values, or None for a part that is absent."""
    return st.one_of(st.none(), strategy)
