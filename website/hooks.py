"""Hooks of mkdocs (mkdocs.yml): pages made of other files, and links to files that are no pages.

1. README.md and other pages that are not in docs/ (``ELSEWHERE``) become pages; README.md is the first.
2. Two pages are made of code: the commands, and the Python API.
3. The pages of docs/ link to each other and to files of the repository, as a code host shows them. A link to a page
   leads there; one to another file of the repository becomes its name, because no address of the repository is known.
   Any other link stays, and mkdocs --strict refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import siafu
from website import commands

ROOT = Path(__file__).parent.parent
#: File of the repository -> page.
ELSEWHERE = {
    "README.md": "index.md",
    "examples/README.md": "examples.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
API = """# Python

What `import siafu` gives. [Your own data](data.md#from-python) and [the user's guide](guide.md) have examples.
"""


def on_files(files: Any, config: Any) -> Any:
    """mkdocs' event: the generated pages join those of docs/."""
    from mkdocs.structure.files import File  # where mkdocs calls this it is installed

    made = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ELSEWHERE.items()}
    made |= {"commands.md": commands.page(), "api.md": api()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs' event: a page's links, where they lead on the site."""
    made = {page: name for name, page in ELSEWHERE.items()}
    uri = str(page.file.src_uri)
    if page.parent is None:  # alone in its section: there is nothing to list beside it
        page.meta["hide"] = ["navigation"]
    return linked(markdown, made.get(uri, f"docs/{uri}"), uri)


def linked(markdown: str, here: str, uri: str) -> str:
    """The text of a file of the repository (``here``) as the page ``uri`` of the site."""

    def led(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        path, hash_sign, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        page = there.removeprefix("docs/") if there.startswith("docs/") else ELSEWHERE.get(there, "")
        if page:
            return f"[{text}]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{hash_sign}{anchor})"
        if (ROOT / there).exists():
            return text if "`" in text else f"`{there}`" if text in (there, path) else f"{text} (`{there}`)"
        return found[0]

    return re.sub(r"\[([^\]\n]*)\]\(([^)\s]+)\)", led, markdown)


def api() -> str:
    """Markdown for mkdocstrings: every public name."""
    names = [f"::: {getattr(siafu, name).__module__}.{name}\n" for name in siafu.__all__ if name != "__version__"]
    return "\n".join([API, *names])
