"""No password of a fleet is found in what it prints, logs and hands to its processes."""

from tests.acceptance.measuring.kept_secrets import kept_secrets


def test_no_password_is_found_after_all_kinds_of_commands():
    """X2, X9: T14."""
    promises = kept_secrets(quick=True)
    assert [one.promise for one in promises if not one.holds] == []
    assert len(promises) == 7
