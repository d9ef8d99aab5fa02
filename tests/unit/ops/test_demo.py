"""The demo's parts that need no fleet: its texts, its figures, its search."""

import numpy as np
import pytest

from batchfleet.models.engines import Engine, answers_digest
from batchfleet.ops.demo.report import (
    QUESTIONS,
    AnsweredRequest,
    Baselines,
    Question,
    Served,
    engines_that_answered,
    figures,
    figures_by_bucket,
    least_cosine,
    same_results,
    search,
    summary,
)
from batchfleet.ops.demo.texts import DemoText, read_docstrings, sample, standard_library
from batchfleet.wire.deployment import VersionRecord

LONG = " ".join(["word"] * 501)
MODULE = f'''"""Three words here."""
class Thing:
    """Two words."""
    def act(self):
        """It acts on things."""
    async def wait(self):
        """{LONG}"""
'''


@pytest.fixture
def library(tmp_path):
    for place, source in {
        "alpha.py": MODULE,
        "beta/__init__.py": '"""The beta package\'s front."""',
        "beta/gamma.py": '"""Three words here."""',
        "broken.py": "def broken(:",
        "nul.py": "\0",
        "test/alpha.py": '"""A test that is left out."""',
        "site-packages/other.py": '"""A package that is left out."""',
    }.items():
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return tmp_path


def test_docstrings_of_3_to_500_words_are_read_once_each(library):
    assert read_docstrings(library) == [
        DemoText("alpha", "Three words here."),
        DemoText("alpha", "It acts on things."),
        DemoText("beta", "The beta package's front."),
    ]


def test_the_standard_library_has_the_modules_that_the_questions_want():
    # Three files instead of all: reading the whole library takes seconds.
    modules = {"gzip", "csv", "socket"}
    for name in modules:
        assert (standard_library() / f"{name}.py").is_file()
    assert modules <= set().union(*(question.expected for question in QUESTIONS))


def texts_of(count):
    return [DemoText(f"m{number}", f"text number {number}") for number in range(count)]


def test_a_sample_is_the_same_whatever_the_order_it_is_drawn_from():
    texts = texts_of(100)
    assert sample(texts, 10, 7) == sample(reversed(texts), 10, 7)
    assert sample(texts, 10, 7) != sample(texts, 10, 8)


def test_a_sample_hardly_changes_with_its_source():
    drawn = set(sample(texts_of(100), 20, 7))
    assert len(drawn & set(sample(texts_of(101), 20, 7))) >= 19


def test_a_sample_of_all_leaves_nothing_out():
    assert sorted(sample(texts_of(9), None, 7), key=lambda text: text.module) == texts_of(9)


def served(batch, rows, *, bucket=16, tokens=10, padded=12, waited_ms=5.0):
    receipt = {
        "batch": batch,
        "rows": rows,
        "bucket": bucket,
        "tokens": tokens,
        "padded_tokens": padded,
    }
    return AnsweredRequest(receipt, waited_ms)


def test_figures_count_batches_once_and_padding_by_tokens():
    run = [served("w:1", 2), served("w:1", 2), served("w:2", 1, tokens=40, padded=40)]
    overall = figures(run, duration_s=2.0)
    assert overall.requests == 3
    assert overall.throughput_per_s == 1.5
    assert overall.mean_batch == 1.5
    assert overall.padding_ratio == pytest.approx(64 / 60)


def test_figures_by_bucket_start_with_the_shortest():
    run = [served("w:1", 1, bucket=64), served("w:2", 1, bucket=16), served("w:2", 1, bucket=16)]
    assert [(row.bucket, row.requests) for row in figures_by_bucket(run, 1.0)] == [(16, 2), (64, 1)]


def test_percentiles_are_of_what_callers_waited():
    run = [served("w:1", 1, waited_ms=float(number)) for number in range(1, 101)]
    overall = figures(run, 1.0)
    assert overall.p50_ms == pytest.approx(50.5)
    assert overall.p99_ms == pytest.approx(99.01)


def test_no_answers_have_no_figures():
    with pytest.raises(ValueError, match="no request"):
        figures([], 1.0)


PLACES = [("a", "first"), ("a", "second"), ("b", "third"), ("c", "fourth")]
VECTORS = np.array([[1, 0], [0.9, 0.1], [0.5, 0.5], [0, 1]], np.float32)


def test_search_ranks_modules_by_their_nearest_text():
    finding = search(Question("?", frozenset({"b"})), VECTORS[0], VECTORS, PLACES)
    assert [hit.module for hit in finding.hits] == ["a", "b", "c"]
    assert finding.hits[0].text == "first"
    assert finding.hits[0].similarity == pytest.approx(1.0)
    assert finding.found == "b"


def test_search_that_finds_no_expected_module_says_so():
    assert search(Question("?", frozenset({"z"})), VECTORS[0], VECTORS, PLACES).found is None


def served_with(engine, *, errors=0):
    overall = figures([served("w:1", 1)], 1.0)
    finding = search(QUESTIONS[0], VECTORS[0], VECTORS, PLACES)
    return Served(
        precision="exact", engine=engine, overall=overall, errors=errors, findings=[finding]
    )


def test_summary_has_exactly_the_promised_keys():
    baselines = Baselines(naive_per_s=1.0, ideal_per_s=2.0)
    line = summary(served_with("plain", errors=2), served_with("bf16"), 0.9, baselines)
    assert list(line) == [
        "requests",
        "errors",
        "throughput_per_s",
        "naive_per_s",
        "ideal_per_s",
        "p50_ms",
        "p99_ms",
        "mean_batch",
        "padding_ratio",
        "found",
        "engine",
        "auto",
    ]
    assert (line["requests"], line["errors"], line["found"]) == (3, 2, [None])
    assert line["auto"] == {
        "precision": "exact",
        "engine": "bf16",
        "errors": 0,
        "throughput_per_s": 1.0,
        "found": [None],
        "same_results": 1,
        "least_cosine": 0.9,
    }


def test_results_are_the_same_only_in_the_same_order():
    nearest = [search(QUESTIONS[0], VECTORS[0], VECTORS, PLACES)]
    assert same_results(nearest, nearest) == 1
    assert same_results(nearest, [search(QUESTIONS[0], VECTORS[3], VECTORS, PLACES)]) == 0


def test_vectors_are_compared_text_by_text():
    one = {0: VECTORS[0], 1: VECTORS[3]}
    assert least_cosine(one, one) == 1
    assert least_cosine(one, {1: VECTORS[0]}) == 0


def test_receipts_tell_the_engines_that_answered():
    record = VersionRecord(version="1", lineage="0" * 16)
    plain, packed = Engine("plain", "exact"), Engine("packed", "exact")
    receipts = [{"lineage": answers_digest("0" * 16, "exact", one)} for one in (plain, plain)]
    answered = [AnsweredRequest(receipt, 1.0) for receipt in receipts]
    assert engines_that_answered(answered, record, [plain, packed]) == "plain"
    assert engines_that_answered(answered, record, [packed]) == "unknown"
