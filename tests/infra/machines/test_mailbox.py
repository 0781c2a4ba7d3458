"""What lies where in the bucket, and how it gets there and back: names, letters, graphs, run directories."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import FlexibleChecksumError

from graph_data.prepare import prepare
from infra.machines import graph_store, mailbox, runfiles
from infra.machines.mailbox import (
    Letter,
    Mailbox,
    checked_path,
    checked_run,
    member_of,
    piece_key,
    piece_of,
    shards_key,
    silent,
)
from infra.machines.runfiles import Listing, Receiver, Sender
from siafu.address import COORDINATOR, graph_server
from siafu.errors import ConfigError, DatasetError, PeerLost, RemoteProtocolError
from siafu.shards import MANIFEST, ShardSet
from tests.infra.deployment import bucket, until
from tests.toy_graphs import random_graph


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with bucket() as made:
        yield made


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return prepare(random_graph(1, 60), tmp_path_factory.mktemp("shards") / "toy", parts=2)


# --- names ------------------------------------------------------------------------------------------------------------

BAD = [
    "",
    ".",
    "..",
    "a/../b",
    "/a",
    "a/",
    "a//b",
    ".hidden",
    "a/.b",
    "a b",
    "a\nb",
    "a\\b",
    "é",
    "x" * 129,
    "a/" * 300 + "a",
]


@pytest.mark.parametrize("path", BAD)
def test_paths_that_would_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(RemoteProtocolError, match="is not a path inside a run directory"):
        checked_path(path)
    with pytest.raises(RemoteProtocolError):
        piece_of("run", f"runs/run/files/{path}/000000000000000")


@pytest.mark.parametrize("run", ["", "..", "a/b", ".a", None, 3, "x" * 129, "a b"])
def test_names_that_no_run_has_are_refused(run: object) -> None:
    with pytest.raises(RemoteProtocolError, match="is not the name of a run"):
        checked_run(run)


def test_pieces_are_found_again_by_their_key() -> None:
    assert piece_of("run-1", piece_key("run-1", "logs/graph_server-0.log", 4096)) == ("logs/graph_server-0.log", 4096)
    assert piece_key("r", "a", 9) < piece_key("r", "a", 10)  # a listing is in the order of the bytes


@pytest.mark.parametrize("offset", ["", "12", "x" * 15, "-00000000000001", "0000000000000001"])
def test_keys_without_an_offset_are_no_pieces(offset: str) -> None:
    with pytest.raises(RemoteProtocolError, match="is no piece"):
        piece_of("run", f"runs/run/files/a/{offset}")


def test_reports_are_known_by_their_key() -> None:
    assert member_of(mailbox.report_key(graph_server(3))) == graph_server(3)
    assert member_of(mailbox.report_key(COORDINATOR)) == COORDINATOR
    assert member_of("machines/worker-0.json") is member_of("machines/graph_server-x.json") is None


def test_a_graph_is_named_by_a_digest() -> None:
    with pytest.raises(RemoteProtocolError, match="is not the digest of a graph"):
        shards_key("../../etc")


def test_a_sender_is_silent_after_six_beats_and_never_within_three_seconds() -> None:
    assert [silent(age, 0.1) for age in (9.9, 10.1)] == [False, True]
    assert [silent(age, 5.0) for age in (29.0, 31.0)] == [False, True]
    assert silent(10.1, None)


# --- letters ----------------------------------------------------------------------------------------------------------


def test_a_letter_is_read_as_it_was_written_with_its_age(box: Mailbox) -> None:
    assert box.read("nothing") is None
    begun = time.time()
    box.write("letter", {"every_s": 5, "words": ["a"]})
    letter = box.read("letter")
    assert letter is not None
    assert letter.value == {"every_s": 5, "words": ["a"]}
    assert letter.age_s <= 2 + time.time() - begun
    assert not letter.silent


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(box: Mailbox, data: bytes) -> None:
    box.put("bad", data)
    with pytest.raises(RemoteProtocolError, match="bad: not a JSON object"):
        box.read("bad")


def test_what_is_too_large_is_refused_before_it_is_read(box: Mailbox) -> None:
    box.put("large", bytes(mailbox.MAX_LETTER_BYTES + 1))
    with pytest.raises(RemoteProtocolError, match="large: 1048577 bytes, limit 1048576"):
        box.read("large")
    with pytest.raises(RemoteProtocolError, match="limit 10"):
        box.get("large", 10)


def test_of_two_who_replace_a_letter_one_succeeds(box: Mailbox) -> None:
    assert box.replace("order", {"id": 1}, None)
    assert not box.replace("order", {"id": 2}, None)
    before = box.read("order")
    assert box.replace("order", {"id": 3}, before)
    assert not box.replace("order", {"id": 4}, before)
    assert isinstance(found := box.read("order"), Letter)
    assert found.value == {"id": 3}


def test_a_replacement_that_came_through_though_its_answer_got_lost_counts(box: Mailbox) -> None:
    before = box.read("retried")
    box.write("retried", {"id": "unique"})
    assert box.replace("retried", {"id": "unique"}, before)


def test_a_large_file_travels_in_parts_and_arrives_whole(box: Mailbox, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"siafu" * (2 << 20))
    box.upload(tmp_path / "here", "large-file")
    box.download("large-file", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.parametrize("times", [1, 3, 4])
def test_bytes_with_a_wrong_checksum_come_anew_and_not_for_ever(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    box.write("whole", {"is": "whole"})
    fetches = {
        "get_object": lambda: box.read("whole"),
        "download_file": lambda: box.download("whole", tmp_path / "whole"),
    }
    for name, fetch in fetches.items():
        wrong = [FlexibleChecksumError(error_msg="checksum")] * times
        fetched = getattr(box._s3, name)

        def broken(*args: Any, fetched: Any = fetched, wrong: list[Exception] = wrong, **named: Any) -> Any:
            if wrong:
                raise wrong.pop()
            return fetched(*args, **named)

        monkeypatch.setattr(box._s3, name, broken)
        if times < 4:
            fetch()
        else:
            with pytest.raises(PeerLost, match="whole: checksum"):
                fetch()


def test_listings_are_in_order_and_know_folders(box: Mailbox) -> None:
    for name in ("b/2", "b/1", "a/1"):
        box.put(f"list/{name}", b"x" * int(name[-1]))
    assert [(entry.key, entry.nbytes) for entry in box.entries("list/")] == [
        ("list/a/1", 1),
        ("list/b/1", 1),
        ("list/b/2", 2),
    ]
    assert [entry.key for entry in box.entries("list/", after="list/b/1")] == ["list/b/2"]
    assert box.folders("list/") == ["a", "b"]


def test_a_bucket_that_is_not_there_is_the_users_mistake(box: Mailbox) -> None:
    other = Mailbox("no-such-bucket", endpoint=box.endpoint, region="us-east-1")
    with pytest.raises(ConfigError, match=r"bucket no-such-bucket at http.*: NoSuchBucket"):
        other.read("letter")


def test_a_service_that_does_not_answer_is_lost_in_bounded_time() -> None:
    nobody = Mailbox("bucket", endpoint="http://127.0.0.1:9", region="us-east-1")
    begun = time.monotonic()
    with pytest.raises(PeerLost, match=r"bucket bucket at http://127\.0\.0\.1:9, letter: "):
        nobody.read("letter")
    assert time.monotonic() - begun < 60


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_a_machine_fetches_its_own_partition_alone_and_once(box: Mailbox, tmp_path: Path) -> None:
    shards = prepare(random_graph(3, 60), tmp_path / "shards", parts=2)  # no other test sends this graph
    assert graph_store.send(box, shards) > 0
    assert graph_store.send(box, shards) == 0
    digest = shards.manifest.digest
    come: list[tuple[int, int]] = []
    graph = graph_store.fetch(box, digest, tmp_path / "machine", (1,), lambda now, total: come.append((now, total)))
    assert graph == tmp_path / "machine" / digest
    assert sorted(path.name for path in graph.iterdir()) == [MANIFEST, "part-001"]
    assert come[-1] == (sum(entry.bytes for entry in shards.manifest.partitions[1].files.values()),) * 2
    opened = ShardSet.open(graph, (1,))
    assert opened.partition(1).vertices.tolist() == shards.partition(1).vertices.tolist()
    with pytest.raises(DatasetError, match="missing"):
        ShardSet.open(graph)
    come.clear()
    graph_store.fetch(box, digest, tmp_path / "machine", (1,), lambda now, total: come.append((now, total)))
    assert come == []


def test_whoever_watches_a_machine_fetch_sees_large_files_move(shards: ShardSet, tmp_path: Path) -> None:
    entries = shards.manifest.partitions[1].files
    slow = max(entries, key=lambda name: entries[name].bytes)
    total = sum(entry.bytes for entry in entries.values())
    come: list[int] = []
    others_done = threading.Event()

    class Bucket:
        """Gives a graph away; the end of its largest file once all others have been compared."""

        bucket = "b"

        def get(self, key: str, limit: int = 0) -> bytes:
            return (shards.path / MANIFEST).read_bytes()

        def download(self, key: str, file: Path, on_bytes: Callable[[int], object]) -> None:
            data = (shards.path / key.split("/", 2)[2]).read_bytes()
            file.write_bytes(data)
            on_bytes(len(data) - 10)
            if key.endswith(slow):
                others_done.wait(60.0)
                on_bytes(4)  # a block more: it must be seen before the file is whole
                assert come[-1] == total - (entries[slow].bytes + 6 + 1) // 2
                on_bytes(6)
            else:
                on_bytes(10)

    def say(now: int, of: int) -> None:
        assert of == total
        come.append(now)
        if now == total - (entries[slow].bytes + 10 + 1) // 2:
            others_done.set()

    box: Any = Bucket()
    graph_store.fetch(box, shards.manifest.digest, tmp_path, (1,), say)
    assert others_done.is_set()
    assert come[-1] == total


def test_a_download_tells_how_much_has_come(box: Mailbox, tmp_path: Path) -> None:
    box.put("bytes", bytes(100_000))
    come: list[int] = []
    box.download("bytes", tmp_path / "file", come.append)
    assert sum(come) == 100_000


def test_what_comes_again_because_of_its_checksum_counts_once(
    box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.put("bytes", bytes(100_000))
    fetched, wrong, come = box._s3.download_file, [FlexibleChecksumError(error_msg="checksum")] * 2, list[int]()

    def broken(*args: Any, **named: Any) -> None:
        fetched(*args, **named)
        if wrong:
            raise wrong.pop()

    monkeypatch.setattr(box._s3, "download_file", broken)
    box.download("bytes", tmp_path / "file", come.append)
    assert sum(come) == 100_000
    assert sum(abs(more) for more in come) == 5 * 100_000


def test_a_graph_that_was_tampered_with_is_refused(box: Mailbox, shards: ShardSet, tmp_path: Path) -> None:
    graph_store.send(box, shards)
    digest = shards.manifest.digest
    key = shards_key(digest, "part-000/labels.npy")
    good = box.get(key)
    assert good is not None
    box.put(key, good[:-1] + b"\x01")
    try:
        with pytest.raises(DatasetError, match=r"part-000/labels.npy has \d+ bytes, sha256 [0-9a-f]{16}, must be"):
            graph_store.fetch(box, digest, tmp_path, (0,))
    finally:
        box.put(key, good)
    assert not list(tmp_path.rglob("labels.npy"))


def test_a_manifest_of_another_graph_is_refused(box: Mailbox, shards: ShardSet, tmp_path: Path) -> None:
    wrong = "0" * 64
    box.put(shards_key(wrong, MANIFEST), (shards.path / MANIFEST).read_bytes())
    with pytest.raises(DatasetError, match=f"the graph at 0000000000000000 has digest {shards.manifest.digest[:16]}"):
        graph_store.fetch(box, wrong, tmp_path, ())


def test_a_graph_that_is_not_there_or_too_small_is_refused(box: Mailbox, shards: ShardSet, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="graph ffffffffffffffff is not in bucket siafu-test, or not whole"):
        graph_store.fetch(box, "f" * 64, tmp_path, ())
    graph_store.send(box, shards)
    with pytest.raises(DatasetError, match="has 2 partitions, not 3"):
        graph_store.fetch(box, shards.manifest.digest, tmp_path, (2,))


def test_an_interrupted_upload_goes_on(box: Mailbox, shards: ShardSet, tmp_path: Path) -> None:
    other = prepare(random_graph(2, 40), tmp_path / "other", parts=1)
    digest = other.manifest.digest
    box.upload(other.path / "part-000" / "labels.npy", shards_key(digest, "part-000/labels.npy"))
    whole = sum(entry.bytes for entry in other.manifest.partitions[0].files.values())
    assert graph_store.send(box, other) == whole - other.manifest.partitions[0].files["labels.npy"].bytes


def test_the_graph_that_was_not_used_for_longest_makes_room(
    box: Mailbox, shards: ShardSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_store.send(box, shards)
    (tmp_path / ("0" * 64)).mkdir()
    monkeypatch.setattr(graph_store, "SPARE_BYTES", 1 << 62)  # no disk has as much
    with pytest.raises(DatasetError, match="MiB free, needs"):
        graph_store.fetch(box, shards.manifest.digest, tmp_path, (0,))
    assert [path.name for path in tmp_path.iterdir()] == [shards.manifest.digest]


# --- run directories --------------------------------------------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_a_run_directory_arrives_as_it_was_left(box: Mailbox, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, metrics_jsonl="1\n2\n", result_json="{}")
    write(here / "logs", a_log="no end of line", empty_log="")
    (here / ".place.json").write_text("stays")
    (here / "a link.log").symlink_to("/etc/passwd")
    with Sender(box, "run", here, 60.0):
        pass
    Receiver(box, "run", there).update()
    files = {path.relative_to(there).as_posix(): path.read_text() for path in there.rglob("*") if path.is_file()}
    assert files == {
        "metrics.jsonl": "1\n2\n",
        "result.json": "{}",
        "logs/a.log": "no end of line",
        "logs/empty.log": "",
    }


def test_growing_files_travel_in_whole_lines_and_changed_ones_anew(box: Mailbox, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, metrics_jsonl="1\n2", result_json="old")
    receiver = Receiver(box, "live", there)
    with Sender(box, "live", here, 0.01):
        until(lambda: receiver.update() and (there / "metrics.jsonl").exists(), "first piece")
        assert (there / "metrics.jsonl").read_text() == "1\n"
        with (here / "metrics.jsonl").open("a") as file:
            file.write("2\n3\n")
        (here / "result.json").write_text("new")
        until(lambda: receiver.update() and (there / "metrics.jsonl").read_text() == "1\n22\n3\n", "second piece")
    receiver.update()
    assert (there / "result.json").read_text() == "new"
    assert len(list(box.entries("runs/live/files/metrics.jsonl/"))) == 2
    assert receiver.update() == []


@pytest.mark.parametrize("same_sender", [True, False], ids=["one sender", "its successor"])
def test_a_file_that_was_replaced_begins_anew(box: Mailbox, tmp_path: Path, same_sender: bool) -> None:
    """As metrics.jsonl is when a run goes on from a checkpoint: epochs that will run again
    are cut off, and others follow."""
    run, here, there, late = f"cut-{same_sender}", tmp_path / "here", tmp_path / "there", tmp_path / "late"
    metrics, receiver = here / "metrics.jsonl", Receiver(box, run, there)
    write(here, metrics_jsonl="epoch 1\nepoch 2\n")

    def is_there(text: str) -> Any:
        return lambda: receiver.update() and (there / "metrics.jsonl").read_text() == text

    with ExitStack() as stack:
        stack.enter_context(Sender(box, run, here, 0.01))
        until(is_there("epoch 1\nepoch 2\n"), "two epochs")
        with metrics.open("a") as file:
            file.write("epoch 3 of the first attempt\nepoch 4\n")
        until(is_there("epoch 1\nepoch 2\nepoch 3 of the first attempt\nepoch 4\n"), "four epochs")
        if not same_sender:
            stack.pop_all().close()
            stack.enter_context(Sender(box, run, here, 0.01))
        new = "epoch 1\nepoch 2\nepoch 3\nepoch 4 of the second attempt, which is longer than the first\n"
        (here / "new").write_text(new)
        (here / "new").replace(metrics)
        until(is_there(new), "the second attempt")
        (here / "shorter").write_text("epoch 1\n")
        (here / "shorter").replace(metrics)
        until(is_there("epoch 1\n"), "the third")
    Receiver(box, run, late).update()
    assert (late / "metrics.jsonl").read_text() == "epoch 1\n"


def test_pieces_of_long_files_are_listed_once(box: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfiles, "PAGE", 5)
    for name, count in (("logs/a.log", 7), ("logs/b.log", 3), ("metrics.jsonl", 6), ("model.safetensors", 1)):
        for offset in range(count):
            box.put(piece_key("long", name, offset), b"x")
    listing, receiver = Listing(box, "long"), Receiver(box, "long", tmp_path)
    assert len(list(listing.entries())) == len(receiver.update(whole=False)) == 17
    again = [(path, offset) for _, path, offset in listing.entries()]
    assert again == [*(("logs/b.log", offset) for offset in range(3)), ("model.safetensors", 0)]
    assert receiver.update(whole=False) == []
    for name, offset in (("logs/a.log", 7), ("logs/b.log", 3), ("logs/c.log", 0), ("model.safetensors", 0)):
        box.put(piece_key("long", name, offset), b"new")
    new = [("logs/a.log", 7), ("logs/b.log", 3), ("logs/c.log", 0), ("model.safetensors", 0)]
    assert receiver.update(whole=False) == new
    box.put(piece_key("long", "metrics.jsonl", 2), b"by one that began anew")
    assert receiver.update(whole=False) == []
    assert receiver.update() == [("metrics.jsonl", 2)]


def test_only_what_is_asked_for_is_fetched(box: Mailbox, tmp_path: Path) -> None:
    for name in ("logs/a.log", "trace-0.jsonl", "model.safetensors"):
        box.put(piece_key("part", name), b"x")
    assert Receiver(box, "part", tmp_path).update(("logs/", "trace-")) == [("logs/a.log", 0), ("trace-0.jsonl", 0)]


def test_a_key_that_would_lead_out_of_the_folder_writes_nothing(box: Mailbox, tmp_path: Path) -> None:
    box.put("runs/evil/files/../../out/000000000000000", b"x")
    with pytest.raises(RemoteProtocolError, match="not a path inside"):
        Receiver(box, "evil", tmp_path).update()
    box.put(piece_key("huge", "a.log", 10**14), b"x")
    with pytest.raises(RemoteProtocolError, match="ends at byte 100000000000001, limit"):
        Receiver(box, "huge", tmp_path).update()
    assert list(tmp_path.iterdir()) == []
