"""A paper's figure: accuracy by epoch with and without asynchrony (Dorylus, OSDI'21, figure 5), on a small graph.

    python paper_figure.py [GRAPH]        writes paper_figure.svg if matplotlib is installed

pipe waits for every row. s=0 and s=1 never wait for rows, as in the paper, and with s=1 any interval may be one epoch
ahead of the slowest. siafu's defaults for async are stricter (docs/concepts/staleness.md).
"""

import sys

import siafu

VARIANTS = {
    "pipe": {"mode": "pipe"},
    "s=0": {"mode": "async", "staleness": 0, "settings": {"train.freshness": 0.0}},
    "s=1": {"mode": "async", "staleness": 1, "settings": {"train.freshness": 0.0, "train.ahead": 1.0}},
}
source = sys.argv[1] if len(sys.argv) > 1 else "digits"

curves = {}
for name, settings in VARIANTS.items():
    run = siafu.train(source, parts=2, epochs=80, hidden=16, intervals=4, eval_every=1, **settings)
    curves[name] = [record["test"]["acc"] for record in run.metrics() if record["event"] == "evaluation"]
    bar = 0.95 * max(curves["pipe"])
    reached = next((epoch for epoch, score in enumerate(curves[name], 1) if score >= bar), None)
    print(f"{name:5} best test accuracy {max(curves[name]):.3f}; {bar:.3f} is reached in epoch {reached}")

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError:
    sys.exit("paper_figure.py draws with matplotlib: pip install matplotlib")

figure = Figure(figsize=(6, 3.5), layout="constrained")
axes = figure.subplots()
for name, scores in curves.items():
    axes.plot(range(1, len(scores) + 1), scores, label=name)
axes.set_xlabel("epoch")
axes.set_ylabel("test accuracy")
axes.legend()
figure.savefig("paper_figure.svg")
print("drawn in paper_figure.svg")
