#!/bin/bash
# Networks that up-sample by transposed layers, and decoders of sound, random weights, bf16: PyTorch's ways (also frozen, and recorded
# as a CUDA graph by hand) beside ours (also convtune.graphed). ../torch_models.py and ../vocoders.py have the parts.
#
#   generators.sh BINARIES OUT [--deadline SECONDS] [MODELS]
#
# MODELS: dcgan,cyclegan,unet by default, of which the first is finished first; hifigan and dac, too.
. "$(dirname "$0")/setup.sh"
models=${1:-dcgan,cyclegan,unet}
sound=$(echo "$models" | tr , '\n' | grep -E '^(hifigan|dac)$')
others=$(echo "$models" | tr , '\n' | grep -vE '^(hifigan|dac)$' | paste -sd,)
each=$((deadline / 6))  # seconds for a decoder of sound
count=$(echo "$sound" | grep -c .)
rm -rf "$out/generators" "$out"/{hifigan,dac}.json

if [ -n "$others" ]; then
  limit=$(left $((10 + each * count)))
  # shellcheck disable=SC2086
  within "$limit" generators.log "$python" "$root/bench/torch_models.py" --models "$others" \
    --ways eager,graphs,convtune,recorded,graphed,frozen --together --json "$out/generators" \
    --deadline $((limit - 10)) --budget "${TUNE:-10}" ${MORE:-}
fi
for one in $sound; do
  frames=100
  [ "$one" = dac ] && frames=8
  # shellcheck disable=SC2086
  within $((each < $(left 5) ? each : $(left 5))) "$one.log" "$python" "$root/bench/vocoders.py" --model "$one" --frames "$frames" \
    --dtype bf16 --budget "${TUNE:-20}" --json "$out/$one.json" ${MORE:-}
done
[ -z "$others" ] || told models "$out/generators" generators.log
for one in $sound; do
  if [ -e "$out/$one.json" ]; then grep -E ' us |floor' "$out/$one.log" | tail -6; else tail -3 "$out/$one.log" | cut -c1-300; fi
done
exit "$code"
