#!/bin/bash
# Random problems on a GPU against the double-precision oracle: lists of `convtune verify --random`, one on each processor.
#
#   random.sh BINARIES OUT [--deadline SECONDS] [FIRST_SEED [LISTS [PROBLEMS [MORE OF verify]]]]
#
# By default seeds 7301 to 7314 and 1,500 problems each, which take 320 s on 14 processors of an H200's machine; `--depth` behind them asks
# for three dimensions alone. Two lists on one processor wait for each other's kernels. What the deadline ends says how far it came, and
# counts as a failure; DEVICE=cpu tries it where no GPU is. GPU times that are taken meanwhile are not to be trusted.
. "$(dirname "$0")/setup.sh"
first=${1:-7301} lists=${2:-14} problems=${3:-1500}
shift $(($# < 3 ? $# : 3))
mapfile -t processors < <("$python" -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
pids=()
for ((i = 0; i < lists; ++i)); do
  seed=$((first + i))
  CONVTUNE_CACHE_DIR=$state/cache$i taskset -c "${processors[i % ${#processors[@]}]}" timeout -s INT -k 15 "$(left 20)" \
    convtune verify --device "${DEVICE:-cuda:0}" --random "$problems" --seed $seed "$@" > "$out/random_$seed.txt" 2> "$out/random_$seed.err" &
  pids+=($!)
done
for ((i = 0; i < lists; ++i)); do
  own=0
  wait "${pids[i]}" || own=$?
  [ "$own" -eq 0 ] || echo "seed $((first + i)): status $own: $(tail -n 1 "$out/random_$((first + i)).err" | cut -c1-150)"
  [ "$code" -ne 0 ] || code=$own
done
grep -h -A 3 MISMATCH "$out"/random_*.txt | cut -c1-300 | head -20
tail -qn 1 "$out"/random_*.txt | awk -v asked=$((lists * problems)) '
  /problems?,/ {gsub(",", ""); done += $1; for (i = 2; i <= NF; ++i) if ($i ~ /^mismatch/) wrong += $(i - 1)}
  END {printf "%d of %d problems, %d mismatches\n", done, asked, wrong}'
exit "$code"
