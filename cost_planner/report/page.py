"""The text and tables of a report, and its two files: a page of HTML that holds its figures, and Markdown with
figures beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from statistics import median

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from cost_planner.plan import check
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.check import Quantity
from cost_planner.report import drawing, series
from cost_planner.report.compared import Compared
from cost_planner.report.figures import Drawn
from cost_planner.report.reading import Run
from cost_planner.value.table import COLUMNS, REST
from siafu import __version__, peak_memory
from siafu.errors import ConfigError, GnnError, counted
from siafu.pricing import prices
from siafu.progress import dollars, duration, share_of_evaluation, size, written
from siafu.run_files import Manifest, write_whole


@dataclass(frozen=True)
class Table:
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def write(
    found: Compared, made: Sequence[Drawn], left_out: Mapping[str, str], calibration: Calibration, html: Path
) -> list[Path]:
    """Writes the page, Markdown of the same name, and the figures' folder, and returns their paths. ConfigError if they
    cannot be written."""
    folder, finding = html.with_name(f"{html.stem}-figures"), found.judged["finding"]
    said = {
        "title": _title(found),
        "facts": _facts(found),
        "finding": finding["text"] if len(found.groups) > 1 else "",
        "notices": finding["but"],
        "summary": _summary(found),
        "runs": _runs(found),
        "predicted": _predicted(found, calibration),
        "calibration": f"{calibration.machine}, measured on {calibration.measured}, error {calibration.error:.0%}",
        "figures": made,
        "left_out": left_out,
        "folder": folder.name,
        "version": __version__,
    }
    pages = Environment(
        loader=FunctionLoader(_template),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=select_autoescape(["html"]),
        keep_trailing_newline=True,
    )
    pages.filters |= {"md": _markdown, "safe_svg": Markup}
    texts = {
        html: pages.get_template("report.html").render(said, css=Markup(drawing.css())),  # noqa: S704 (ours, no word of a run in it)
        html.with_suffix(".md"): pages.get_template("report.md").render(said),
        **{folder / f"{one.name}.svg": drawing.alone(one.svg) for one in made},
    }
    try:
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text.encode())
    except OSError as error:
        raise ConfigError(f"--out {html}: {error.strerror}") from None
    return list(texts)


def _template(name: str) -> str:
    return files("cost_planner.report").joinpath(f"{name}.j2").read_text(encoding="utf-8")


def _markdown(text: str) -> str:
    """The text with Markdown's special characters escaped, those of tables too."""
    return re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", escape(text, quote=False)).replace("\n", " ")


def _title(found: Compared) -> str:
    config = found.runs[0].config
    models = dict.fromkeys(run.config.model.name for run in found.runs)
    return f"{Path(config.data.source).name or config.data.source}, {', '.join(models)}"


def _facts(found: Compared) -> list[tuple[str, str]]:
    """The graph, models, settings and machines that were compared."""
    configs, manifests = [run.config for run in found.runs], [run.manifest for run in found.runs]
    facts = [("graph", configs[0].data.source)]
    graph = next((one["graph"] for one in manifests if "graph" in one), None)
    if graph is not None:
        counts = (
            f"{graph['vertices']:,} vertices, {graph['edges']:,} edges, {graph['features']:,} features, "
            f"{graph['classes']:,} classes"
        )
        facts[0] = ("graph", f"{configs[0].data.source}: {counts}")
    models = dict.fromkeys(
        f"{one.model.name}, {one.model.layers} layers, {', '.join(map(str, one.model.hidden))} hidden"
        for one in configs
    )
    judged = found.judged
    facts += [
        ("model", "; ".join(models)),
        (
            "compared",
            f"{len(found.groups)} contenders, {len(found.runs)} runs" if len(found.runs) > 1 else found.runs[0].name,
        ),
        ("target", f"{found.score} of {judged['target']:.4g}"),
        ("siafu", ", ".join(sorted({str(one.get("siafu", "unknown")) for one in manifests}))),
        ("run on", "; ".join(judged["machines"])),
        ("trained", _dates(manifests)),
    ]
    bills = [row["cost"] for row in judged["rows"] if row["cost"]]
    if bills:
        as_of = min(bill["as_of"] for bill in bills)
        facts.append(("prices", f"{bills[0]['region']}, {as_of}{prices.age(as_of, date.today())}"))
    return [(name, text) for name, text in facts if text]


def _dates(manifests: Sequence[Manifest]) -> str:
    days = sorted({str(one["started"])[:10] for one in manifests if "started" in one})
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


def _summary(found: Compared) -> Table:
    """A table of the contenders, the highest value first."""
    rows = found.rows
    paid = [row["cost"]["parts"] if row["cost"] else {} for row in rows]
    named = {part for parts in COLUMNS.values() for part in parts}
    columns = {**COLUMNS, REST: tuple(dict.fromkeys(part for one in paid for part in one if part not in named))}
    columns = {name: parts for name, parts in columns.items() if any(one.get(part) for one in paid for part in parts)}
    split = found.judged["split"]
    heads = ["contender", "value", "time", "epochs", "s/epoch", f"best {split}", "test", *columns, "dollars"]
    lines = []
    for row, parts in zip(rows, paid, strict=True):
        group = found.groups[row["name"]]
        there = f" ({row['reached']} of {row['runs']} runs)" if row["runs"] > 1 or not row["reached"] else ""
        usd = [sum(parts.get(part, 0.0) for part in wanted) for wanted in columns.values()]
        relative = row["relative_value"]
        lines.append(
            [
                row["name"] + there,
                f"{relative:.3g}" if relative is not None else "",
                f"{row['seconds']:.1f} s" if row["seconds"] is not None else "not reached",
                f"{row['epochs']:g}" if row["epochs"] is not None else "",
                f"{median(series.epoch_s(run) for run in group):.3g}",
                written(row["best"]),
                _test(group),
                *(dollars(amount) if amount else "" for amount in usd),
                dollars(row["cost"]["usd"]) if row["cost"] else "",
            ]
        )
    return Table(heads, lines)


def _test(group: Sequence[Run]) -> str:
    """The median test score, at the best epoch by validation."""
    scores = [run.result.get("test_acc") for run in group if run.result]
    known = [score for score in scores if score is not None]
    return written(median(known) if known else None)


def _runs(found: Compared) -> Table:
    shares = [share_of_evaluation(run.result.get("lanes") if run.result else None) for run in found.runs]
    told = any(shares)  # else they are baselines', under way, or of older versions
    rows = [
        [run.name, str(run.config.train.seed), _ended(run), *([share] if told else []), run.contender.where]
        for run, share in zip(found.runs, shares, strict=True)
    ]
    return Table(["contender", "seed", "ended", *(["evaluation"] if told else []), "directory"], rows)


def _predicted(found: Compared, calibration: Calibration) -> Table:
    """The prediction of ``siafu plan --check`` for each contender: the runs' median epoch, and the largest memory of
    any run."""
    rows = []
    for run in found.firsts:
        try:
            quantities = check.of_run(Path(run.contender.where), calibration).quantities
        except GnnError:  # not finished, a baseline, elsewhere than a plan is for; or its shards are gone
            continue
        again = [one.result for one in found.groups[run.name] if one.result]
        epoch = Quantity(quantities["epoch_s"].predicted, median(one["epoch_seconds_median"] for one in again))
        held = [one.get("usage", {}).get(peak_memory.NAME) for one in again]
        memory = Quantity(quantities["memory_bytes"].predicted, max((one for one in held if one), default=None))
        rows.append([run.name, *_beside(epoch, duration), *_beside(memory, size)])
    ratio = "predicted / measured"
    heads = ("an epoch", "predicted", ratio, "memory of a graph server", "predicted", ratio)
    return Table(["contender", *heads], rows)


def _beside(one: Quantity, text: Callable[[float], str]) -> list[str]:
    """Measured, predicted, and their ratio, in words."""
    known = [text(value) if value is not None else "" for value in (one.measured, one.predicted)]
    return [*known, f"{one.ratio:.2f}" if one.ratio is not None else ""]


def _ended(run: Run) -> str:
    """How a run ended; without a result, "not finished": it still runs, or failed."""
    epochs = counted(len(run.epochs), "epoch")
    stopped = run.result.get("stopped", "") if run.result else ""
    return f"{epochs}, {'not finished' if not stopped else 'all' if stopped == 'epochs' else f'stopped by {stopped}'}"
