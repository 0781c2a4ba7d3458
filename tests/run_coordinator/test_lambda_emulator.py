"""run_coordinator.lambda_emulator: what a run hears of LocalStack. That it serves is tests/localstack/test_train.py's."""

from __future__ import annotations

import pytest

pytest.importorskip("boto3", reason="needs the extra aws")

from run_coordinator.lambda_emulator import lambda_site
from siafu.config import Config
from siafu.errors import ConfigError


def test_localstack_says_in_its_last_line_what_the_user_must_do(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = Config().replace({"servers.backend": "lambda", "lambda.on": "localstack"})
    with (
        pytest.raises(ConfigError, match=r"lambda\.on = localstack: LocalStack is not installed .*: python -m"),
        lambda_site(config, tmp_path),
    ):
        pass
