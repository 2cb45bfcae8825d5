#!/bin/bash
# Decoders of video (diffusers', random weights): eager, compiled, convtune.optimize and backend="convtune", in both layouts, with
# answers, peak memory and what copies take. ../torch_models.py has the parts.
#
#   decodes.sh BINARIES OUT [--deadline SECONDS] [MODELS] [MORE OF torch_models.py]
#
# MODELS: wan,hunyuan,ltx by default. Needs diffusers, installed or as wheels on PYTHONPATH.
. "$(dirname "$0")/setup.sh"
models=${1:-wan,hunyuan,ltx}
[ $# -gt 0 ] && shift
within "$(left 5)" decodes.log "$python" "$root/bench/torch_models.py" --models "$models" \
  --ways eager,eager_nchw,compile,compile_nchw,optimize,convtune,convtune_nchw --together --at-once --no-whole \
  --calls 3 --rounds 2 --top 40 --json "$out/decodes" --deadline "$(left 25)" "$@"
"$python" "$root/bench/gpu/told.py" models "$out/decodes" || tail -5 "$out/decodes.log" | cut -c1-300
