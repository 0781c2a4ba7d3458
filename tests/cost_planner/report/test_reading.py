"""Run directories, read; and the numbers that are made of them."""

from __future__ import annotations

import json

import pytest

from cost_planner.report import series
from cost_planner.report.reading import read
from cost_planner.report.series import EVALUATION, Span
from siafu.errors import ConfigError
from tests.cost_planner.report.runs import baseline, servers, write


def test_a_line_that_is_being_written_is_not_read(tmp_path):
    run = write(tmp_path / "run", servers(), finished=False)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"event": "epo')
    (found,) = read([run])
    assert (len(found.epochs), found.result) == (4, None)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("metrics.jsonl", '{"event": "start"}\n', "nothing was evaluated"),
        ("metrics.jsonl", '{"event"\n{}\n', "metrics.jsonl: "),
        ("result.json", "[1]", "result.json: not a JSON object"),
        ("manifest.json", "{", "manifest.json: "),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, file, text, said):
    run = write(tmp_path / "run", servers())
    (run / file).write_text(text)
    with pytest.raises(ConfigError, match=said) as error:
        read([run])
    assert "\n" not in str(error.value)


def test_a_report_is_of_one_graph(tmp_path):
    runs = [write(tmp_path / name, servers(**{"data.source": name})) for name in ("cora", "digits")]
    with pytest.raises(ConfigError, match=r"runs of 2 graphs \(cora, digits\)"):
        read(runs)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_seconds_are_those_of_an_epoch_by_kind_in_its_order(tmp_path):
    (run,) = read([write(tmp_path / "run", servers())])
    assert list(series.by_kind(run).items()) == [("GA", 2.0), ("AV", 5.0), ("AV'", 7.0), (EVALUATION, 1.0)]
    assert series.by_phase(run) == {}


def test_phases_of_a_baseline_are_those_that_take_time(tmp_path):
    (run,) = read([write(tmp_path / "run", baseline())])
    assert series.by_phase(run) == {"compute": 60.0, "communicate": 40.0}
    assert (series.by_kind(run), series.staleness(run)) == ({}, [])


def test_staleness_is_a_share_of_all_gathers(tmp_path):
    (run,) = read([write(tmp_path / "run", servers("lambda", "async"))])
    assert series.staleness(run) == [0.75, 0.25]


def test_thinned_keeps_the_last():
    rows = [{"epoch": epoch} for epoch in range(1001)]
    kept = series.thinned(rows, 100)
    assert len(kept) <= 100
    assert kept[-1] == rows[-1]


def test_a_timeline_tells_waiting_from_working(tmp_path):
    """epoch  |..GA===|....AV==|  WU"""
    (run,) = read([write(tmp_path / "run", servers(), epoch_s=10.0, trace=True)])
    found = series.timeline(run)
    assert found is not None
    assert (found.epoch, found.seconds, list(found.servers), found.aligned) == (2, 10.0, [0, 1], True)
    assert [(span.kind, round(span.start, 6), round(span.stop, 6)) for span in found.servers[1]] == [
        ("", 0, 1),
        ("GA", 1, 3),
        ("", 3, 6),
        ("AV", 6, 8),
        ("WU", 8, 10),
    ]
    assert all(span.own and span.interval == 1 for span in found.servers[1])


def test_servers_whose_clocks_differ_begin_at_their_own_first_task(tmp_path):
    run_dir = write(tmp_path / "run", servers(), epoch_s=10.0, trace=True)
    file = run_dir / "trace-1.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**line, "time_s": line["time_s"] + 1e6}) + "\n" for line in lines))
    (run,) = read([run_dir])
    found = series.timeline(run)
    assert found is not None
    assert (found.aligned, found.seconds) == (False, 10.0)
    assert found.servers[1][0] == Span(1, "", 0.0, 1.0, True)


def test_without_a_trace_there_is_no_timeline(tmp_path):
    (run,) = read([write(tmp_path / "run", servers())])
    assert series.timeline(run) is None
