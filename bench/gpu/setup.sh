# shellcheck shell=bash
# Sourced by the scripts of this folder: `. setup.sh "$@"` reads BINARIES OUT [--deadline SECONDS] and leaves the rest in "$@".
# BINARIES has the command and both shared libraries (build/release/cli/convtune, src/c/libconvtune_c.so.*,
# src/c/libconvtune_torch.so.*, copied into one folder). Needs a Python with PyTorch: $PYTHON, or python3.
# Caches and records lie in $CONVTUNE_STATE, or in a new folder: scripts that share one know what the others tuned.
# $MORE goes to the measuring program: MORE="--device cpu ..." tries a script where no GPU is.

if [ $# -lt 2 ]; then echo "usage: $0 BINARIES OUT [--deadline SECONDS] [MORE]" >&2; exit 2; fi
root=$(cd "$(dirname "$0")/../.." && pwd)
binaries=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd)
shift 2
deadline=540
if [ "${1:-}" = --deadline ]; then deadline=$2; shift 2; fi
start=$(date +%s)

python=${PYTHON:-python3}
state=${CONVTUNE_STATE:-$(mktemp -d)}
mkdir -p "$state/bin"
cp -f "$binaries/convtune" "$state/bin/" || exit 2
for name in libconvtune_c libconvtune_torch; do  # by the names that Python looks for, whatever versions they were copied with
  file=$(find "$binaries" -name "$name.so*" | sort | head -1)
  if [ -z "$file" ]; then echo "$binaries has no $name.so" >&2; exit 2; fi
  cp -fL "$file" "$state/bin/$name.so"
done
chmod +x "$state/bin/convtune"
ln -sf libconvtune_c.so "$state/bin/libconvtune_c.so.3"  # which the other one is linked with
CONVTUNE_LIBRARY=$state/bin/libconvtune_c.so
export CONVTUNE_LIBRARY PATH="$state/bin:$PATH" PYTHONPATH="$root/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export CONVTUNE_DATA_DIR="$state/data" CONVTUNE_CACHE_DIR="$state/cache" TORCHINDUCTOR_CACHE_DIR="$state/inductor"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for folder in "$packages"/nvidia/*/lib; do [ -d "$folder" ] && LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}"; done
export LD_LIBRARY_PATH="$state/bin:${LD_LIBRARY_PATH:-}"

code=0  # the first failure's
# Seconds that are left of the deadline, less $1.
left() { echo $((deadline - ($(date +%s) - start) - ${1:-0})); }
# Runs a command for $1 seconds at most; what it says goes to the file $2 of the output folder.
within() {
  local seconds=$1 log=$out/$2 own=0
  shift 2
  if [ "$seconds" -lt 1 ]; then
    echo "no time left for: $*" | tee "$log" | cut -c1-150
    own=124
  else
    timeout -k 10 "$seconds" "$@" > "$log" 2>&1 || own=$?
    echo "[$(($(date +%s) - start)) s] $(basename "$log"): status $own"
  fi
  [ "$code" -ne 0 ] || code=$own
  return "$own"
}
# Prints what told.py says of $1 and the file or folder $2, or else the end of the log $3 of the output folder.
told() {
  "$python" "$root/bench/gpu/told.py" "$1" "$2" && return
  [ "$code" -ne 0 ] || code=1
  tail -5 "$out/$3" | cut -c1-300
}
