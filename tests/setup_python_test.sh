#!/usr/bin/env bash
# setup_python_test.sh SETUP_PYTHON: runs it with a pretended python3, which writes down what it is asked for.
# Nothing is installed.
set -euo pipefail
setup=$1
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
fail() { echo "FAILED: $*"; cat "$box/output" "$box/asked"; exit 1; }

mkdir "$box/bin"
for tool in bash env dirname mkdir cat touch chmod; do ln -s "$(command -v "$tool")" "$box/bin/"; done
python() {  # python VENV-CODE PIP-CODE OLD: what making a venv and pip end with, and whether Python is too old
  cat >"$box/bin/python3" <<END
#!/bin/bash
case \$* in
  *version_info*) exit $3 ;;
  *'import numpy'*) [[ -e '$box/venv/numpy' ]]; exit ;;
esac
echo "\$@" >>'$box/asked'
if [[ \$2 == venv ]]; then
  [[ $1 -eq 0 ]] || { echo 'ensurepip is not available'; exit $1; }
  mkdir -p "\$3/bin" && cat "\$0" >"\$3/bin/python" && chmod 755 "\$3/bin/python"
else
  [[ $2 -eq 0 ]] || { echo 'Looking for it'; echo 'no network'; exit $2; } >&2
  touch '$box/venv/numpy' && mkdir -p '$box/venv/lib' && touch '$box/venv/lib/libdnnl.so.3'
fi
END
  chmod 755 "$box/bin/python3"
}
run() {
  : >"$box/asked"
  env -i PATH="$box/bin" "$setup" "$box/venv" </dev/null >"$box/output" 2>&1
}
is_skipped() {
  [[ $(grep -c 'are skipped' "$box/output") -eq 1 ]] || fail "with $1 it is not said once that tests are skipped"
  grep -q "($2" "$box/output" || fail "with $1 the reason is not told"
}

python 1 0 0
run || fail 'without python3-venv it fails'
is_skipped 'no python3-venv' 'python3 -m venv: ensurepip'

python 0 1 0
run || fail 'without a network it fails'
is_skipped 'no network' 'pip: no network'

python 0 0 0
run || fail 'it fails'
grep -q 'pip install .*requirements.txt' "$box/asked" || fail 'pip was not asked'
grep -q skipped "$box/output" && fail 'it says that tests are skipped'
run || fail 'the second time it fails'
[[ ! -s $box/asked ]] || fail 'the second time it asks again'
grep -q 'nothing to do' "$box/output" || fail 'the second time it does not say that all is there'

rm -r "$box/venv"
python 0 0 1
run || fail 'with an old python3 it fails'
is_skipped 'an old python3' 'python3 is older'
[[ ! -s $box/asked ]] || fail 'an old python3 was asked for a venv'

rm "$box/bin/python3"
run || fail 'without python3 it fails'
is_skipped 'no python3' 'there is no python3'
echo 'setup_python: all six systems behaved'
