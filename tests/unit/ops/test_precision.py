from dataclasses import replace

import pytest

from batchfleet.models.manifest import Manifest
from batchfleet.ops.precision import settle
from batchfleet.wire.deployment import BF16, EXACT, FP32, Deployment, KeptVersion
from batchfleet.wire.errors import SettingsError, VersionRefusedError

AUTO = Manifest(model="m", version="1", runtime="echo", precision="auto", code_sha256="1" * 64)


def never():
    raise AssertionError("nothing is to be measured")


def refused():
    raise VersionRefusedError("m/1: torch is not installed")


def deployed(precision, manifest=AUTO):
    record = replace(manifest.record(), precision=precision)
    return Deployment(model="m", stable="1", versions={"1": record})


@pytest.mark.parametrize("precision", [EXACT, FP32, BF16])
def test_what_the_manifest_says_is_deployed(precision):
    manifest = replace(AUTO, precision=precision)
    assert settle(manifest, None, "", never).precision == precision
    assert settle(manifest, deployed(BF16), precision, never).precision == precision


def test_a_precision_that_the_manifest_does_not_leave_open_is_refused():
    with pytest.raises(SettingsError, match="published with precision exact"):
        settle(replace(AUTO, precision=EXACT), None, BF16, never)


def test_auto_is_measured_when_it_is_first_deployed():
    record = settle(AUTO, None, "", lambda: BF16)
    assert record == replace(AUTO.record(), precision=BF16)


def test_a_version_keeps_its_precision_when_it_is_deployed_again():
    assert settle(AUTO, deployed(BF16), "", never).precision == BF16
    assert settle(AUTO, deployed(EXACT), "", never).precision == EXACT


def test_a_version_that_was_withdrawn_comes_back_with_its_precision():
    record = replace(AUTO.record(), precision=BF16)
    stable = replace(record, version="2")
    kept = {"1": KeptVersion(3, record)}
    found = Deployment(model="m", stable="2", versions={"2": stable}, kept=kept)
    assert settle(AUTO, found, "", never).precision == BF16


def test_the_operator_has_the_last_word():
    assert settle(AUTO, None, BF16, never).precision == BF16
    assert settle(AUTO, deployed(BF16), EXACT, never).precision == EXACT


def test_another_version_of_the_same_name_is_measured():
    other = replace(AUTO, code_sha256="2" * 64)
    assert settle(AUTO, deployed(BF16, other), "", lambda: EXACT).precision == EXACT
    two = replace(AUTO, version="2")
    assert settle(two, deployed(BF16), "", lambda: EXACT).precision == EXACT


def test_where_it_cannot_be_measured_the_way_out_is_told():
    with pytest.raises(VersionRefusedError, match=r"torch is not installed; .*--precision"):
        settle(AUTO, None, "", refused)
