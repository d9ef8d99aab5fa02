"""Which places inputs may be fetched from."""

import pytest

from batchfleet.wire.deployment import check_limit
from batchfleet.wire.errors import ErrorKind, RequestError, SettingsError
from batchfleet.wire.references import is_prefix, read_reference, require_allowed

PREFIXES = ("https://data.example/in/", "file:///srv/inputs/", "s3://bucket/a/")


@pytest.mark.parametrize("text", ["blob", "https://h/x", "s3://b/k", "memory://x/y?z=1"])
def test_a_reference_is_the_word_blob_or_a_url(text):
    assert read_reference(text.encode()) == text


@pytest.mark.parametrize(
    "raw",
    [b"", b"BLOB", b"blobs", b"/etc/passwd", b"h/x", b"https://", b"https://h/\n", b"\xff://h"],
)
def test_what_is_neither_is_a_bad_request(raw):
    with pytest.raises(RequestError) as caught:
        read_reference(raw)
    assert caught.value.kind is ErrorKind.BAD_REQUEST


@pytest.mark.parametrize(
    "url",
    ["https://data.example/in/7.json", "file:///srv/inputs/a/b", "s3://bucket/a/k?versionId=3"],
)
def test_a_url_under_a_prefix_is_allowed(url):
    assert require_allowed(url, PREFIXES) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://data.example/other/7.json",
        "https://data.example.evil.example/in/7.json",
        "https://data.example@evil.example/in/7.json",
        "http://data.example/in/7.json",
        "https://data.example/in/../secret",
        "https://data.example/in/%2E%2e/secret",
        "https://data.example/in/..%2fsecret",
        "https://data.example/in/a%5c..%5cb",
        "https://data.example/in/\\..\\b",
        "https://data.example/in/#x",
        "file:///srv/inputs/../../etc/passwd",
        "simplecache::https://data.example/in/7.json",
        "https://data.example/in/x::file:///etc/passwd",
        "file:///etc/passwd",
    ],
)
def test_any_other_url_is_forbidden(url):
    with pytest.raises(RequestError) as caught:
        require_allowed(url, PREFIXES)
    assert caught.value.kind is ErrorKind.FORBIDDEN_REFERENCE


def test_without_prefixes_every_url_is_forbidden():
    with pytest.raises(RequestError):
        require_allowed("https://data.example/in/7.json", ())


@pytest.mark.parametrize("text", [*PREFIXES, "https://data.example/"])
def test_a_prefix_is_a_whole_folder(text):
    assert is_prefix(text)


@pytest.mark.parametrize(
    "value",
    [
        "https://h/",
        ["https://data.example"],
        ["https://data.example/in"],
        ["https://data.example/../"],
        ["a::https://data.example/"],
        ["/srv/"],
        ["https://"],
        [7],
        ["https://h/"] * 33,
    ],
)
def test_prefixes_that_would_allow_too_much_are_refused(value):
    with pytest.raises(SettingsError):
        check_limit("input_prefixes", value)


def test_prefixes_are_kept_in_order():
    assert check_limit("input_prefixes", list(PREFIXES)) == PREFIXES
    assert check_limit("input_prefixes", []) == ()
