"""Your own data: two pandas DataFrames in, predictions as a DataFrame out.

    python own_data.py

The tables are random: shops of three kinds, and sales between shops, mostly of the same kind.
"""

import sys

import numpy as np

import siafu

try:
    import pandas
except ModuleNotFoundError:
    sys.exit("own_data.py needs pandas: pip install pandas, and siafu's extra data")

KINDS = np.array(["books", "food", "tools"])


def shops_and_sales(count: int, seed: int) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, count)
    name = [f"shop{number:04}" for number in range(count)]
    shops = pandas.DataFrame({"shop": name, "size": rng.normal(kind, 1.0), "age": rng.normal(0, 1, count)})
    shops["region"] = rng.choice(["north", "south"], count)
    shops["kind"] = KINDS[kind]
    shops.loc[rng.random(count) < 0.5, "kind"] = None  # half of them have no label

    one, other = rng.integers(0, count, (2, 12 * count))
    kept = (kind[one] == kind[other]) | (rng.random(len(one)) < 0.15)
    return shops, pandas.DataFrame({"from": np.array(name)[one[kept]], "to": np.array(name)[other[kept]]})


shops, sales = shops_and_sales(600, seed=0)
graph = siafu.from_pandas(sales, shops, id="shop", label="kind", features=["*", "region:onehot"])
print(graph.num_vertices, "vertices,", len(graph.src), "edges,", graph.num_classes, "classes")

run = siafu.train(graph, epochs=60, hidden=16, dropout=0.3)
found = siafu.predict(run).to_pandas()
print(found[found["true"].isna()].head())  # predicted kinds of the unlabelled shops

more_shops, more_sales = shops_and_sales(300, seed=1)  # another graph with the same columns
new = siafu.from_pandas(more_sales, more_shops, id="shop", label="kind", features=["*", "region:onehot"])
print(f"accuracy on a graph it has not seen {siafu.evaluate(run, graph=new, split='all').scores['accuracy']:.3f}")
