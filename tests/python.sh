#!/usr/bin/env bash
# python.sh LIBRARY COMMAND [PYTEST-OPTION...]: the tests of the Python package with a Python that has NumPy and
# pytest: that of an active environment or the machine's where it has PyTorch as well, else that of this
# checkout's .venv (scripts/setup_python). Exit code 77, which CTest takes for "skipped", where there is none.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
library=$1 command=$2
shift 2

has() {  # has PYTHON MODULE...: looked up, not imported, because PyTorch takes seconds for that
  "$1" - "${@:2}" >/dev/null 2>&1 <<'END'
import importlib.util, sys
sys.exit(sys.version_info < (3, 10) or not all(importlib.util.find_spec(name) for name in sys.argv[1:]))
END
}
choose() {
  local python
  for python in python3 "$root/.venv/bin/python"; do
    # A sanitizer finds more in PyTorch than it would in us.
    if [[ -z ${CONVTUNE_PRELOAD:-} ]] && has "$python" numpy pytest torch; then echo "$python" && return; fi
  done
  for python in "$root/.venv/bin/python" python3; do
    if has "$python" numpy pytest; then echo "$python" && return; fi
  done
  return 1
}
if ! python=$(choose); then
  echo "python: skipped, no Python here has NumPy and pytest; scripts/setup_python gets them"
  exit 77
fi
echo "python: $(command -v "$python"), $("$python" --version)"
has "$python" torch || echo 'python: PyTorch is not importable, its tests are skipped'

export CONVTUNE_LIBRARY=$library PATH=$(dirname "$command"):$PATH PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1
cd "$root"
# A sanitizer's library must be the first of the process (tests/CMakeLists.txt).
exec env ${CONVTUNE_PRELOAD:+LD_PRELOAD="$CONVTUNE_PRELOAD"} "$python" -m pytest -rs "$@" tests/python
