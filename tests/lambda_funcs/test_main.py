"""What ``siafu doctor`` runs, and reads the output of."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest

from lambda_funcs import local_pool
from lambda_funcs.invocation import Invocation
from lambda_funcs.local_pool import LocalPool


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Invocation) -> tuple[Any, Any]:
    """Exit code and JSON line where the one invocation comes out as ``answer``."""

    class Answered(LocalPool):
        def __init__(self, *, handler: str, max_environments: int, on_done: Any) -> None:
            assert (handler, max_environments) == ("lambda_funcs.handler.ping", 1)
            self.answered = on_done

        def __enter__(self) -> Answered:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def invoke(self, payload: Any, request_id: str) -> None:
            self.answered(answer)

    monkeypatch.setattr(local_pool, "LocalPool", Answered)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("lambda_funcs", run_name="__main__")
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_an_environment_that_answers(monkeypatch, capsys):
    answer = Invocation("doctor", b"{}", None, 12.5, 14, 33, "")
    assert run(monkeypatch, capsys, answer) == (0, {"init_ms": 12.5, "max_memory_mb": 33})


def test_one_that_fails_says_why(monkeypatch, capsys):
    answer = Invocation("doctor", b"{}", "Unhandled", 0.0, 1, 0, "x" * 400 + "no numpy")
    code, told = run(monkeypatch, capsys, answer)
    assert code == 1
    assert told["error"].startswith("Unhandled: xxx")
    assert told["error"].endswith("no numpy")
