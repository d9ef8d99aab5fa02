"""URLs of servers and stores: refused in one sentence, shown without their passwords."""

import logging

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from batchfleet.broker.connections import blocking_connection, looping_connection
from batchfleet.models.store import Store
from batchfleet.service.addresses import masked_text, masked_url, redis_url_fault
from batchfleet.service.logs import configure_logs
from batchfleet.wire.errors import SettingsError, StoreError

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "redis://host?socket_timeout=abc",
        "redis://host?%73ocket_timeout=1",
        "redis://host?db=abc",
        "redis://host?db=1&db=x",
        "redis://host?db=-1",
        "redis://host?protocol=x",
        "redis://host?ssl_cert_reqs=none",
        "rediss://host?ssl_foo=1",
        "redis://host?foo=%00",
        "unix:///run/s?db=zz",
        "redis://[::1",
        "redis://host:70000",
    ],
)
def test_what_the_library_would_trip_over_is_a_fault_of_the_url(url):
    """X13: one sentence, wherever the URL comes from."""
    assert "\n" not in redis_url_fault(url)
    assert redis_url_fault(url)
    for connect in (blocking_connection, looping_connection):
        with pytest.raises(SettingsError):
            connect(url, 1.0)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h", "redis://h:1/2", "redis://h?db=2", "rediss://u:p@h/0?ssl_cert_reqs=none",
        "unix:///run/s?db=0&password=x", "unix://:p@/run/s", "",
    ],
)  # fmt: skip
def test_what_is_right_stays_right(url):
    """X13: the options that mean something."""
    assert redis_url_fault(url) == ""


def test_a_value_that_only_the_library_can_judge_is_one_sentence_without_the_password():
    """X13, X9: its own words may quote the URL."""
    url = f"rediss://:{SECRET}@host?ssl_cert_reqs=bogus"
    with pytest.raises(SettingsError, match="cannot be used") as caught:
        blocking_connection(url, 1.0)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@h/0",
        f"redis://u:{SECRET}@h:x/0",
        f"redis://u:a/{SECRET}@h/0",
        f"redis:// u:{SECRET}@h/0",
        f"redis:///u:{SECRET}@h/0",
        f"redis://u:a@{SECRET}@h/0",
        f"redis://u:a\n{SECRET}@h/0",
        f":{SECRET}@h:6379/0",
        f"u:{SECRET}@h",
        f"redis:/u:{SECRET}@h",
        f"unix:///s?password={SECRET}",
        f"unix:///s?db=0&PASSWORD={SECRET}&x=1",
        f"ftp://u:{SECRET}@h/x",
        f"simplecache::ftp://u:{SECRET}@h/x",
        f"s3://bucket/x?secret_access_key={SECRET}",
        f"https://h/x?X-Amz-Signature={SECRET}",
        f"https://h/x?api_token={SECRET}#y",
        f"redis://h/0?%70assword={SECRET}",
        f"redis://h/0?db=1&p%61ssword={SECRET}",
        f"redis://h/0?password=it's{SECRET}",
        f"redis://u:{'x' * 1500}{SECRET}@h/0",
        f"abfs://c@account/x?sas={SECRET}",
        f"https://h/x?pwd={SECRET}",
    ],
)
def test_no_password_is_shown(url):
    """X9: in the settings, in errors, and of what is no URL."""
    assert SECRET not in masked_url(url)
    assert "***" in masked_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/0?%70assword={}", "redis://h/0?password=it's{}", "https://h/x?pwd={}",
        "redis://u:" + 1500 * "x" + "{}@h/0", "s3://bucket/x?secret_access_key={}",
    ],
)  # fmt: skip
def test_nor_is_it_between_quotation_marks(url):
    """X9: as `repr` writes it, and as messages do."""
    text = url.format(SECRET)
    assert SECRET not in masked_text(f"'{text}' cannot be read; (\"{text}\", 1)")
    assert masked_text(f"'{text}', 1").endswith("', 1")


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/0", "./store", "/data/a:b@c/store", "s3://bucket/x", "~/a:b@c", "me@home",
        "unix:///run/a:b@c.sock", "file:///data/store", "redis://user@h",
    ],
)  # fmt: skip
def test_what_holds_no_password_is_shown_whole(url):
    """X9: paths too."""
    assert masked_url(url) == url


@given(
    st.text(
        st.characters(exclude_characters="@:/?&;='\"", exclude_categories=["Z", "Cc"]),
        min_size=3,
        max_size=60,
    )
)
def test_no_password_in_a_text_is_shown(password):
    """X9: whatever it is made of."""
    text = f"cannot reach redis://user:{password}@host:1/0 or unix:///s?password={password} now"
    assert masked_text(text) == (
        "cannot reach redis://user:***@host:1/0 or unix:///s?password=*** now"
    )


def test_a_large_text_without_passwords_is_masked_in_no_time():
    """X9, X7: what is searched is bounded, since callers write texts that are logged."""
    for piece in ("://a:", "?key", "://a:b@"):
        assert len(masked_text(piece * 100_000)) > 0


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_logs_hold_no_password(log_format):
    """X9, T14: values, traces, foreign loggers, and what cannot be rendered."""
    lines = []
    url = f"redis://u:{SECRET}@h/0"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logs("info", log_format, lines.append)
        log = structlog.get_logger()
        log.info("told", url=url, more={"nested": [url]})
        try:
            raise ConnectionError(url)
        except ConnectionError:
            log.exception("failed")
        logging.getLogger("fsspec").warning("cannot reach %s", url)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()
    assert len(lines) == 3
    assert [line for line in lines if SECRET in line] == []
    assert all("***" in line for line in lines)


@pytest.mark.parametrize(
    "root",
    [
        f"ftp://u:{SECRET}@127.0.0.1:1/x",
        f"ftp://u:{SECRET}@127.0.0.1:abc/x",
        f"ftp://u:a/{SECRET}@127.0.0.1:1/x",
        f"nosuch://u:{SECRET}@h/x",
        f"simplecache::ftp://u:{SECRET}@127.0.0.1:1/x",
        "nosuch://x",
        "ftp://127.0.0.1:1/x",
    ],
)
def test_a_store_that_cannot_be_opened_is_one_sentence_without_a_password(root):
    """X13, X9: whatever the backend raises, in its constructor too."""
    with pytest.raises(StoreError) as caught:
        Store(root)
    told = repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)
    assert SECRET not in told
    assert "cannot be opened" in str(caught.value)


def test_a_store_that_can_be_opened_is_shown_without_its_password():
    """X9: `root` is what is shown."""
    assert Store(f"memory://u:{SECRET}@x").root == "memory://u:***@x"
