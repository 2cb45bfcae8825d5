#!/bin/bash
# First calls of compiled models beside inductor's, cold and in a second process, and what is gained afterwards.
# ../torch_first_calls.py has the parts.
#
#   first_calls.sh BINARIES OUT [--deadline SECONDS] [MODELS]
#
# MODELS: resnet18,hrnet_w18,yolo11s,densenet121 by default (timm and ultralytics for two of them).
. "$(dirname "$0")/setup.sh"
# shellcheck disable=SC2086
within "$(left 5)" first_calls.log "$python" "$root/bench/torch_first_calls.py" --models "${1:-resnet18,hrnet_w18,yolo11s,densenet121}" \
  --deadline "$(left 15)" --json "$out/first_calls.json" ${MORE:-}
"$python" "$root/bench/gpu/told.py" first "$out/first_calls.json" || tail -5 "$out/first_calls.log" | cut -c1-300
