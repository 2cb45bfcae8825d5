#!/bin/bash
# ResNet-50 compiled for any batch, bf16, 500 and more calls of 1 to 64 images: the slowest beside others of their batch, and
# each batch's median beside inductor's in a stream of its own before. ../torch_stream.py has the parts.
#
#   stream.sh BINARIES OUT [--deadline SECONDS] [MORE OF torch_stream.py]
#
# 200 seconds are enough; with less than 150 inductor's stream is left out. A graph that is compiled again says why.
. "$(dirname "$0")/setup.sh"
stream() {  # LOG SECONDS ARGUMENTS...: of a backend
  local log=$1 seconds=$2
  shift 2
  # shellcheck disable=SC2086
  TORCH_LOGS=recompiles within "$(left 2)" "$log" "$python" "$root/bench/torch_stream.py" --seconds "$seconds" "$@" ${MORE:-}
  grep __recompiles "$out/$log" | sed 's/.*__recompiles\] *//' | head -4 | cut -c1-160
  grep -vE '^[VWI][0-9]' "$out/$log" | tail -14 | cut -c1-300
}
if [ "$(left)" -ge 150 ]; then
  stream inductor.log 55 --backend inductor --minute 40 --write "$out/inductor.json" "$@"
  code=0  # a peer may have late calls
fi
stream stream.log $(($(left 12) < 75 ? $(left 12) : 75)) --beside "$out/inductor.json" "$@"
convtune cache | tail -4 | cut -c1-200
exit "$code"
