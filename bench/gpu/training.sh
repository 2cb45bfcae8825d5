#!/bin/bash
# Whole steps of training, bf16 autocast, SGD: eager and compiled in both layouts beside convtune.optimize(train=) and
# backend="convtune". ../torch_training.py has the parts.
#
#   training.sh BINARIES OUT [--deadline SECONDS] [MODEL:BATCH...]
#
# By default ConvNeXt-T, a 3-D U-Net, ResNet-50 and EfficientNetV2-S. PyTorch's ways are compiled first, four at a time.
. "$(dirname "$0")/setup.sh"
models=${*:-convnext_tiny:256 unet3d:2 resnet50:256 efficientnet_v2_s:64}
rm -f "$out/training.json"
# shellcheck disable=SC2086
within "$(left 5)" training.log "$python" "$root/bench/torch_training.py" --models $models --warm 4 --deadline "$(left 20)" \
  --seconds "${SECONDS_EACH:-12}" --json "$out/training.json" ${MORE:-}
told training "$out/training.json" training.log
exit "$code"
