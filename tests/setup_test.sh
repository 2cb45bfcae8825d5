#!/usr/bin/env bash
# setup_test.sh SETUP: runs scripts/setup among pretended dpkg-query, apt-get and sudo that write down
# what they are asked for. Nothing is installed.
set -euo pipefail
setup=$1
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
chmod 755 "$box"
fail() { echo "FAILED: $*"; cat "$box/output"; exit 1; }

tool() {  # tool NAME BODY
  printf '#!/bin/bash\n%s\n' "$2" >"$box/bin/$1"
  chmod 755 "$box/bin/$1"
}
new_system() {  # new_system MISSING-PACKAGE: '' for none
  rm -rf "$box/bin" && mkdir -m 755 "$box/bin" && : >"$box/asked" && chmod 666 "$box/asked"
  ln -s "$(command -v bash)" "$(command -v env)" "$box/bin/"
  tool dpkg-query "[[ \${*: -1} == '$1' ]] && exit 1; echo -n installed"
  tool apt-get "echo apt-get \"\$@\" >>'$box/asked'"
}
run() { env -i PATH="$box/bin" "$@" "$setup" </dev/null >"$box/output" 2>&1; }

new_system ''
run || fail 'nothing is missing, and setup fails'
[[ ! -s $box/asked ]] || fail 'nothing is missing, and apt-get was called'

new_system libhwy-dev
tool sudo '[[ $1 == -n ]] && shift; exec "$@"'
run || fail 'libhwy-dev is missing, and setup fails'
grep -qx 'apt-get update' "$box/asked" || fail 'no apt-get update before the installation'
grep -qx 'apt-get install .* libhwy-dev' "$box/asked" || fail 'not exactly the missing package is installed'

new_system libhwy-dev
tool sudo 'exit 1'
if [[ $EUID -eq 0 ]]; then  # someone who is not root, and may not become it
  mapfile -t as_nobody < <(printf '%s\n' "$(command -v setpriv)" --reuid=65534 --clear-groups)
  cp "$setup" "$box/setup" && chmod 755 "$box/setup" && setup=$box/setup
else
  as_nobody=()
fi
code=0
run "${as_nobody[@]}" || code=$?
[[ $code -eq 1 ]] || fail "no way to become root: exit code $code instead of 1"
grep -q 'sudo apt-get update && sudo apt-get install --no-install-recommends libhwy-dev' "$box/output" ||
  fail 'the command to run is not printed'
[[ ! -s $box/asked ]] || fail 'apt-get was called without root'

new_system ''
rm "$box/bin/apt-get"
run || fail 'a system without apt is turned away'
grep -q 'libhwy-dev' "$box/output" || fail 'a system without apt is not told what is needed'
echo 'setup: all four systems behaved'
