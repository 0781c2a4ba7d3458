"""What README.md, SECURITY.md and docs/ tell a reader to type can be typed: verbs, flags, modules and links that exist.

Commands are the lines that are indented by four spaces; two spaces or more end one, and what follows is said of it.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import siafu
from benchmarks.__main__ import PROGRAM as BENCHMARKS
from graph_data.partitioners import PARTITIONERS
from graph_data.sinks import SINKS
from graph_data.sources.names import SOURCES
from graph_server.backends import BACKENDS
from run_coordinator.hosts import HOSTS
from run_coordinator.loggers import LOGGERS
from siafu.__main__ import SIAFU, Program, _parse
from siafu.baseline import METHODS
from siafu.models import MODELS
from siafu.places import CORE_MB, PLACES
from siafu.pricing import prices
from siafu.pricing.cost import memory_gb_s
from tests.test_imports import ROOMS
from website import settings_page

ROOT = Path(__file__).parent.parent
OUTSIDE = [ROOT / name for name in ("README.md", "SECURITY.md", "examples/README.md")]
PAGES = sorted([*OUTSIDE, *(ROOT / "docs").rglob("*.md")])


def commands(program: str) -> Iterator[tuple[str, str]]:
    """Page and command."""
    for page in PAGES:
        for found in re.finditer(rf"^    ((?:\S*/)?{program} .*)$", page.read_text(), re.MULTILINE):
            for command in re.split(r";  ", found[1]):  # several in a line
                if command.startswith(program):
                    yield page.relative_to(ROOT).as_posix(), re.split(r"\s{2,}", command)[0]


def mistakes(program: Program, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says against ``words``; "" if it accepts them."""
    if words == ["--help"] or "VERB" in words or any("[" in word for word in words):  # a usage, not a command
        return ""
    try:
        _parse(words, program)
    except SystemExit as end:
        return capsys.readouterr().err if end.code else ""
    return ""


def test_commands_have_flags_that_their_verbs_know(capsys: pytest.CaptureFixture[str]) -> None:
    said = {
        f"{page}: {command}": mistakes(SIAFU, shlex.split(command)[1:], capsys) for page, command in commands("siafu")
    }
    assert len(said) > 80
    assert {command: mistake for command, mistake in said.items() if mistake} == {}


def test_modules_and_scripts_that_are_run_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {}
    for page, command in commands("python"):
        words = shlex.split(command)
        if words[1:3] == ["-m", "benchmarks"]:
            if mistake := mistakes(BENCHMARKS, words[3:], capsys):
                wrong[f"{page}: {command}"] = mistake
        elif words[1:2] == ["-m"]:
            if importlib.util.find_spec(words[2]) is None:
                wrong[f"{page}: {command}"] = "no such module"
        elif not (ROOT / words[1]).exists():
            wrong[f"{page}: {command}"] = "no such file"
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target} leads nowhere"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there.read_text()), f"{target}: no heading of that name"


#: The file that a reader of the page writes.
WRITTEN = {"siafu/models/tagcn.py"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_and_modules_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    files = set(re.findall(r"`(\w[\w.-]*/[\w./-]+\.(?:py|csv|hpp|sh))`", text)) - WRITTEN
    names = re.findall(rf"`((?:{'|'.join(ROOMS)})\.[\w.]+)`", text)
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [name for name in names if not is_there(name.split("."))] == []


def is_there(words: list[str]) -> bool:
    """Whether a dotted name is a public name, a module, or begins with a module that defines the next word."""
    if words[0] == "siafu" and words[1] in siafu.__all__:
        return True
    paths = [ROOT.joinpath(*words[:end]) for end in range(len(words), 0, -1)]
    for path, rest in zip(paths, [[], *([word] for word in reversed(words[1:]))], strict=True):
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return all(re.search(rf"^(?:(?:class|def) )?{word}\b", file.read_text(), re.MULTILINE) for word in rest)
    return False


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_settings_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == settings_page.page(), "make pages"


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("models.md", MODELS),
        ("baselines.md", METHODS),
        ("data.md", SOURCES),
        ("data.md", SINKS),
        ("guide.md", PARTITIONERS),
        ("guide.md", PLACES),
        ("guide.md", BACKENDS),
        ("guide.md", HOSTS),
        ("guide.md", LOGGERS),
    ],
)
def test_a_page_names_whatever_a_table_offers(page: str, table: Mapping[str, object]) -> None:
    text = (ROOT / "docs" / page).read_text()
    assert [name for name in table if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_names_whatever_is_in_a_room(room: str) -> None:
    text = (ROOT / "docs" / "developing.md").read_text()
    paragraph = text.split(f"### `{room}/`")[1].split("\n### ")[0]
    named = set(re.findall(r"`(\w+)/?`", paragraph))
    there = {path.stem for path in (ROOT / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - named - {"__init__", "__main__"} == set()
    assert named & there, room


def test_the_table_of_services_is_that_of_their_prices() -> None:
    """Of one vCPU with 2 GB for an hour; Lambda's comes with ``CORE_MB``."""
    server = prices.instance("c8g.2xlarge")
    expected = {
        "EC2 c8g, on demand": (server.price() / server.vcpu, server.dated()),
        "EC2 c8g, spot": (server.price(spot=True) / server.vcpu, server.dated(spot=True)),
    }
    for arch in prices.ARCHITECTURES:
        rate = prices.rates("lambda_compute", arch)[0]
        expected[f"Lambda, {arch}"] = rate.usd * memory_gb_s(3600, CORE_MB), rate.as_of
    for row in csv.DictReader((ROOT / "benchmarks/other_services.csv").read_text().splitlines()):
        assert row["source"]
        usd = 3600 * (float(row["usd_per_vcpu_s"]) + 2 * float(row["usd_per_gb_s"]))
        expected[", ".join(filter(None, (row["service"], row["arch"])))] = usd, row["as_of"]
    page = (ROOT / "docs/plan.md").read_text()
    table = page.partition("| service | US dollars |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| ([^|]+) \| (0\.\d+) \| (\S+) \|", table, re.MULTILINE)
    assert {name: (usd, day) for name, usd, day in shown} == {
        name: (f"{usd:.4f}", day) for name, (usd, day) in expected.items()
    }
