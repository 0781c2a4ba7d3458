"""``python -m benchmarks measure wire``: what a message costs to encode, to decode, and to
carry to another process and back.

Every message goes through three links, interleaved: the Hub of a graph server, the same encrypted with keys (CURVE),
and bare ZeroMQ with the same frames. The ratio of the first to the last is what the protocol costs: JSON scalars, a
checksum over every tensor at each end, and checks. A Lambda has zlib's checksum instead of the servers' faster one:
what it pays to encode and to decode stands beside.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Measurement
from benchmarks.measure.echo import RUN_ID, Link, Links
from siafu import wire
from siafu.errors import ConfigError
from siafu.kernels.checksum import crc32
from siafu.sparse import SparseRows
from siafu.wire import GradientAck, Message, PublishedRows, Task, Weights

COLUMNS = (
    "message",
    "nbytes",
    "encode_us",
    "decode_us",
    "checksum_share",
    "lambda_codec_us",
    "echo_us",
    "raw_echo_us",
    "echo_ratio",
    "curve_echo_us",
    "one_way_gb_s",
    "curve_one_way_gb_s",
    "raw_one_way_gb_s",
    "messages_per_s",
)
#: Bytes, or messages, that one sample of one way sends: enough to be steady, few enough to be held in buffers.
FLOOD_BYTES, FLOOD_MESSAGES = 64 << 20, 1000
#: Seconds that one sample of an echo should take.
SAMPLE_S = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Encode, decode and carry typical messages, beside bare ZeroMQ."
    parser.add_argument("--width", type=int, default=128, metavar="F", help="columns of dense rows [128]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved repeats, medians [5]")


def measure(args: argparse.Namespace) -> Measurement:
    if args.rounds < 1 or args.width < 1:
        raise ConfigError(f"--rounds {args.rounds}, --width {args.width}: must be >= 1")
    with Links() as links:
        rows = [_row(name, message, links, args.rounds) for name, message in examples(args.width).items()]
    slowest = max(rows, key=lambda row: float(row["echo_ratio"]))
    return Measurement(
        "messages between two processes over tcp loopback",
        COLUMNS,
        rows,
        {"worst_echo_ratio": slowest["echo_ratio"], "worst_echo_ratio_of": slowest["message"]},
    )


def examples(width: int) -> dict[str, Message]:
    """What a run sends most, by name."""
    rng = np.random.default_rng(0)

    def dense(nbytes: int) -> Any:
        return rng.random((max(1, nbytes // (4 * width)), width), dtype=np.float32)

    def task(nbytes: int) -> Message:
        return Task("train", 3, 5, 1, 0, 0, 1, (), {"Z0": dense(nbytes)})

    return {
        "acknowledgement": GradientAck(3, 5, 1, 0),
        "published rows, 64 KiB": PublishedRows("train", 3, 2, 5, dense(64 << 10)),
        "weights, 256 KiB": Weights(
            "train", 3, 5, (1,), 0, 3, {"1.weight": dense(256 << 10), "1.bias": dense(4 * width)}
        ),
        "sparse rows, 1 MiB": Task("train", 3, 5, 1, 0, 0, 1, (), {"Z0": _bag_of_words(1 << 20, rng)}),
        "task, 64 KiB": task(64 << 10),
        "task, 1 MiB": task(1 << 20),
        "task, 8 MiB": task(8 << 20),
    }


def _bag_of_words(nbytes: int, rng: np.random.Generator) -> SparseRows:
    """Rows of about 50 of 8,000 columns each, this large together."""
    nnz, per_row = nbytes // 8, 50
    indptr = np.append(np.arange(0, nnz, per_row), nnz).astype(np.int64)
    return SparseRows(indptr, rng.integers(0, 8000, nnz).astype(np.int32), rng.random(nnz, dtype=np.float32), 8000)


def _row(name: str, message: Message, links: dict[str, Link], rounds: int) -> dict[str, Any]:
    frames = [bytes(frame) for frame in wire.encode(message, RUN_ID)]
    nbytes = wire.nbytes(message)
    samples: dict[str, list[float]] = {}

    def sample(key: str, seconds: float) -> None:
        samples.setdefault(key, []).append(seconds)

    echoes = _repeats(lambda: links["hub"].echo(message, 1))
    flood = max(1, min(FLOOD_MESSAGES, FLOOD_BYTES // max(nbytes, 1)))
    codec = _repeats(lambda: wire.encode(message, RUN_ID, crc32))
    for _ in range(rounds):
        sample("encode", _seconds(lambda: wire.encode(message, RUN_ID, crc32), codec))
        sample("decode", _seconds(lambda: wire.decode(frames, RUN_ID, crc32), codec))
        sample("checksum", _seconds(lambda: [crc32(frame) for frame in frames[2:]], codec))
        sample("lambda codec", _seconds(lambda: wire.decode(wire.encode(message, RUN_ID), RUN_ID), codec))
        for kind, link in links.items():
            sample(f"{kind} echo", link.echo(message, echoes))
            sample(f"{kind} flood", link.flood(message, flood) / flood)
    s = {key: statistics.median(values) for key, values in samples.items()}
    return {
        "message": name,
        "nbytes": nbytes,
        "encode_us": s["encode"] * 1e6,
        "decode_us": s["decode"] * 1e6,
        "encode_mb_s": nbytes / s["encode"] / 1e6,
        "decode_mb_s": nbytes / s["decode"] / 1e6,
        "checksum_share": 2 * s["checksum"] / (s["encode"] + s["decode"]),
        "lambda_codec_us": s["lambda codec"] * 1e6,
        "echo_us": s["hub echo"] * 1e6,
        "raw_echo_us": s["raw echo"] * 1e6,
        "curve_echo_us": s["curve echo"] * 1e6,
        "curve_one_way_gb_s": nbytes / s["curve flood"] / 1e9,
        "echo_ratio": s["hub echo"] / s["raw echo"],
        "one_way_gb_s": nbytes / s["hub flood"] / 1e9,
        "raw_one_way_gb_s": nbytes / s["raw flood"] / 1e9,
        "messages_per_s": 1 / s["hub flood"],
        "raw_messages_per_s": 1 / s["raw flood"],
    }


def _repeats(once: Callable[[], Any]) -> int:
    """How often something is to be repeated for a sample of about ``SAMPLE_S``; it also warms up."""
    once()
    return max(3, min(2000, int(SAMPLE_S / max(_seconds(once, 3), 1e-9))))


def _seconds(once: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        once()
    return (time.perf_counter() - start) / count
