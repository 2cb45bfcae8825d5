#!/bin/bash
# Whole steps of training, bf16 autocast, SGD: eager and compiled in both layouts beside backend="convtune" and
# convtune.optimize(train=). ../torch_training.py has the parts.
#
#   training.sh BINARIES OUT [--deadline SECONDS] [MODEL:BATCH...]
#
# By default ConvNeXt-T and a 3-D U-Net; resnet50:256 and efficientnet_v2_s:64, too. The first is finished first.
. "$(dirname "$0")/setup.sh"
models=${*:-convnext_tiny:256 unet3d:2}
rm -f "$out/training.json"
# shellcheck disable=SC2086
within "$(left 5)" training.log "$python" "$root/bench/torch_training.py" --models $models --deadline "$(left 20)" \
  --seconds "${SECONDS_EACH:-15}" --json "$out/training.json" ${MORE:-}
told training "$out/training.json" training.log
exit "$code"
