#!/bin/bash
# 30 problems tuned by one GPU, by all (two or more), and by all of which one's worker is killed. ../fleet.py has the parts.
#
#   fleet.sh BINARIES OUT [--deadline SECONDS] [MORE OF fleet.py]
. "$(dirname "$0")/setup.sh"
rm -f "$out/fleet.json"
# shellcheck disable=SC2086
within "$(left 5)" fleet.log "$python" "$root/bench/fleet.py" --deadline "$(left 15)" --json "$out/fleet.json" "$@" ${MORE:-}
if grep -qE '^(one|all|killed) |^worker|^fleet|no time|failed' "$out/fleet.log"; then
  grep -E '^(one|all|killed) |^worker|^fleet|no time|failed' "$out/fleet.log" | cut -c1-300
else
  tail -5 "$out/fleet.log" | cut -c1-300
fi
exit "$code"
