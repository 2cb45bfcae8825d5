"""`python -m convtune ...`: the convtune command, in this process's place. What of it needs a Python (models, Triton
files) runs in this one, which has the packages of its environment."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def _command() -> str | None:
    """The one that was installed with this package, else the one on the path."""
    own = Path(__file__).parent / "bin" / "convtune"
    if own.is_file():
        return str(own)
    found = shutil.which("convtune")
    # pip's script of that name ends here, too: it must not call itself for ever.
    caller = sys.argv[0]
    if found is not None and os.path.exists(caller) and os.path.samefile(found, caller):
        return None
    return found


def main() -> int:
    command = _command()
    if command is None:
        print(
            "convtune: the command is neither in the package (convtune/bin/convtune) nor on the PATH; `pip install .` "
            "in convtune's sources builds it",
            file=sys.stderr,
        )
        return 2
    sys.stdout.flush()
    if sys.executable:
        os.environ.setdefault("CONVTUNE_PYTHON", sys.executable)
    try:
        os.execv(command, ["convtune", *sys.argv[1:]])
    except OSError as why:
        print(f"convtune: {command} does not start: {why}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
