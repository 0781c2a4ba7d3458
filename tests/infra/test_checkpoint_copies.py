"""Checkpoints in a bucket, which is moto's: copied, pruned, brought to another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.checkpoint_copies import BucketMirror
from infra.machines.mailbox import Mailbox
from siafu import checkpoints
from siafu.checkpoints import Store
from siafu.errors import ConfigError, DatasetError, PeerLost
from tests.infra.deployment import bucket, empty
from tests.siafu.killed_saving import SPEC, state
from tests.siafu.test_checkpoints import assert_equal


@pytest.fixture(scope="module")
def one_bucket() -> Iterator[Mailbox]:
    with bucket() as made:
        yield made


@pytest.fixture
def box(one_bucket: Mailbox) -> Mailbox:
    empty(one_bucket)
    return one_bucket


def mirror(box: Mailbox, url: str = "s3://siafu-test/kept/", run: str = "run-1") -> BucketMirror:
    return BucketMirror(url, run, endpoint=box.endpoint, region="us-east-1")


def store(folder: Path, there: BucketMirror, keep: int = 2) -> Store:
    return Store(folder, SPEC, "a digest", {"edges": "1"}, keep, there)


def keys(box: Mailbox) -> list[str]:
    return [entry.key for entry in box.entries("")]


def test_checkpoints_lie_below_the_prefix_and_the_run(box: Mailbox, tmp_path: Path) -> None:
    store(tmp_path, mirror(box)).save(state(5))
    names = ("ledger.json", "manifest.json", "model.safetensors", "optimiser.safetensors", "versions.safetensors")
    assert keys(box) == [f"kept/run-1/epoch-0005/{name}" for name in names]
    for name in names:
        assert box.get(f"kept/run-1/epoch-0005/{name}") == (tmp_path / "epoch-0005" / name).read_bytes()


@pytest.mark.parametrize(
    ("url", "begin"), [("s3://siafu-test", "run-1/"), ("s3://siafu-test/a/b", "a/b/run-1/")], ids=["bare", "deep"]
)
def test_a_prefix_may_be_empty_or_deep(box: Mailbox, tmp_path: Path, url: str, begin: str) -> None:
    store(tmp_path, mirror(box, url)).save(state(5))
    assert {key.rpartition("epoch-0005/")[0] for key in keys(box)} == {begin}
    assert mirror(box, url).versions() == [5]


def test_as_many_are_kept_as_on_disk_and_other_runs_are_left_alone(box: Mailbox, tmp_path: Path) -> None:
    store(tmp_path / "other", mirror(box, run="run-2")).save(state(1))
    here = store(tmp_path / "here", mirror(box))
    for version in (3, 4, 5):
        here.save(state(version))
    assert mirror(box).versions() == here.versions() == [4, 5]
    assert len(keys(box)) == 3 * 5  # nothing is left of version 3
    assert mirror(box, run="run-2").versions() == [1]


def test_another_machine_goes_on_from_the_newest_whole_copy(box: Mailbox, tmp_path: Path) -> None:
    here = store(tmp_path / "here", mirror(box), keep=4)
    for version in (2, 3, 4, 5):
        here.save(state(version))
    box.remove(["kept/run-1/epoch-0005/manifest.json"])  # it was being written
    box.remove(["kept/run-1/epoch-0004/model.safetensors"])
    box.put("kept/run-1/epoch-0003/ledger.json", b"{}")
    there = store(tmp_path / "there", mirror(box))
    assert_equal(there.newest(fetch=True), state(2))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "there" / "epoch-0002").iterdir()} == {0o600}
    assert there.versions() == [2]


def test_a_version_that_is_copied_again_is_not_whole_meanwhile(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = mirror(box)
    store(tmp_path, there).save(state(5, draw=0))
    found: list[list[int]] = []
    upload = Mailbox.upload

    def seen(self: Mailbox, file: Path, key: str) -> None:
        found.append(there.versions())
        upload(self, file, key)

    monkeypatch.setattr(Mailbox, "upload", seen)
    store(tmp_path, there).save(state(5, draw=1))
    assert found == [[]] * 5
    assert there.versions() == [5]


def test_what_is_missing_is_named(box: Mailbox, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"^s3://siafu-test/kept/run-1/epoch-0009/model\.safetensors: missing$"):
        mirror(box).fetch(9, tmp_path)


def test_a_bucket_that_is_not_there_is_the_user_s_mistake(box: Mailbox) -> None:
    with pytest.raises(ConfigError, match=r"bucket no-such-bucket .*NoSuchBucket"):
        mirror(box, "s3://no-such-bucket/x")


def test_a_service_that_does_not_answer_is_no_reason_to_stop(box: Mailbox, tmp_path: Path, caplog) -> None:
    there = mirror(box)

    def upload(folder: Path, version: int) -> None:
        raise PeerLost("bucket siafu-test: no answer")

    there.upload = upload  # type: ignore[method-assign]
    here = store(tmp_path, there)
    assert_equal(checkpoints.load(here.save(state(5))), state(5))
    assert caplog.messages == ["checkpoint 5 is on disk, but was not copied: bucket siafu-test: no answer"]


def test_the_config_s_url_is_one_of_a_bucket(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ENDPOINT_URL", box.endpoint), ("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(f"AWS_{name}", value)
    found = checkpoints.mirror_of("s3://siafu-test/kept", "run-1")
    assert isinstance(found, BucketMirror)
    assert found.versions() == []
