"""run_coordinator.lambda_emulator: what a run hears of LocalStack. That it serves is
tests/localstack/test_train.py's."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("boto3", reason="needs the extra aws")

from run_coordinator import lambda_emulator
from run_coordinator.lambda_emulator import ASKED, as_asked, lambda_site
from run_coordinator.predict import plan
from run_coordinator.recovery import resume
from siafu.config import Config, dump, load
from siafu.errors import ConfigError
from siafu.run_files import CONFIG


def test_localstack_says_in_its_last_line_what_the_user_must_do(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = Config().replace({"servers.backend": "lambda", "lambda.on": "localstack"})
    with (
        pytest.raises(ConfigError, match=r"lambda\.on = localstack: LocalStack is not installed .*: python -m"),
        lambda_site(config, tmp_path),
    ):
        pass


def test_what_localstack_says_of_itself_is_settings_of_the_run(monkeypatch, tmp_path):
    said = {"endpoint": "http://127.0.0.1:5", "function": "siafu-x", "callback_host": "10.0.0.1"}
    serve = f"import json, sys; print(json.dumps({said}), flush=True); sys.stdin.read()"
    monkeypatch.setattr(lambda_emulator.start, "command", lambda *words: [sys.executable, "-c", serve])
    config = Config().replace({"servers.backend": "lambda", "lambda.on": "localstack"})
    with lambda_site(config, tmp_path) as site:
        site.check()
        assert config.replace(site.settings).lambdas.endpoint == said["endpoint"]
        assert site.settings == {f"lambda.{key}": value for key, value in said.items()}
    assert load(tmp_path / ASKED) == config
    with lambda_site(Config(), tmp_path / "none") as site:
        assert site.settings == {}


def test_a_run_goes_on_without_the_localstack_that_went_with_it(monkeypatch, tmp_path):
    asked = Config().replace({"servers.backend": "lambda", "lambda.on": "localstack", "lambda.function": "mine"})
    made = {"lambda.endpoint": "http://127.0.0.1:5", "lambda.function": "siafu-x", "lambda.callback_host": "10.0.0.1"}
    (tmp_path / CONFIG).write_text(dump(asked.replace(made)))
    # the user's own: it may be there still
    assert resume.resolve(tmp_path, {}, {}).lambdas.endpoint == "http://127.0.0.1:5"
    (tmp_path / ASKED).write_text(dump(asked))
    for config in (
        as_asked(load(tmp_path / CONFIG), tmp_path),
        resume.resolve(tmp_path, {"train.epochs": 7}, {}),
        plan._of_servers(tmp_path),
    ):
        lambdas = config.lambdas
        assert (lambdas.endpoint, lambdas.function, lambdas.callback_host) == ("", "mine", "")
