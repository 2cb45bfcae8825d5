#!/bin/bash
# First calls of compiled models beside inductor's: with nothing known, with imported records alone, in a second process; and what is
# kept of the gain of a tuned model. ../torch_first_calls.py has the parts.
#
#   first_calls.sh BINARIES OUT [--deadline SECONDS] [MODELS [MORE OF torch_first_calls.py]]
#
# MODELS: hrnet_w18,yolo11s,densenet121,resnet50,mobilenet_v3_large by default (timm and ultralytics for two of them), long ones first.
. "$(dirname "$0")/setup.sh"
rm -f "$out/first_calls.json"
# shellcheck disable=SC2086
within "$(left 5)" first_calls.log "$python" "$root/bench/torch_first_calls.py" --deadline "$(left 30)" --json "$out/first_calls.json" \
  ${1:+--models "$@"} ${MORE:-}
told first "$out/first_calls.json" first_calls.log
exit "$code"
