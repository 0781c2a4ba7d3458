"""A run with keys: the same numbers, and nothing secret left where others could read it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.integration.processes import ENVIRONMENT, SERVERS, Training

DIGITS = ("digits", "--mode", "pipe", "--parts", "2", "--param-servers", "2", "--lambdas", "2", "--epochs", "4")


@pytest.mark.parametrize("backend", ["lambda", "cpu"])
def test_weights_do_not_depend_on_keys(tmp_path: Path, backend: str) -> None:
    digests = set()
    for security in ("none", "curve"):
        with Training(tmp_path / security, *DIGITS, "--backend", backend, "--security", security) as training:
            assert training.wait(120) == 0, training.errors
            result = training.result
            digests.add(result["weights_digest"])
            assert result["restarts"] == []
            assert result["usage"]["messages_malformed"] == result["usage"]["connections_refused"] == 0
    assert len(digests) == 1


def test_keys_are_in_no_arguments_and_the_run_directory_is_its_owners(tmp_path: Path) -> None:
    with Training(tmp_path / "run", *DIGITS, "--epochs", "100000", "--security", "curve") as training:
        training.until(lambda: training.epochs() >= 1, "an epoch", 60)
        assert stat.S_IMODE(training.run_dir.stat().st_mode) == 0o700
        for role in (*SERVERS, ENVIRONMENT):
            assert training.pids(role)
            for pid in training.pids(role):
                told = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
                assert b"public" not in told
        files = [path for path in training.run_dir.rglob("*") if path.suffix in (".log", ".toml", ".json", ".jsonl")]
        assert files
        assert all(b'"public"' not in path.read_bytes() for path in files)
