"""matplotlib figures as SVG that follows the colours of the page it stands in: light, dark, or print.

Figures are drawn in the colours of the light page. Each colour is then replaced by a CSS variable, which the page (or
the file itself, for a single figure) sets for light and dark. Text stays text. Equal figures give equal bytes.
"""

from __future__ import annotations

import io
import re
import textwrap
from html import escape
from typing import Any

from matplotlib import rc_context, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: CSS variable -> colour on a light page, on a dark one. The series are of Okabe and Ito (2008), safe for the
#: colour-blind; their yellow and black do without a white and a dark page. On dark they are lighter.
COLOURS = {
    "paper": ("#ffffff", "#15181c"),
    "ink": ("#1c1e21", "#e4e6e9"),
    "quiet": ("#5f6670", "#a3abb5"),
    "faint": ("#d5d9de", "#3a4048"),
    "wash": ("#f4f6f8", "#1d2126"),
    "tint": ("#cfe6f7", "#1d4a68"),  # that ink is written on
    "series0": ("#0072b2", "#4fb0ea"),
    "series1": ("#d55e00", "#ff8a3d"),
    "series2": ("#009e73", "#2fc99b"),
    "series3": ("#cc79a7", "#e79bc4"),
    "series4": ("#e69f00", "#f2b632"),
    "series5": ("#56b4e9", "#9ad6f7"),
    "series6": ("#7a5195", "#b58fd0"),
}
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
SERIES = [colour for name, colour in LIGHT.items() if name.startswith("series")]
#: What tells series apart without their colours.
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "\\\\\\", "xxx", "---", "|||", "+++")  # lines alone: dots make large files

_STYLE = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "siafu",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": LIGHT["ink"],
    "axes.edgecolor": LIGHT["quiet"],
    "axes.labelcolor": LIGHT["ink"],
    "xtick.color": LIGHT["quiet"],
    "ytick.color": LIGHT["quiet"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "grid.color": LIGHT["faint"],
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
WIDTH_IN = 6.4
#: Of names: letters in a line of a legend, and what a line takes.
LEGEND_LETTERS, LINE_IN = 42, 0.16


def style() -> Any:
    """The context to draw in: our style, whatever the user's matplotlibrc says."""
    return rc_context({**rcParamsDefault, "backend": "agg", **_STYLE})  # type: ignore[dict-item]


def figure(height_in: float) -> Figure:
    """An empty figure, without pyplot, which would keep it. Call it within ``style``."""
    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def folded(name: str, width: int) -> str:
    """A long name, folded into several lines."""
    return "\n".join(textwrap.wrap(name, width, break_on_hyphens=False)) or name


def legend(drawn: Figure, axes: Axes) -> None:
    """Adds a legend of the axes' labels above the figure, which grows by the legend's height."""
    handles, names = axes.get_legend_handles_labels()
    labels = [folded(name, LEGEND_LETTERS) for name in names]
    columns = 3 if max(map(len, labels)) < 28 else 2
    lines = sum(label.count("\n") + 1 for label in labels) / columns
    drawn.set_figheight(drawn.get_figheight() + LINE_IN * max(0.0, lines - 2))
    drawn.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=8, handlelength=2.6)


def svg(drawn: Figure, name: str, title: str) -> str:
    """The figure as SVG for a page with others: its ids begin with ``name``. Call it within ``style``."""
    file = io.StringIO()
    drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    for variable, colour in LIGHT.items():
        text = re.sub(rf'\b(fill|stroke)="{colour}"', rf'style="\1: var(--{variable})"', text)
        text = text.replace(colour, f"var(--{variable})")
    text = re.sub(r'(<svg[^>]*?) width="[\d.]+pt"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', r"\1", text, count=1)
    label = f'<svg role="img" aria-label="{escape(title)}"'
    return re.sub(r"\s*\n\s*", "\n", text.replace("<svg", label, 1)).strip()


def alone(text: str) -> str:
    """The SVG as a file of its own, with its own colours."""
    start = text.index(">") + 1
    return f"{text[:start]}<style>{css('svg')}</style>{text[start:]}\n"


def css(root: str = ":root") -> str:
    """The colour variables; light on paper."""
    light = "".join(f"--{name}: {light};" for name, (light, _) in COLOURS.items())
    dark = "".join(f"--{name}: {dark};" for name, (_, dark) in COLOURS.items())
    return f"{root} {{{light}}} @media screen and (prefers-color-scheme: dark) {{{root} {{{dark}}}}}"
