#!/bin/bash
# ResNet-50 compiled for any batch, bf16, 500 and more calls of 1 to 64 images: the slowest beside others of their batch.
# ../torch_stream.py has the parts.
#
#   stream.sh BINARIES OUT [--deadline SECONDS] [MORE OF torch_stream.py]
#
# 150 seconds are enough. A graph that is compiled again says why.
. "$(dirname "$0")/setup.sh"
# shellcheck disable=SC2086
TORCH_LOGS=recompiles within "$(left 2)" stream.log "$python" "$root/bench/torch_stream.py" --seconds $(($(left 12) < 75 ? $(left 12) : 75)) "$@" ${MORE:-}
grep __recompiles "$out/stream.log" | sed 's/.*__recompiles\] *//' | head -8 | cut -c1-250
grep -vE '^[VWI][0-9]' "$out/stream.log" | tail -12 | cut -c1-300
exit "$code"
