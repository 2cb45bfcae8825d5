#!/bin/bash
# Gradients of a list of problems: tuned beside every engine of cuDNN that gives the same bits, then beside PyTorch's, free to choose and
# with torch.backends.cudnn.deterministic; and the bits of 20 runs, half beside other work, and of a second process.
# ../torch_gradients.py has the parts.
#
#   gradients.sh BINARIES OUT [--deadline SECONDS] [FILE OF PROBLEMS...]
#
# By default the suites training and training3d, for which 540 s are enough on 14 processors. BUDGET=3s a problem.
. "$(dirname "$0")/setup.sh"
[ $# -gt 0 ] || set -- "$root/cases/training.txt" "$root/cases/training3d.txt"
grep -hv '^#' "$@" | grep . > "$out/problems.txt"
within "$(($(left) * 55 / 100))" tune.log convtune tune --suite "$out/problems.txt" --budget "${BUDGET:-3s}" --retune --json "$out/tuned.json"
compared=("$python" "$root/bench/torch_gradients.py" --lines "$out/problems.txt" --bits 20)
within "$(($(left) * 60 / 100))" gradients.log "${compared[@]}" --seconds 0.2 --deadline "$(($(left) * 55 / 100))" --json "$out/gradients.json"
within "$(left 5)" second.log "${compared[@]}" --seconds 0.001 --deadline "$(left 15)" --json "$out/second.json" --against "$out/gradients.json"
tail -3 "$out/tune.log" | cut -c1-200
grep -hE '^(fwd|bwd)|left out|differ|Error' "$out/gradients.log" "$out/second.log" | cut -c1-200 | tail -16
exit "$code"
