#!/bin/bash
# KernelBench's 35 convolutions of level 1, by convtune.nn and by exported files, beside eager and torch.compile: tuned, exported,
# built, checked and timed on the GPU that is here. ../kernelbench has the parts.
#
#   kernelbench.sh BINARIES OUT [--deadline SECONDS] KERNELBENCH [ROWS]
#
# KERNELBENCH: a checkout of the benchmark (its KernelBench/level1 and src). Needs nvcc. The rows go in the order in which they
# are given; 70 to 87 first by default, and each is finished before the next is begun: a late end leaves out whole rows.
. "$(dirname "$0")/setup.sh"
if [ -z "${1:-}" ]; then echo "kernelbench.sh: which checkout of KernelBench?" >&2; exit 2; fi
benchmark=$1
shift
rows=${*:-$(seq 70 87) 50 $(seq 54 69)}
seconds=${TUNE:-4}  # spent on the search for each convolution

rm -f "$out/kernelbench.json"
# shellcheck disable=SC2086
within "$(left 10)" kernelbench.log "$python" "$root/bench/kernelbench/modules.py" $rows --kernelbench "$benchmark" \
  --tune "$seconds" --export "$out/files" --deadline "$(left 25)" --json "$out/kernelbench.json"
if grep -q '^row prec' "$out/kernelbench.log"; then
  grep -A 60 '^row prec' "$out/kernelbench.log" | cut -c1-200 | head -c 7500
else
  tail -5 "$out/kernelbench.log" | cut -c1-300
fi
exit "$code"
