"""Whatever is wrong with a source: exit code 2, one line that says what and where, and nothing left behind."""

import pytest

from tests.graph_data.malformed import CASES, ask

pytest.importorskip("pyarrow")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_source_that_cannot_be_prepared_is_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    answer = ask(case, tmp_path)
    assert (answer.exit_code, len(answer.messages), answer.left) == (2, 1, ())
    assert answer.last.endswith(answer.messages[0])
    ours = case.message.removesuffix("…)")  # what a library says differs from version to version
    assert answer.messages[0][: len(ours)] == ours
    assert ours != case.message or answer.messages[0] == case.message


def test_no_case_is_there_twice_and_they_are_many():
    assert len({case.name for case in CASES}) == len(CASES) >= 30
    assert len({(case.typed, tuple(case.files), case.message) for case in CASES}) == len(CASES)
