#!/bin/bash
# First calls of compiled models beside inductor's: with nothing known, with what contests decided before, in a second process; and what is
# gained afterwards. ../torch_first_calls.py has the parts.
#
#   first_calls.sh BINARIES OUT [--deadline SECONDS] [MODELS]
#
# MODELS: resnet50,mobilenet_v3_large,yolo11s,hrnet_w18,densenet121 by default (timm and ultralytics for two of them); each is
# finished before the next is begun.
. "$(dirname "$0")/setup.sh"
rm -f "$out/first_calls.json"
# shellcheck disable=SC2086
within "$(left 5)" first_calls.log "$python" "$root/bench/torch_first_calls.py" --deadline "$(left 15)" --json "$out/first_calls.json" \
  ${1:+--models "$1"} ${MORE:-}
told first "$out/first_calls.json" first_calls.log
exit "$code"
