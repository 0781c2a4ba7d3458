"""Cost plan: predicts time and cost of training on a graph of a million vertices, before you rent anything.

    python plan_cost.py [flags of siafu plan]

Needs no AWS account: siafu contains prices, with their dates.
"""

import json
import subprocess
import sys

GRAPH = ["--vertices", "1M", "--edges", "20M", "--features", "100", "--classes", "10", "--hidden", "64"]
command = [sys.executable, "-m", "siafu", "plan", *(sys.argv[1:] or GRAPH), "--json"]
plan = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)

print("No option is both faster and cheaper than one of these:")
best = sorted((plan["options"][index] for index in plan["pareto"]), key=lambda option: option["seconds"])
for option in best:
    what = f"{option['name']} on {option['servers'] or 1} x {option['instance']}"
    low, high = option["seconds_range"]
    print(f"  {what:42} {option['seconds']:7.0f} s ({low:.0f} to {high:.0f})   ${option['usd']:.4f}")

print("\nSo:", plan["finding"][0])
print("\nThis holds if:")
for assumption in plan["assumptions"][:5]:
    print("  -", assumption)
