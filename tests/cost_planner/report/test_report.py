"""The verb, and what it writes."""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cost_planner.plan import check
from cost_planner.plan.calibration import Calibration
from cost_planner.report import drawing, outcome, reading, series, time_money, timelines
from cost_planner.report.compared import Compared, Missing
from cost_planner.value import finding, judge
from cost_planner.value.judge import StandIn
from run_coordinator import api
from siafu.__main__ import main
from siafu.progress import duration, size
from siafu.tasks import Kind
from tests.cost_planner.report.runs import baseline, servers, write

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ALL = [
    "accuracy-time",
    "accuracy-dollars",
    "loss",
    "value",
    "time-money",
    "cost",
    "time",
    "scaling",
    "timeline",
    "staleness",
    "links",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of every kind, with everything that a report can show."""
    folder = tmp_path_factory.mktemp("runs")
    return [
        write(folder / "lambda", servers("lambda", "async"), trace=True),
        write(folder / "cpu", servers()),
        write(folder / "cpu4", servers(**{"data.parts": 4}), epoch_s=60.0),
        write(folder / "vanilla", baseline(), epoch_s=5.0),
    ]


@pytest.fixture(scope="module")
def page(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "all.html"
    assert main(["report", *map(str, runs), "--out", str(out)]) == 0
    return out


class Page(HTMLParser):
    """Ids, and what would be fetched."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            elif name in ("src", "href", "xlink:href") and not str(value).startswith("#"):
                self.fetched.append(str(value))


def test_a_page_needs_nothing_else_and_has_each_id_once(page):
    found = Page(page.read_text())
    assert found.fetched == []
    assert not found.tags & {"script", "link", "img", "object", "iframe"}
    assert "@import" not in page.read_text()
    assert len(found.ids) == len(set(found.ids))


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)")
def test_no_scrollbar_stands_over_the_summary_at_900_pixels(page: Path, tmp_path: Path) -> None:
    measured = "const one = document.querySelector('.wide'); document.title = one.scrollWidth - one.clientWidth"
    copy = tmp_path / "copy.html"
    copy.write_text(page.read_text().replace("</body>", f"<script>{measured}</script></body>"))
    command = [
        *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"),
        *("--window-size=900,1000", "--dump-dom", copy.as_uri()),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "<title>0</title>" in shown


def test_a_panel_of_one_interval_has_room_for_its_label() -> None:
    spans = {server: [series.Span(0, "GA", 0.0, 0.5, own=True)] for server in range(2)}
    with drawing.style():
        drawn, _ = timelines.draw({"one": series.Timeline(0, 1.0, spans, aligned=True)})
        drawn.draw_without_rendering()
    for axes in drawn.axes:
        assert axes.yaxis.label.get_window_extent().height <= axes.get_window_extent().height


def test_results_stand_above_what_limits_them_and_the_best_comes_first(page):
    text = page.read_text()
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == ["Summary", "Figures", "Read with care", "What was compared", "Runs"]
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    values = [float(row[1]) for row in (re.findall(r"<td>(.*?)</td>", line) for line in table.split("</tr>")) if row]
    assert len(values) == 4
    assert values == sorted(values, reverse=True)


def test_the_table_of_runs_says_what_evaluation_cost(page):
    said = [line for line in page.with_suffix(".md").read_text().splitlines() if "12% of tensor tasks" in line]
    assert len(said) == 3  # of graph servers; a baseline has no tasks
    assert all("12% of tensor tasks, 20% of computing time" in line for line in said)


def test_what_figures_refer_to_is_there(page):
    text = page.read_text()
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(Page(text).ids)


def test_every_figure_is_there_and_follows_the_colours_of_the_page(page):
    figures = sorted(path.stem for path in page.with_name("all-figures").iterdir())
    assert figures == sorted(ALL)
    body = page.read_text().partition("</style>")[2]
    used = set(re.findall(r"var\(--([a-z0-9]+)\)", body))
    assert used <= set(drawing.COLOURS)
    assert not [colour for colour in drawing.LIGHT.values() if colour in body]


def test_a_figure_alone_is_svg_that_knows_light_and_dark(page):
    for file in page.with_name("all-figures").iterdir():
        assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert "prefers-color-scheme: dark" in file.read_text()


def test_markdown_has_the_table_and_names_figures_that_exist(page):
    text = page.with_suffix(".md").read_text()
    for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
        assert (page.parent / target).is_file()
    assert re.search(r"\| cpu pipe parts=4 \| [\d.]+ \| 240.0 s \| 4 \|", text)
    assert "ot measured on EC2" in text


def test_equal_runs_give_equal_bytes(page, runs, tmp_path):
    again = tmp_path / "all.html"
    assert main(["report", *map(str, runs), "--out", str(again)]) == 0
    assert again.read_bytes() == page.read_bytes()
    assert again.with_suffix(".md").read_bytes() == page.with_suffix(".md").read_bytes()


def test_names_of_a_run_are_text_and_no_markup(tmp_path):
    evil = servers(**{"data.source": "<script>alert(1)</script> & |pipes| *x*.npz"})
    run = write(tmp_path / "<b>run", evil)
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    assert "<script" not in page
    assert "<b>run" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in (run / "report.md").read_text()
    assert r"\|pipes\| \*x\*" in (run / "report.md").read_text()


def test_what_runs_do_not_have_is_left_out_with_what_gives_it(tmp_path, capsys):
    run = write(tmp_path / "run", baseline())
    assert main(["report", str(run), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["figures"] == ["accuracy-time", "accuracy-dollars", "loss", "cost", "time", "links"]
    assert "--trace" in said["left_out"]["Timeline of one epoch"]
    assert said["judged"]["rows"][0]["name"] == "vanilla ranks=2"
    assert [Path(file).is_file() for file in said["files"]] == [True] * 8
    assert "Timeline of one epoch" in (run / "report.html").read_text()


def test_nobody_at_the_target_is_said_and_drawn(tmp_path, capsys):
    run = write(tmp_path / "run", servers())
    assert main(["report", str(run), "--target", "0.99"]) == 0
    assert "Cost by part: no run has reached the target" in capsys.readouterr().out
    assert "not reached" in (run / "report.html").read_text()


def test_repetitions_are_one_contender(tmp_path, capsys):
    runs = [write(tmp_path / str(seed), servers(**{"train.seed": seed})) for seed in range(3)]
    assert main(["report", *map(str, runs), "--out", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["judged"]["rows"]
    assert (row["name"], row["runs"]) == ("cpu pipe", 3)
    assert "cpu pipe (3 of 3 runs)" in (tmp_path / "report.html").read_text()


def test_a_run_without_a_result_is_reported_as_not_finished(tmp_path):
    run = write(tmp_path / "run", servers("lambda", "async"), finished=False)
    assert main(["report", str(run)]) == 0
    assert "4 epochs, not finished" in (run / "report.html").read_text()


@pytest.mark.parametrize("out", ["report.pdf", "report.html/deeper.html"])
def test_where_nothing_can_be_written_is_one_line(tmp_path, capsys, out):
    run = write(tmp_path / "run", servers())
    (tmp_path / "report.html").write_text("in the way of a folder")
    assert main(["report", str(run), "--out", str(tmp_path / out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("siafu report: --out ")
    assert f"{tmp_path / out}: " in line


def test_no_run_directory_is_one_line(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "not a run directory" in capsys.readouterr().err


def test_what_can_be_predicted_stands_beside_what_was_measured(tmp_path, runs, page):
    """Runs without what a prediction needs are left out of it; so is the whole table where there is none."""
    assert "predicted / measured" not in page.read_text()
    folders = [tmp_path / f"run{seed}" for seed in (1, 2)]
    for seed, folder in enumerate(folders):
        api.train("digits", run_dir=str(folder), settings={"train.epochs": 3, "train.seed": seed})
    assert main(["report", *map(str, folders), "--out", str(tmp_path / "out.html")]) == 0
    lines = [line for line in (tmp_path / "out.md").read_text().splitlines() if line.startswith("|")]
    heads = next(number for number, line in enumerate(lines) if "predicted / measured" in line)
    name, epoch, predicted, ratio, held, wanted, *_ = [cell.strip() for cell in lines[heads + 2].split("|")[1:]]
    found = [check.of_run(folder, Calibration()).quantities for folder in folders]
    assert predicted == duration(found[0]["epoch_s"].predicted)
    assert epoch == duration(sum(one["epoch_s"].measured for one in found) / 2)  # the median of two
    assert held == size(max(one["memory_bytes"].measured for one in found))
    assert wanted == size(found[0]["memory_bytes"].predicted)
    assert float(ratio) > 0
    assert len([line for line in lines if line.startswith(f"| {name} |") and predicted in line]) == 1  # of both seeds


def compared(folders: list[Path], target: float | None = None) -> Compared:
    read, types = reading.read(folders), StandIn(graph="c5.2xlarge", param="c5.large")
    table = judge.judged([run.contender for run in read], types, target=target)
    there: Any = {**table, "stand_in": types.to_dict(), "machines": []}
    return Compared(read, {**there, "finding": finding.of(there)}, types)


def test_time_against_money_joins_the_front_and_goes_through_the_best(tmp_path):
    """The least of time x dollars is the best; who is slower and dearer than another is not on the front."""
    folders = [
        write(tmp_path / "one", servers(**{"data.parts": 1}), epoch_s=100.0),
        write(tmp_path / "four", servers(**{"data.parts": 4}), epoch_s=40.0),
        write(tmp_path / "slow", servers(mode="no-pipe", **{"data.parts": 4}), epoch_s=110.0),
    ]
    found = compared(folders)
    with drawing.style():
        drawn, caption = outcome.money_by_time(found)
    (axes,) = drawn.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    points = {row["name"]: [row["seconds"], row["cost"]["usd"]] for row in found.rows}
    assert {name: lines[name] for name in points} == {name: [point] for name, point in points.items()}
    front = [points["cpu pipe parts=4"], points["cpu pipe parts=1"]]
    assert front[0][0] < front[1][0]
    assert front[0][1] > front[1][1]
    assert lines["Pareto front"] == front
    best = found.rows[0]
    for seconds, usd in lines["equal value; below: more"]:
        assert 1 / (seconds * usd) == pytest.approx(best["value"])
    assert best["name"] in caption
    assert "single runs" not in caption


def test_single_runs_are_small_marks_beside_what_a_success_takes(tmp_path):
    """A third seed misses the target: its time and dollars are in the others'."""
    folders = [
        write(tmp_path / f"{backend}{seed}", servers(backend, **{"train.seed": seed}), scores, epoch_s=100.0 + seed)
        for backend in ("cpu", "lambda")
        for seed, scores in enumerate([(0.5, 0.8), (0.5, 0.8), (0.5, 0.6)])
    ]
    with drawing.style():
        drawn, caption = outcome.money_by_time(compared(folders, target=0.8))
    lines = [(line.get_label(), line.get_xydata().tolist()) for line in drawn.axes[0].lines]
    small = [points for name, points in lines if name == "_runs"]
    assert [[seconds for seconds, _ in points] for points in small] == [[200.0, 202.0]] * 2
    cpu = next(points for name, points in lines if name == "cpu pipe")
    assert cpu[0][0] == (200 + 202 + 204) / 2
    assert "Small marks are single runs." in caption


def test_one_contender_has_no_picture_of_time_against_money(tmp_path):
    found = compared([write(tmp_path / "one", servers())])
    with drawing.style(), pytest.raises(Missing, match="two contenders"):
        outcome.money_by_time(found)


def test_runs_that_hardly_differ_still_have_marked_axes():
    """Of 205 to 215 s, none is a round number of minutes."""
    with drawing.style():
        axes = drawing.figure(3).add_subplot()
        time_money.scale(axes, [205.0, 215.0], [0.0101, 0.0104], "until the target")
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            assert len([one for one in axis.get_majorticklocs() if low <= one <= high]) > 1


def test_every_kind_of_step_has_a_look():
    assert {kind.value for kind in Kind} < set(timelines.KINDS)


def test_a_full_disk_leaves_the_page_that_was_there(tmp_path, capsys):
    run = write(tmp_path / "run", servers())
    (tmp_path / "page.html").write_text("of last week")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # bytes of a file
    try:
        assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in capsys.readouterr().err
    assert (tmp_path / "page.html").read_text() == "of last week"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["page.html", "run"]
