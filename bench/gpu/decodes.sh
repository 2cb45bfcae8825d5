#!/bin/bash
# Decoders of video (diffusers', random weights): eager, compiled, convtune.optimize and backend="convtune", in both layouts, with
# answers, peak memory and what copies take. ../torch_models.py has the parts.
#
#   decodes.sh BINARIES OUT [--deadline SECONDS] [MODELS] [MORE OF torch_models.py]
#
# MODELS: wan,hunyuan,ltx by default, of which the first is finished first. Needs diffusers, installed or as wheels on PYTHONPATH.
. "$(dirname "$0")/setup.sh"
models=${1:-wan,hunyuan,ltx}
[ $# -gt 0 ] && shift
rm -rf "$out/decodes"
# shellcheck disable=SC2086
within "$(left 5)" decodes.log "$python" "$root/bench/torch_models.py" --models "$models" \
  --ways eager,optimize,compile,convtune_launched,convtune,eager_nchw,compile_nchw,convtune_nchw --together --no-whole \
  --calls 3 --rounds 2 --top 40 --json "$out/decodes" --deadline "$(left 25)" "$@" ${MORE:-}
told models "$out/decodes" decodes.log
exit "$code"
