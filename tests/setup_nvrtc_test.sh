#!/usr/bin/env bash
# setup_nvrtc_test.sh SETUP_NVRTC: runs it with a pretended python3, which writes down what it is asked for.
# Nothing is installed.
set -euo pipefail
setup=$1
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
fail() { echo "FAILED: $*"; cat "$box/output" "$box/asked"; exit 1; }

mkdir "$box/bin"
for tool in bash env dirname mkdir cat touch chmod; do ln -s "$(command -v "$tool")" "$box/bin/"; done
python() {  # python EXIT-CODE: of pip's part
  cat >"$box/bin/python3" <<END
#!/bin/bash
echo "\$@" >>'$box/asked'
if [[ \$2 == venv ]]; then
  mkdir -p "\$3/bin" && cat "\$0" >"\$3/bin/python" && chmod 755 "\$3/bin/python"
else
  [[ $1 -eq 0 ]] || { echo 'Looking for it'; echo 'no network'; exit $1; } >&2
  mkdir -p '$box/venv/lib/python3.11/site-packages/nvidia/cu13/lib'
  touch '$box/venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13'
fi
END
  chmod 755 "$box/bin/python3"
}
run() {
  : >"$box/asked"
  env -i PATH="$box/bin" "$@" "$setup" "$box/venv" "$box/toolkit" </dev/null >"$box/output" 2>&1
}

python 1
run || fail 'without a network it fails'
grep -q 'no network.*tests that compile GPU kernels are skipped' "$box/output" || fail 'it does not say what is skipped'
[[ $(grep -c skipped "$box/output") -eq 1 ]] || fail 'it is said more than once'

python 0
run || fail 'it fails'
grep -q 'pip install .*nvidia-cuda-nvrtc==' "$box/asked" || fail 'pip was not asked'
grep -q skipped "$box/output" && fail 'it says that tests are skipped'
run || fail 'the second time it fails'
[[ ! -s $box/asked ]] || fail 'the second time it asks again'
grep -q 'nothing to do' "$box/output" || fail 'the second time it does not say that all is there'

rm -r "$box/venv"
mkdir -p "$box/toolkit/lib64" && touch "$box/toolkit/lib64/libnvrtc.so.12"
run || fail 'with a toolkit it fails'
[[ ! -s $box/asked ]] || fail 'with a toolkit it asks for a wheel'
rm -r "$box/toolkit"

mkdir -p "$box/other/lib64" && touch "$box/other/lib64/libnvrtc.so.13"
run CUDA_HOME="$box/other" || fail 'with CUDA_HOME it fails'
[[ ! -s $box/asked ]] || fail 'with CUDA_HOME it asks for a wheel'

rm "$box/bin/python3"
run || fail 'without python3 it fails'
grep -q 'no python3.*skipped' "$box/output" || fail 'without python3 it does not say so'
echo 'setup_nvrtc: all six systems behaved'
