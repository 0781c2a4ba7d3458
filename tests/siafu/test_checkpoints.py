"""Checkpoints: whole or not there, whatever happens while they are saved; nothing altered is read."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from siafu.checkpoints import Saver, Store, TrainingState, load, mirror_of, superseded
from siafu.errors import ConfigError, DatasetError, PeerLost
from siafu.faultpoints import POINTS, reach
from siafu.model_file import first_weights, load_model
from siafu.models import build
from siafu.training_state import FILES, MANIFEST, Manifest
from tests.siafu.killed_saving import BEFORE, NEW, SPEC, folder_of, state, store


def assert_equal(found: TrainingState | None, expected: TrainingState) -> None:
    """To the bit, dtypes and shapes too."""
    assert found is not None
    assert found.version == expected.version
    assert found.ledger == expected.ledger
    assert found.weights.keys() == expected.weights.keys()
    for version, weights in expected.weights.items():
        _assert_equal_tensors(found.weights[version], weights)
    _assert_equal_tensors(found.optimiser, expected.optimiser)


def _assert_equal_tensors(found, expected) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, strict=True)
        assert found[name].flags.writeable


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- what is saved is read --------------------------------------------------------------------------------------------


def test_a_state_comes_back_to_the_bit(tmp_path: Path):
    path = store(tmp_path).save(state(7))
    assert path == tmp_path / "epoch-0007"
    assert_equal(load(path), state(7))
    assert_equal(store(tmp_path).newest(), state(7))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_dtypes_and_shapes_stay_and_so_does_what_is_not_contiguous(tmp_path: Path, dtype: str, shape: tuple[int, ...]):
    value = np.random.default_rng(0).integers(0, 2, shape).astype(dtype).T
    saved = TrainingState(0, {0: {}}, {"a": value}, {})
    assert_equal(load(store(tmp_path).save(saved)), saved)


def test_a_checkpoint_is_a_model_that_others_begin_with(tmp_path: Path):
    path = store(tmp_path).save(state(7))
    _, spec = load_model(path / "model.safetensors")
    assert spec == SPEC
    _assert_equal_tensors(first_weights(build(SPEC), str(path)), state(7).weights[7])


def test_the_manifest_says_what_a_checkpoint_is(tmp_path: Path):
    manifest = Manifest.read(store(tmp_path).save(state(7)))
    assert (manifest.version, manifest.versions, manifest.config) == (7, (3, 6, 7), "a digest")
    assert manifest.model["name"] == "gcn"


def test_nobody_else_can_read_it(tmp_path: Path):
    path = store(tmp_path / "checkpoints").save(state(7))
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    assert {folder.stat().st_mode & 0o777 for folder in (path, path.parent)} == {0o700}


# --- which of them stay -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("versions", "saved", "keep", "going"),
    [
        ([1, 2, 3], 3, 3, []),
        ([1, 2, 3, 4], 4, 3, [1]),
        ([1, 2, 3], 3, 1, [1, 2]),
        ([2, 4, 6, 8], 4, 3, [6, 8]),  # of a past that was taken back
        ([2, 4, 6, 8], 6, 1, [2, 4, 8]),
    ],
)
def test_what_is_saved_last_is_what_training_goes_on_from(versions, saved, keep, going):
    assert superseded(versions, saved, keep) == going


def test_the_newest_stay(tmp_path: Path):
    kept = store(tmp_path, keep=2)
    for version in (5, 10, 15, 12_000):
        kept.save(state(version))
    assert kept.versions() == [15, 12_000]
    assert names_in(tmp_path) == ["epoch-0015", "epoch-12000"]
    assert_equal(kept.newest(), state(12_000))


def test_a_version_is_replaced_by_itself(tmp_path: Path):
    store(tmp_path).save(state(5, draw=0))
    store(tmp_path).save(state(5, draw=1))
    assert_equal(store(tmp_path).newest(), state(5, draw=1))
    assert names_in(tmp_path) == ["epoch-0005"]


def test_without_any_there_is_none(tmp_path: Path):
    assert store(tmp_path / "nowhere").newest() is None
    (tmp_path / "epoch-0002.safetensors").write_text("of an older siafu")
    assert store(tmp_path).newest() is None


# --- whatever happens while it is saved -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Folders that a killed process has left, and how each process ended."""
    root = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.siafu.killed_saving", str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return root, json.loads(ended.stdout)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("case", BEFORE)
def test_a_kill_at_any_instant_leaves_the_old_checkpoint_or_the_new_one(case: str, point: str, killed):
    root, ends = killed
    reached = case == "again" or point != "checkpoint/replaced-aside"
    assert ends[f"{case}: {point}"] == (-signal.SIGKILL if reached else 0)
    folder = folder_of(root, case, point)
    there = not reached or POINTS.index(point) >= POINTS.index("checkpoint/renamed")
    old = [state(version, draw) for version, draw in BEFORE[case].items()]
    # A newer one of a past that is taken back goes after the new one is there: until then it is still what is found.
    newer = case == "taken back" and reached and POINTS.index(point) < POINTS.index("checkpoint/old-aside")
    expected = old[0] if old and (newer or not there) else state(NEW) if there else None
    found = store(folder).newest()
    if expected is None:
        assert found is None
    else:
        assert_equal(found, expected)
    store(folder).save(state(NEW))
    assert_equal(store(folder).newest(), state(NEW))
    assert names_in(folder) == [f"epoch-{NEW:04}"]


def test_every_instant_is_reached_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reached: list[str] = []
    for module in ("siafu.checkpoints", "siafu.training_state"):
        monkeypatch.setattr(f"{module}.reach", reached.append)
    store(tmp_path).save(state(5, draw=0))
    reached.clear()
    store(tmp_path).save(state(5, draw=1))
    assert tuple(reached) == POINTS


def test_an_instant_without_a_name_is_no_instant():
    reach(POINTS[0])
    with pytest.raises(AssertionError, match="elsewhere"):
        reach("checkpoint/elsewhere")


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a power cut leaves is what was synced: no test pulls the plug, so the order is what is checked."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def recorded_fsync(descriptor: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def recorded_rename(path: Path, target: Path) -> Path:
        done.append(f"{path.name} -> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    store(tmp_path / "all").save(state(5))
    assert done == [*FILES, MANIFEST, ".epoch-0005.partial", ".epoch-0005.partial -> epoch-0005", "all"]


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def no_large_files(folder: Path) -> Iterator[Path]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, hard))
    try:
        yield folder
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("disk", "why"), [(full_disk, "No space left on device"), (no_large_files, "File too large")], ids=["full", "limit"]
)
def test_what_does_not_fit_leaves_the_last_one(tmp_path: Path, disk, why: str):
    large = TrainingState(6, {6: {"W": np.ones(100_000)}}, {}, {})
    with disk(tmp_path / "disk") as folder:
        store(folder).save(state(5))
        with pytest.raises(DatasetError, match=rf"^{folder}/epoch-0006: cannot be written: {why}$"):
            store(folder).save(large)
        assert names_in(folder) == ["epoch-0005"]  # room was made again
        assert_equal(store(folder).newest(), state(5))
        store(folder).save(state(7))
        assert_equal(store(folder).newest(), state(7))


def test_a_rename_that_fails_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store(tmp_path).save(state(5, draw=0))
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name.endswith(".partial"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(DatasetError, match="epoch-0005: cannot be written: Input/output error"):
        store(tmp_path).save(state(5, draw=1))
    assert names_in(tmp_path) == ["epoch-0005"]
    assert_equal(store(tmp_path).newest(), state(5, draw=0))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"epoch-0005: cannot be written: Not a directory$"):
        store(tmp_path / "file" / "checkpoints").save(state(5))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_to_is_one_line(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(DatasetError, match=r"epoch-0005: cannot be written: Permission denied$"):
        store(tmp_path).save(state(5))


# --- nothing altered is read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("damage", ["altered", "truncated", "longer", "missing", "a folder"])
def test_damage_is_refused_by_name_and_the_one_before_is_taken(tmp_path: Path, name: str, damage: str, caplog):
    kept = store(tmp_path, keep=3)
    kept.save(state(5))
    file = kept.save(state(6)) / name
    damaged(file, damage)
    with pytest.raises(DatasetError, match=rf"^{file}: "):
        load(file.parent)
    assert_equal(kept.newest(), state(5))
    (word,) = caplog.messages
    assert word.startswith(f"checkpoint passed over: {file}: ")


def damaged(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "a folder":
        file.unlink()
        file.mkdir()
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes({"altered": data, "truncated": data[: len(data) // 2], "longer": data + b" x"}[how])


def test_any_altered_byte_of_a_manifest_is_found(tmp_path: Path):
    """Or it is a space that says nothing."""
    path = store(tmp_path).save(state(5))
    text = (path / MANIFEST).read_bytes()
    meaning = json.loads(text)
    for position in range(len(text)):
        altered = bytearray(text)
        altered[position] ^= 1 << position % 7
        (path / MANIFEST).write_bytes(altered)
        try:
            Manifest.read(path)
        except DatasetError:
            continue
        assert json.loads(altered) == meaning


def test_what_was_forged_with_a_right_digest_is_still_no_more_than_refused(tmp_path: Path):
    path = store(tmp_path).save(state(5))
    good = Manifest.read(path)
    text = json.loads((path / MANIFEST).read_text())
    for key, value in (
        ("versions", [1]),
        ("versions", "x"),
        ("files", {}),
        ("version", None),
        ("format_version", 1),
        ("data", 3),
    ):
        forge(path, {**text, key: value})
        with pytest.raises(DatasetError, match=rf"^{path}"):
            load(path)
    (path / MANIFEST).write_text(good.to_json())
    assert_equal(load(path), state(5))


def forge(path: Path, body: dict) -> None:
    import siafu.training_state as module

    body = {key: value for key, value in body.items() if key != "digest"}
    (path / MANIFEST).write_text(json.dumps({**body, "digest": module._digest(body)}))


def test_a_manifest_that_is_none_is_refused(tmp_path: Path):
    path = store(tmp_path).save(state(5))
    for text in ("", "[]", "{}", "[" * 100_000, '{"digest": 1}', "null", " " * (2 << 20), "\udcff"):
        (path / MANIFEST).write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(DatasetError, match=rf"^{path / MANIFEST}: "):
            load(path)


# --- the thread -------------------------------------------------------------------------------------------------------


PATIENCE_S = 120.0  # what does not come within this never does


class Gate:
    """A store that saves when it is told to."""

    def __init__(self, failing: Sequence[int] = (), error: Exception | None = None):
        self.failing, self.error = failing, error
        self.begun, self.open = threading.Semaphore(0), threading.Semaphore(0)
        self.saved: list[int] = []

    def save(self, state: TrainingState) -> Path:
        self.begun.release()
        assert self.open.acquire(timeout=PATIENCE_S)
        if state.version in self.failing:
            raise self.error or DatasetError("No space left on device")
        self.saved.append(state.version)
        return Path()


def test_of_those_that_wait_the_newest_is_saved():
    gate = Gate()
    with Saver(gate) as saver:
        saver.put(state(1))
        assert gate.begun.acquire(timeout=PATIENCE_S)
        for version in (2, 3, 4):
            saver.put(state(version))
        assert not saver.wait(0)
        assert saver.saved is None
        gate.open.release(2)
        assert saver.wait(PATIENCE_S)
        assert (saver.saved, saver.failures) == (4, 0)
    assert gate.saved == [1, 4]


def test_closing_waits_for_what_is_waiting():
    gate = Gate()
    saver = Saver(gate)
    saver.put(state(1))
    assert gate.begun.acquire(timeout=PATIENCE_S)
    saver.put(state(2))
    gate.open.release(2)
    saver.close(PATIENCE_S)
    assert gate.saved == [1, 2]
    saver.close(PATIENCE_S)  # twice is no error


def test_closing_does_not_wait_for_a_disk_that_hangs(caplog):
    gate = Gate()
    saver = Saver(gate)
    saver.put(state(1))
    saver.close(0.01)
    assert caplog.messages == ["the last checkpoint was not written within 0.01 s"]
    gate.open.release()
    assert saver.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("error", "trace"), [(DatasetError("No space left on device"), False), (KeyError("a bug"), True)], ids=str
)
def test_a_failure_is_counted_and_said_and_the_next_one_is_saved(error: Exception, trace: bool, caplog):
    gate = Gate(failing=[1], error=error)
    gate.open.release(2)
    with Saver(gate) as saver:
        saver.put(state(1))
        assert saver.wait(PATIENCE_S)
        assert (saver.saved, saver.failures) == (None, 1)
        saver.put(state(2))
        assert saver.wait(PATIENCE_S)
        assert (saver.saved, saver.failures) == (2, 1)
    (record,) = caplog.records
    assert record.message == f"checkpoint 1 was not saved: {error}"
    assert bool(record.exc_info) == trace


def test_a_saver_with_a_disk(tmp_path: Path):
    with Saver(store(tmp_path, keep=2)) as saver:
        for version in range(5):
            saver.put(state(version + 3))
            assert saver.wait(PATIENCE_S)
    assert saver.saved == 7
    assert_equal(store(tmp_path).newest(), state(7))


def test_reading_waits_for_what_is_being_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Else it would take what is half written for what a crash has left, and remove it."""
    kept, at_work, go_on = store(tmp_path), threading.Event(), threading.Event()

    def slow(point: str) -> None:
        if point == "checkpoint/folder-synced":
            at_work.set()
            assert go_on.wait(PATIENCE_S)

    monkeypatch.setattr("siafu.checkpoints.reach", slow)
    with Saver(kept) as saver:
        saver.put(state(5))
        assert at_work.wait(PATIENCE_S)
        reader = threading.Thread(target=lambda: found.append(kept.newest()))
        found: list[TrainingState | None] = []
        reader.start()
        go_on.set()
        reader.join(PATIENCE_S)
    assert_equal(found[0], state(5))


# --- copies elsewhere -------------------------------------------------------------------------------------------------


class Elsewhere:
    """A mirror that is a folder; it can be out of reach, or alter what it has."""

    def __init__(self, folder: Path):
        self.folder, self.reachable, self.calls = folder, True, list[str]()

    def versions(self) -> list[int]:
        self._reach()
        return sorted(int(manifest.parent.name) for manifest in self.folder.glob(f"*/{MANIFEST}"))

    def upload(self, folder: Path, version: int) -> None:
        self._reach()
        self.calls.append(f"upload {version}")
        (self.folder / str(version)).mkdir(exist_ok=True)
        for name in (*FILES, MANIFEST):
            (self.folder / str(version) / name).write_bytes((folder / name).read_bytes())

    def fetch(self, version: int, folder: Path) -> None:
        self._reach()
        for name in (*FILES, MANIFEST):
            (folder / name).write_bytes((self.folder / str(version) / name).read_bytes())

    def remove(self, version: int) -> None:
        self.calls.append(f"remove {version}")
        (self.folder / str(version) / MANIFEST).unlink()

    def _reach(self) -> None:
        if not self.reachable:
            raise PeerLost("bucket b: no answer")


@pytest.fixture
def mirror(tmp_path: Path) -> Elsewhere:
    (tmp_path / "mirror").mkdir()
    return Elsewhere(tmp_path / "mirror")


def mirrored(folder: Path, mirror: Elsewhere, keep: int = 2) -> Store:
    return Store(folder, SPEC, "a digest", {"edges": "1"}, keep, mirror)


def test_a_checkpoint_is_copied_after_it_is_saved_and_old_copies_go(tmp_path: Path, mirror: Elsewhere):
    here = mirrored(tmp_path / "here", mirror)
    for version in (3, 4, 5):
        here.save(state(version))
    assert mirror.calls == ["upload 3", "upload 4", "upload 5", "remove 3"]
    assert mirror.versions() == here.versions() == [4, 5]


def test_another_machine_goes_on_from_a_copy_when_asked_to(tmp_path: Path, mirror: Elsewhere):
    mirrored(tmp_path / "here", mirror).save(state(5))
    there = mirrored(tmp_path / "there", mirror)
    assert there.newest() is None  # a run that has saved nothing yet does not take up an earlier one of its name
    assert_equal(there.newest(fetch=True), state(5))
    assert_equal(load(tmp_path / "there" / "epoch-0005"), state(5))
    mirror.reachable = False
    assert_equal(there.newest(fetch=True), state(5))


def test_a_damaged_copy_is_passed_over(tmp_path: Path, mirror: Elsewhere, caplog):
    here = mirrored(tmp_path / "here", mirror)
    here.save(state(4))
    here.save(state(5))
    damaged(mirror.folder / "5" / "model.safetensors", "altered")
    assert_equal(mirrored(tmp_path / "there", mirror).newest(fetch=True), state(4))
    assert names_in(tmp_path / "there") == ["epoch-0004"]
    assert "model.safetensors: its SHA-256 is not" in caplog.messages[0]


def test_where_every_checkpoint_is_damaged_one_line_says_so_and_what_to_do(tmp_path: Path, caplog):
    kept = store(tmp_path / "run" / "checkpoints", keep=2)
    for version in (4, 5):
        kept.save(state(version))
    for folder in kept.folder.iterdir():
        damaged(folder / "model.safetensors", "altered")
    with pytest.raises(DatasetError) as caught:
        kept.newest()
    (line,) = str(caught.value).splitlines()
    assert line.startswith(
        f"{tmp_path}/run: none of its 2 checkpoints is whole ({kept.folder}/epoch-0005/model.safetensors: "
    )
    assert line.endswith(f"; without {kept.folder} siafu resume begins anew")
    assert caplog.messages == []


def test_a_mirror_out_of_reach_is_said_and_the_checkpoint_is_there(tmp_path: Path, mirror: Elsewhere, caplog):
    mirror.reachable = False
    here = mirrored(tmp_path / "here", mirror)
    here.save(state(5))
    assert caplog.messages == ["checkpoint 5 is on disk, but was not copied: bucket b: no answer"]
    assert_equal(here.newest(fetch=True), state(5))
    with pytest.raises(PeerLost, match="no answer"):  # rather than begin anew
        mirrored(tmp_path / "there", mirror).newest(fetch=True)


def test_no_mirror_is_none_and_an_unknown_one_is_refused():
    assert mirror_of("", "run") is None
    with pytest.raises(ConfigError, match=r"run.checkpoint_to = 'ftp://x/y': must begin with s3://"):
        mirror_of("ftp://x/y", "run")


def test_a_disk_that_hangs_is_waited_for_once(tmp_path):
    """Ctrl-C waits for a checkpoint, a little; leaving the block must not wait a minute more."""
    held = threading.Event()

    class Hung(Store):
        def save(self, state):
            held.wait(100)
            raise OSError("hung")

    with Saver(Hung(tmp_path, SPEC, "a digest", {"edges": "1"}, 1)) as saver:
        saver.put(state(1))
        saver.close(0.1)
        begun = time.monotonic()
    held.set()
    assert time.monotonic() - begun < 60
