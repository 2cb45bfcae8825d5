#!/bin/bash
# A ResNet on digits and a 3-D U-Net on spheres, five seeds by PyTorch's gradients and by convtune's. ../torch_convergence.py has the parts.
#
#   convergence.sh BINARIES OUT [--deadline SECONDS] [MORE OF torch_convergence.py]
#
# Needs scikit-learn, installed or as wheels on PYTHONPATH.
. "$(dirname "$0")/setup.sh"
# shellcheck disable=SC2086
within "$(left 5)" convergence.log "$python" "$root/bench/torch_convergence.py" --deadline "$(left 15)" --json "$out/convergence.json" "$@" ${MORE:-}
if grep -qE 'spread|no gradient|no time|^  (PyTorch|convtune)|Error' "$out/convergence.log"; then
  grep -E 'spread|no gradient|no time|^  (PyTorch|convtune)|Error' "$out/convergence.log" | cut -c1-300
else
  tail -5 "$out/convergence.log" | cut -c1-300
fi
exit "$code"
