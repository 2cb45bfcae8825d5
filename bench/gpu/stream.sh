#!/bin/bash
# ResNet-50 compiled for any batch, bf16, 500 and more calls of 1 to 64 images: the slowest beside others of their batch.
# ../torch_stream.py has the parts.
#
#   stream.sh BINARIES OUT [--deadline SECONDS] [MORE OF torch_stream.py]
#
# 90 seconds are enough.
. "$(dirname "$0")/setup.sh"
# shellcheck disable=SC2086
within "$(left 2)" stream.log "$python" "$root/bench/torch_stream.py" --seconds $(($(left 12) < 75 ? $(left 12) : 75)) "$@" ${MORE:-}
grep -vE '^W[0-9]' "$out/stream.log" | tail -12 | cut -c1-300
exit "$code"
