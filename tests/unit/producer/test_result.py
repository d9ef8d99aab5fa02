import numpy as np
import pytest

from batchfleet.producer.result import Handle, Result, as_handle
from batchfleet.wire.errors import ProtocolError
from batchfleet.wire.reply import Reply


def result_of(outputs, **parts):
    return Result(Reply("i", "t", "ok", "m", "1", outputs=outputs, **parts))


def tensor(name, array):
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": array.tobytes()}


def test_parts_of_a_reply():
    usage, receipt = {"rows": 1}, {"attempt": 1}
    parts = {"meta": "x", "trace_id": "t", "warnings": ("w",), "usage": usage, "receipt": receipt}
    result = result_of(None, **parts)
    assert {name: getattr(result, name) for name in parts} == parts
    assert (result.id, result.model, result.version, result.outputs) == ("i", "m", "1", {})
    assert "m/1" in repr(result)


def test_outputs_are_arrays_by_name():
    array = np.ones((2, 3), np.float32)
    result = result_of([tensor("a", array), tensor("b", array)])
    np.testing.assert_array_equal(result.outputs["a"], array)
    assert result.outputs is result.outputs
    with pytest.raises(ValueError, match="'a', 'b'"):
        _ = result.output
    np.testing.assert_array_equal(result_of([tensor("a", array)]).output, array)


def test_text_is_the_one_text():
    assert result_of({"text": ["hello"]}).text == "hello"
    for outputs in ({"text": ["a", "b"]}, [tensor("a", np.ones((1, 1), np.float32))]):
        with pytest.raises(ValueError, match="not a single text"):
            _ = result_of(outputs).text
    assert result_of({"text": ["a", "b"]}).output == ["a", "b"]


def test_ill_formed_outputs_are_the_fleets_fault():
    with pytest.raises(ProtocolError, match="outputs of i"):
        _ = result_of([{"name": "a"}]).outputs


def test_a_pair_is_a_handle():
    handle = Handle("m", "i", b"1-0", 5)
    assert as_handle(handle) is handle
    assert as_handle(("m", "i")) == Handle("m", "i")
