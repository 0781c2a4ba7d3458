"""The site's own pages, and where links of pages lead there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import siafu
from siafu.__main__ import VERBS
from website import commands, hooks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("here", "uri", "text", "expected"),
    [
        ("README.md", "index.md", "[a](docs/guide.md#modes)", "[a](guide.md#modes)"),
        ("README.md", "index.md", "[a](LICENSE)", "a (`LICENSE`)"),
        ("docs/guide.md", "guide.md", "[S](../SECURITY.md)", "[S](security.md)"),
        ("docs/guide.md", "guide.md", "[a](data.md) and [b](#modes)", "[a](data.md) and [b](#modes)"),
        ("docs/measured/epochs.md", "measured/epochs.md", "[a](../adr/README.md)", "[a](../adr/README.md)"),
        ("docs/developing.md", "developing.md", "[tests/fleet.py](../tests/fleet.py)", "`tests/fleet.py`"),
        ("docs/developing.md", "developing.md", "[`fleet`](../tests/fleet.py)", "`fleet`"),
        ("docs/guide.md", "guide.md", "[a](https://example.org/x)", "[a](https://example.org/x)"),
        ("docs/guide.md", "guide.md", "[a](../nothing.md)", "[a](../nothing.md)"),  # mkdocs --strict refuses it
    ],
)
def test_links_lead_to_pages_and_other_files_are_named(here: str, uri: str, text: str, expected: str) -> None:
    assert hooks.linked(text, here, uri) == expected


def test_every_verb_has_a_section_with_its_flags() -> None:
    text = commands.page()
    sections = dict(re.findall(r"^## siafu (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    assert list(sections) == list(VERBS)
    assert "<code>--parts P</code>" in sections["train"]
    assert all(re.search(r"^\| (flag|argument) \| \|$", section, re.MULTILINE) for section in sections.values())


def test_markup_in_help_is_shown_as_it_is() -> None:
    assert commands._text("auto|cpu: *all* <x>\n  _B") == "auto&#124;cpu: \\*all\\* &lt;x> \\_B"


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    named = re.findall(r"^::: \S+\.(\w+)$", hooks.api(), re.MULTILINE)
    assert named == [name for name in siafu.__all__ if name != "__version__"]


@pytest.mark.long
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings", reason="needs the extra dev")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 60
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//")
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    api = (tmp_path / "site" / "api.html").read_text()
    assert "probabilities or logits" in api, "the comment behind a field of siafu.Predictions"
    assert {page.name: found for page in pages if (found := markup_left(page.read_text()))} == {}


def test_lists_and_tables_of_every_page_are_markup_to_the_site() -> None:
    """As the build above checks it, in a second: what Markdown needs and code hosts do not."""
    markdown = pytest.importorskip("markdown", reason="needs the extra dev")
    extensions = ["admonition", "attr_list", "tables", "sane_lists", "pymdownx.superfences"]
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert len(pages) > 60
    left = {str(page): markup_left(markdown.markdown(page.read_text(), extensions=extensions)) for page in pages}
    assert {page: found for page, found in left.items() if found} == {}


def markup_left(page: str) -> list[str]:
    """Paragraphs and cells that show Markdown instead of what it stands for: a list without an empty line before it,
    a cell with a bar, a command below a list that is indented like the list's text."""
    article = page.split("<article", 1)[-1].split("</article>")[0]
    article = re.sub(r"<(code|pre)\b.*?</\1>", "", article, flags=re.DOTALL)
    texts = [found[1] for found in re.findall(r"<(p|td|li)>(.*?)</\1>", article, re.DOTALL)]
    return [
        text
        for text in texts
        if re.search(r"(^|\n|<p>)\s*([-*] |\d+\. |\||```|#+ |python -m |pip install |[A-Z_]+=)|\]\(|\*\*|``", text)
    ]


def test_markup_that_is_left_is_found() -> None:
    assert markup_left("<article><p>So:\n1. one</p><p>fine</p><td>a ](b)</td></article>") == ["So:\n1. one", "a ](b)"]
    assert markup_left("<article><li><p>python -m a</p></li></article>") == ["<p>python -m a</p>"]
