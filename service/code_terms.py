"""How the settings are spelled that say what runs on a worker, and what it is told."""

import re

_CODE_TERM = r"(?:own|digest:[0-9a-f]{64}|dist:[A-Za-z0-9][A-Za-z0-9._-]{0,126})"
_ALLOW_CODE = re.compile(rf"none|any|{_CODE_TERM}(?:,{_CODE_TERM})*")
_ENVIRONMENT_TERM = r"(?:built|/[^,\x00-\x1f\x7f]{1,511})"
_ALLOW_ENVIRONMENTS = re.compile(rf"none|{_ENVIRONMENT_TERM}(?:,{_ENVIRONMENT_TERM})*")
_VARIABLE = re.compile(r"[A-Za-z_*?][A-Za-z0-9_*?]{0,127}")


def code_terms_fault(value: str) -> str:
    """What is wrong with a text for `allow_code`; empty where nothing is."""
    if not value or _ALLOW_CODE.fullmatch(value):
        return ""
    return "must be none, any, own, digest:<sha256>, dist:<name>, or several of the last three"


def environment_terms_fault(value: str) -> str:
    """What is wrong with a text for `allow_environments`; empty where nothing is."""
    if not value or _ALLOW_ENVIRONMENTS.fullmatch(value):
        return ""
    return "must be none, built, an absolute path, or several of the last two"


def variables_fault(value: str) -> str:
    """What is wrong with a text for `device_environment`; empty where nothing is."""
    if not value or all(_VARIABLE.fullmatch(part.strip()) for part in value.split(",")):
        return ""
    return "must be names separated by commas, with * and ? as wildcards"
