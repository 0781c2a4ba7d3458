"""What README.md, SECURITY.md and docs/ tell a reader to type can be typed: verbs, flags, modules and links that exist.

Commands are the lines that are indented by four spaces; two spaces or more end one, and what follows is said of it.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from siafu import settings
from siafu.__main__ import _parse

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])


def commands(program: str) -> Iterator[tuple[str, str]]:
    """Page and command."""
    for page in PAGES:
        for found in re.finditer(rf"^    ((?:\S*/)?{program} .*)$", page.read_text(), re.MULTILINE):
            for command in re.split(r";  ", found[1]):  # several in a line
                if command.startswith(program):
                    yield page.relative_to(ROOT).as_posix(), re.split(r"\s{2,}", command)[0]


@pytest.mark.parametrize(("page", "command"), [*commands("siafu")])
def test_a_command_has_flags_that_its_verb_knows(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    if words == ["--help"] or "VERB" in words or "[" in command:  # a usage, not a command
        return
    code = 0
    try:
        _parse(words)
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 0, f"{page}: {command}: {capsys.readouterr().err}"


@pytest.mark.parametrize(("page", "command"), [*commands("python")])
def test_a_module_that_is_run_is_there(page: str, command: str) -> None:
    words = shlex.split(command)
    if words[1:2] == ["-m"]:
        assert importlib.util.find_spec(words[2]) is not None, f"{page}: {command}"
    else:
        assert (ROOT / words[1]).exists(), f"{page}: {command}"


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


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_settings_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == settings.page(), "python -m siafu.settings > docs/settings.md"


ROOMS = ("siafu", "datasets", "graph_server", "param_server", "lambda_funcs", "bench", "infra", "gpu_baselines")


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_names_whatever_is_in_a_room(room: str) -> None:
    text = (ROOT / "docs" / "developing.md").read_text()
    paragraph = text.split(f"### `{room}/`")[1].split("\n### ")[0]
    named = set(re.findall(r"`(\w+)/?`", paragraph))
    there = {path.stem for path in (ROOT / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - named - {"__init__", "__main__"} == set()
    assert named & there, room
