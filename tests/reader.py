"""What a reader of the pages has: the commands of a page in its order, and the files that the page says are theirs.

A page marks what a test cannot know by comments that a browser does not show, on the line above a block:

    <!-- given: edges.csv, users.csv -->   from here on the reader has these files (``FILES`` makes small ones)
    <!-- needs: an AWS account -->         the block below is not run; tests/test_docs.py still parses its commands
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from siafu import pricing
from siafu.__main__ import main

NUM_CLASSES, NUM_VERTICES = 7, 420  # 60 of each class: without masks 20 train and 30 validate
NUM_USERS = 240  # of three jobs
JOBS = ("baker", "cook", "smith")


@dataclass(frozen=True)
class Piece:
    """A command, a block of Python, or a file that the reader has."""

    line: int  # of the page
    kind: str  # "siafu", "python" or "given"
    text: str
    needs: str = ""  # why it cannot run here


def pieces(page: str) -> Iterator[Piece]:
    """What the page has a reader type, in its order. A line ends where two spaces are: what follows is said of it."""
    needs, fence, block, code = "", "", False, [""]
    for number, line in enumerate(page.splitlines(), 1):
        if fence:
            if line.startswith("```"):
                if fence == "```python":
                    yield Piece(number, "python", "\n".join(code), needs)
                fence = needs = ""
            else:
                code.append(line)
                if fence != "```python":
                    yield from commands(number, line, needs)
        elif line.startswith("```"):
            fence, code = line, [""] * number  # so that a traceback names the page's line
        elif mark := re.fullmatch(r"<!-- (given|needs): (.*) -->", line):
            if mark[1] == "needs":
                needs = mark[2]
            else:
                for name in mark[2].split(", "):
                    yield Piece(number, "given", name)
        elif line.startswith("    "):
            block = True
            yield from commands(number, line.removeprefix("    "), needs)
        elif block or line.strip():
            needs, block = "", False


def commands(number: int, line: str, needs: str) -> Iterator[Piece]:
    for command in re.split(r";  ", line):  # several in a line
        if re.match(r"(\.venv/bin/)?siafu ", command):
            yield Piece(number, "siafu", re.split(r"\s{2,}", command)[0], needs)


def graph(path: Path) -> None:
    """An npz file of communities that a GCN tells apart, and overfits: patience ends a training, as on real graphs."""
    rng = np.random.default_rng(1)
    y = np.arange(NUM_VERTICES) % NUM_CLASSES
    src = rng.integers(0, NUM_VERTICES, 4 * NUM_VERTICES)
    same = (src + NUM_CLASSES * rng.integers(1, 60, len(src))) % NUM_VERTICES
    dst = np.where(rng.random(len(src)) < 0.75, same, rng.integers(0, NUM_VERTICES, len(src)))
    x = np.eye(NUM_CLASSES, 40)[y] + 1.2 * rng.normal(size=(NUM_VERTICES, 40))
    np.savez(path, edge_index=np.array([src, dst]), x=x.astype(np.float32), y=y)


def edges(path: Path) -> None:
    table(
        path,
        ["follower", "followee", "kind"],
        [(f"u{i}", f"u{(i + k) % NUM_USERS}", k) for i in range(NUM_USERS) for k in (3, 6)],
    )


def numbered_edges(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    ends = [(i, (i + k) % NUM_USERS) for i in range(NUM_USERS) for k in (3, 6)]
    columns = dict(zip(("source", "target"), map(list, zip(*ends, strict=True)), strict=True))
    parquet.write_table(pyarrow.table(columns), path)


def users(path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [(f"u{i}", 20 + 10 * (i % 3) + round(rng.normal(), 1), i % 3, JOBS[i % 3]) for i in range(NUM_USERS)]
    table(path, ["user_id", "age", "posts", "job"], rows)


def people(path: Path) -> None:
    roles = ("train", "val", "test")
    rows = [(f"u{i}", 20 + 10 * (i % 3), JOBS[i % 3], roles[i // 3 % 3]) for i in range(NUM_USERS)]
    table(path, ["user_id", "age", "job", "role"], rows)


def labels(path: Path) -> None:
    table(path, ["id", "job"], [(i, JOBS[i % 3]) for i in range(NUM_USERS)])


def table(path: Path, header: list[str], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def features(path: Path) -> None:
    np.save(path, np.eye(3, dtype=np.float32)[np.arange(NUM_USERS) % 3])


def prices(path: Path) -> None:
    shutil.copy(pricing.__path__[0] + "/prices.csv", path)


def run_on(*words: str) -> Callable[[Path], None]:
    def train(path: Path) -> None:
        assert main(["train", *words, "--epochs", "10", "--run-dir", str(path)]) == 0

    return train


#: What a page may say that its reader has -> what makes it.
FILES: dict[str, Callable[[Path], None]] = {
    "edges.csv": edges,
    "follows.csv": edges,
    "new.csv": edges,
    "users.csv": users,
    "users2.csv": users,
    "people.csv": people,
    "edges/part.parquet": numbered_edges,
    "labels.csv": labels,
    "x.npy": features,
    "my_graph.npz": graph,
    "data/cora.npz": graph,
    "data/coauthor_physics.npz": graph,
    "today.csv": prices,
    "runs/my-run": run_on("digits"),
    "runs/users": run_on("edges.csv", "--features", "users.csv", "--labels", "users.csv#job"),
    "runs/20261122-044303-digits-gcn-pipe": run_on("digits"),
    "runs/20261126-cora-gcn-pipe": run_on("cora"),
}


def give(name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    FILES[name](Path(name))
