#!/usr/bin/env bash
# What one GPU does and whether it is right, in parts of at most 9 minutes: for cards that are lent for minutes.
#
#     benchmarks/gpu.sh [DIR [PART...]]      DIR: where results go, one JSON a part (gpu-results)
#                                            PART: tests kernels methods epochs servers (all, in this order)
#
# A python with siafu's dependencies and torch: PYTHON=..., else .venv/bin/python. Without a card it tries the program out
# on the CPU, with small graphs: no figure of that means anything. Exit code 1 if a part fails or takes too long; the
# others run all the same.
set -uo pipefail
cd "$(dirname "$0")/.."

out=${1:-gpu-results}
shift || true
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(tests kernels methods epochs servers)
python=${PYTHON:-.venv/bin/python}
part_s=540

if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2> /dev/null; then
  nvidia-smi -L
  flags=(--device cuda --epochs 10 --graphs 'synthetic:reddit-small?scale=0.25' 'synthetic:ogbn-products?scale=0.2')
else
  echo "no GPU here: a dry run on the CPU"
  flags=(--device cpu --epochs 2 --graphs digits --small digits)
fi

mkdir -p "$out"
failed=()
for part in "${parts[@]}"; do
  begun=$SECONDS
  timeout --kill-after=10 "$part_s" "$python" -m benchmarks.acceptance.baselines.gpu \
    --only "$part" "${flags[@]}" --json "$out/$part.json" 2>&1 | tee "$out/$part.log"
  code=${PIPESTATUS[0]}
  [ "$code" -eq 0 ] || failed+=("$part (exit code $code)")
  echo "$part: exit code $code after $((SECONDS - begun)) s"
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}; logs in $out"
  exit 1
fi
