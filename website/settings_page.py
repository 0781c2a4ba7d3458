"""All settings as a page, docs/settings.md: ``make pages`` writes it, and a test compares the two."""

from __future__ import annotations

from siafu.baseline import BaselineConfig
from siafu.config import settings

HEAD = """# All settings

The lines of a `config.toml`, with their defaults. `siafu train --config FILE` reads a file, `--set section.key=VALUE`
sets one line, and many settings have a flag. siafu checks all values before it starts anything. It suggests
the closest key for an unknown one, and refuses a value that would have no effect, such as `train.freshness` in `pipe`.
"""
SECTIONS = {
    "data": "The graph and its partitions.",
    "model": "The model. It refuses options that it does not have ([models.md](models.md)).",
    "train": "Training, and when it stops.",
    "servers": "Graph servers and parameter servers.",
    "lambda": "Lambda workers, with `servers.backend = lambda`.",
    "run": "The run directory, limits, checkpoints, and where servers run.",
    "cloud": "What `siafu deploy` creates ([aws.md](aws.md)), and Ray's address ([ray.md](ray.md)).",
    "baseline": "Only for `siafu baseline` ([baselines.md](baselines.md)).",
}


def page() -> str:
    """Markdown."""
    said, values = settings(BaselineConfig), BaselineConfig().to_dict()
    assert list(SECTIONS) == list(values)
    lines = [HEAD]
    for section, what in SECTIONS.items():
        lines += [f"## [{section}]", "", what, "", "| key | flag | default | |", "|---|---|---|---|"]
        for key, default in values[section].items():
            mine = said[f"{section}.{key}"]
            flag = f"`--{mine.flag.replace('_', '-')}`" if mine.flag else ""
            text = mine.text.replace("|", "\\|")
            lines.append(f"| `{key}` | {flag} | {_shown(default)} | {text} |")
        lines.append("")
    return "\n".join(lines)


def _shown(default: object) -> str:
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case tuple():
            return f"`{list(default)}`"
        case "":
            return '`""`'
        case _:
            return f"`{default}`"


if __name__ == "__main__":
    print(page(), end="")
