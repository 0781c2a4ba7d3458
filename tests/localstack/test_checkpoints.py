"""Checkpoints in LocalStack's S3: the same bytes come back, old ones go, a missing bucket is said."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from infra.checkpoint_copies import BucketMirror
from infra.service import LOCAL_REGION
from siafu.checkpoints import Store
from siafu.errors import ConfigError
from tests.localstack.conftest import Place
from tests.siafu.killed_saving import SPEC, state
from tests.siafu.test_checkpoints import assert_equal

pytestmark = pytest.mark.aws
_numbers = itertools.count()


@pytest.fixture
def url(place: Place) -> str:
    """Where checkpoints go, in a bucket of its own."""
    bucket = f"siafu-checkpoints-{os.getpid()}-{next(_numbers)}"
    place.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/kept"


def test_another_machine_goes_on_from_what_was_copied(place: Place, url: str, tmp_path: Path) -> None:
    mirror = BucketMirror(url, "run-1", endpoint=place.endpoint, region=LOCAL_REGION)
    here = Store(tmp_path / "here", SPEC, "a digest", {"edges": "1"}, 2, mirror)
    for version in (3, 4, 5):
        here.save(state(version))
    assert mirror.versions() == [4, 5]
    assert_equal(Store(tmp_path / "there", SPEC, "a digest", {"edges": "1"}, 2, mirror).newest(fetch=True), state(5))


def test_a_bucket_that_is_not_there_is_said_at_once(place: Place) -> None:
    with pytest.raises(ConfigError, match="NoSuchBucket"):
        BucketMirror("s3://siafu-no-such-bucket/kept", "run-1", endpoint=place.endpoint, region=LOCAL_REGION)
