"""URLs of servers and stores: what is wrong with one, and how it is shown without its password."""

import os
import re
from urllib.parse import parse_qsl, urlsplit

from ..wire.numbers import Range

PORT = Range(1, 65_535)
_REDIS_URL = re.compile(r"(rediss?://[^/\s]+|unix://[^/\s]*/)\S*")
_DATABASE = re.compile(r"[0-9]{0,9}")
# What a URL may say behind its `?`. All else is decided in `broker/connections.py`.
_QUERY_OPTIONS = frozenset(("db", "username", "password"))
_TLS_OPTIONS = frozenset(
    (
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_keyfile",
        "ssl_password",
    )
)

_PASSWORD = re.compile(r"(?<=://)(/*[^:/@]*):.*@", re.DOTALL)
# Bounds, since foreign texts are searched: what is longer is no password. A name with an escape
# (`%`) may be any of them.
_NAMED = r"[^=&;\s?]{0,40}(?:pass|pwd|secret|token|key|sig|sas|credential|auth|%)[^=&;\s]{0,40}"
# A quotation mark ends a URL in a text, unless the URL goes on behind it.
_IN_QUERY = r"(?:[^&\s'\"]|['\"](?=[\w%/+=~-]))*"
_QUERY_SECRET = re.compile(rf"([?&;]{_NAMED}=){_IN_QUERY}", re.IGNORECASE)
_PASSWORD_IN_TEXT = re.compile(r"(?<=://)([^\s:/@]{0,128}):[^\s]{0,2048}@")
_LOCAL_SCHEME = re.compile(r"(?:file|local):(?://)?")
_PATH_STARTS = ("/", ".", "~")


def redis_url_fault(value: str) -> str:
    """What is wrong with the URL of a server; empty where nothing is, and for no URL at all."""
    if not value:
        return ""
    if not _REDIS_URL.fullmatch(value):
        return "must start with redis://host, rediss://host or unix:///path, with %20 for a space"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return f"must have a port from {PORT.lowest} to {PORT.highest}"
    if port is not None and PORT.fault(port):
        return f"must have a port from {PORT.lowest} to {PORT.highest}"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = options.get("db", "" if parts.scheme == "unix" else parts.path.strip("/"))
    if not _DATABASE.fullmatch(database):
        return "must name its database by a number, as redis://host/0"
    return _options_fault(parts.scheme, options)


def _options_fault(scheme: str, options: dict[str, str]) -> str:
    known = _QUERY_OPTIONS | _TLS_OPTIONS if scheme == "rediss" else _QUERY_OPTIONS
    unknown = sorted(options.keys() - known)
    if not unknown:
        return ""
    named = ", ".join(ascii(name[:40])[1:-1] for name in unknown[:5])
    return f"may not set {named}; {', '.join(sorted(known))} can be set"


def masked_url(url: str) -> str:
    """The URL with its password, in front of the host or in the query, replaced by `***`.

    Of a text that is no URL but has a password's place, as `:secret@host`, the rest is shown.
    """
    masked = _PASSWORD.sub(r"\1:***@", url)
    head, at, tail = url.rpartition("@")
    if masked == url and ":" in head and "://" not in head and not url.startswith(_PATH_STARTS):
        masked = f"***{at}{tail}"
    return _QUERY_SECRET.sub(r"\1***", masked)


def masked_text(text: str) -> str:
    """A text with the passwords of all URLs in it replaced by `***`."""
    if "://" not in text and "=" not in text:
        return text
    return _QUERY_SECRET.sub(r"\1***", _PASSWORD_IN_TEXT.sub(r"\1:***@", text))


def absolute_store(root: str) -> str:
    """The root of a store that means the same from every folder: a path made absolute, or a URL."""
    scheme = _LOCAL_SCHEME.match(root)
    path = root[scheme.end() :] if scheme else root
    if not scheme and ("://" in root or "::" in root):
        return root
    # Not `Path`: a path that begins with `~` must not be refused here.
    return (scheme[0] if scheme else "") + os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
