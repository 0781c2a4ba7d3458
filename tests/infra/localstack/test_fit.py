"""Which LocalStack is ours: a server that stands for one says who runs its functions."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from infra.localstack import __main__ as command
from infra.localstack import fit
from infra.localstack.identity import WHO
from siafu import config as configs
from siafu.config import Config
from siafu.errors import WorkerError


@pytest.fixture
def endpoint():
    """Serves ``answers``: path -> body; whatever else is asked for is not there."""
    answers: dict[str, bytes] = {"/2015-03-31/functions": json.dumps({"Functions": []}).encode()}

    class Service(BaseHTTPRequestHandler):
        def do_GET(self):
            body = answers.get(self.path.partition("?")[0].rstrip("/"))
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()
        thread.join()


def test_ours_says_who_it_is(endpoint):
    url, answers = endpoint
    answers[WHO] = json.dumps({"pid": 7, "runtime": "python3.11"}).encode()
    assert fit.executor_at(url) == {"pid": 7, "runtime": "python3.11"}


@pytest.mark.parametrize("answer", [None, b"<html>", b"[]", b'{"message": "no such bucket"}'])
def test_any_other_is_not_ours(endpoint, answer):
    url, answers = endpoint
    if answer is not None:
        answers[WHO] = answer
    assert fit.executor_at(url) is None


def test_functions_are_made_for_this_machine_where_it_is_ours_else_for_lambdas_images(endpoint, monkeypatch):
    url, answers = endpoint
    monkeypatch.setattr(fit.package, "build_here", lambda runtime: ("here", runtime))
    monkeypatch.setattr(fit.package, "build", lambda arch: ("lambda", arch))
    assert fit.package_for(url)[0] == "lambda"
    answers[WHO] = json.dumps({"pid": 7, "runtime": "python3.11"}).encode()
    assert fit.package_for(url) == ("here", "python3.11")


def test_endpoint_where_nobody_is_ends_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(WorkerError, match=r"http://127\.0\.0\.1:9"):
        fit.executor_at("http://127.0.0.1:9")
    (tmp_path / "config.toml").write_text(configs.dump(Config()))
    assert command.main(["--config", str(tmp_path / "config.toml"), "--run-dir", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
