#!/bin/bash
# Whole steps of training, bf16 autocast, SGD: eager and compiled in both layouts beside convtune.optimize(train=) and
# backend="convtune". ../torch_training.py has the parts.
#
#   training.sh BINARIES OUT [--deadline SECONDS] [MODEL:BATCH...]
#
# By default ConvNeXt-T, ResNet-50, EfficientNetV2-S and a 3-D U-Net. PyTorch's ways are compiled first, four at a time.
. "$(dirname "$0")/setup.sh"
models=${*:-convnext_tiny:256 unet3d:2 resnet50:256 efficientnet_v2_s:64}
count=$(echo "$models" | wc -w)
each=$(($(left 20) / (count + 2)))  # the first share is the compiler's
# shellcheck disable=SC2086
within "$(left 5)" training.log "$python" "$root/bench/torch_training.py" --models $models --warm 4 --limit "$each" \
  --seconds "${SECONDS_EACH:-12}" --json "$out/training.json" ${MORE:-}
"$python" "$root/bench/gpu/told.py" training "$out/training.json" || tail -5 "$out/training.log" | cut -c1-300
