#!/bin/bash
# Rows of several suites in one search beside cuDNN, told a line a cell (../suites.py has the tables); for gradients then calls beside
# PyTorch's, free to choose and deterministic, and the bits of 20 runs and of a second process.
#
#   suites.sh BINARIES OUT [--deadline SECONDS] [TABLE...]
#
# By default `gradients`, 115 rows; `gradients_nchw` (its last two cells), `transposed` (39), `audio` (70), too. Rows are searched in the order of importance, and what has no
# time is left out. BUDGET=2s a row, else what the deadline leaves, 0.8 to 2.2 s. FEW=2 DEVICE=cpu tries it where no GPU is.
. "$(dirname "$0")/setup.sh"
"$python" "$root/bench/suites.py" "$out" ${*:-gradients} --few "${FEW:-0}" || exit 2
rows=$(cat "$out"/rows_*.txt | grep -c .)
device=${DEVICE:-cuda}
reserve=10
rm -f "$out"/tuned_*.json "$out"/calls.json "$out"/second.json "$out"/said.txt
if [ -e "$out/calls.txt" ]; then reserve=$((deadline > 280 ? 90 : deadline * 3 / 10)); fi
budget=${BUDGET:-$(awk -v s="$(left "$reserve")" -v r="$rows" 'BEGIN { b = s / r - 0.7; print int(1000 * (b > 2.2 ? 2.2 : b < 0.8 ? 0.8 : b)) "ms" }')}
for list in $(find "$out" -name 'rows_*.txt' | sort -V); do  # a process each: what ends one leaves the others
  number=$(basename "${list#"$out"/rows_}" .txt)
  within "$(left "$reserve")" "tune_$number.log" convtune tune --suite "$list" --budget "$budget" --retune --device "$device" --json "$out/tuned_$number.json" >> "$out/said.txt"
done
if [ -e "$out/calls.txt" ]; then
  called=("$python" "$root/bench/torch_gradients.py" --lines "$out/calls.txt" --device "$device")
  time=$(($(left 5) * 7 / 10))
  within "$time" calls.log "${called[@]}" --bits 20 --seconds 0.05 --deadline $((time - 10)) --json "$out/calls.json"
  within "$(left 3)" second.log "${called[@]}" --ours --bits 1 --seconds 0 --deadline "$(left 8)" --json "$out/second.json" --against "$out/calls.json"
fi
echo "$budget a row; $(grep -v 'status 0' "$out/said.txt" | cut -c1-60 | tr '\n' ' ')"
told suites "$out" tune_0.log
exit "$code"
