#!/bin/bash
# Whole steps of training, bf16 autocast, SGD: eager and compiled in both layouts beside backend="convtune". ../torch_training.py has the parts.
#
#   training.sh BINARIES OUT [--deadline SECONDS] [MODEL:BATCH[:WAY+WAY...]...]
#
# By default ConvNeXt-T and a 3-D U-Net; resnet50:256, efficientnet_v2_s:64, yolo11m:16 (ultralytics) and sd_unet:4 (diffusers), too. The
# first is finished first. WAYS="ours ours_compiled ..." measures others than the five here. What is not ready when steps must be
# timed, 40 s or more before the deadline, is left out, and the table has the rest.
. "$(dirname "$0")/setup.sh"
models=${*:-convnext_tiny:256 unet3d:2}
rm -f "$out/training.json"
# shellcheck disable=SC2086
within "$(left 5)" training.log "$python" "$root/bench/torch_training.py" --models $models \
  --ways ${WAYS:-eager eager_first compiled backend compiled_first} --deadline "$(left 20)" \
  --seconds "${SECONDS_EACH:-15}" --json "$out/training.json" ${MORE:-}
told training "$out/training.json" training.log
if [ "$code" -ne 0 ]; then grep -E '^stage|Error|no time left' "$out/training.log" | tail -"${STAGES:-16}" | cut -c1-200; fi  # how far each came
exit "$code"
