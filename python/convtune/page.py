"""Reports as files: a page of HTML that fetches nothing, or the JSON that `convtune report` makes one of."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from . import _library

__all__ = ["write_file", "write_report"]


def write_report(
    path: str | os.PathLike[str], content: dict[str, Any], device: str | None, versions: dict[str, str] | None = None
) -> None:
    """Writes a page, or for a path that ends in ".json" the report itself. `content`: {"rows": [...]} or {"model":
    {...}}; `versions`: of libraries that were measured, beside those that convtune knows of. Raises OSError,
    InvalidArgument."""
    environment = _library.take_json(_library.library.convtune_environment, _library.device_text(device))
    environment["versions"] = {**environment.get("versions", {}), **(versions or {})}
    text = json.dumps({"schema": 1, "environment": environment, **content}, indent=2)
    if Path(path).suffix != ".json":
        text = _library.take_text(_library.library.convtune_report_page, _library.c_text(text))
    write_file(path, text)


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """The file appears whole or not at all. Raises OSError."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.touch(0o600 if target.exists() else 0o666)
        if target.exists():  # it keeps its owner, group and mode, or is for its owner alone
            before = target.stat()
            with contextlib.suppress(PermissionError):
                os.chown(beside, before.st_uid, before.st_gid)
                beside.chmod(stat.S_IMODE(before.st_mode))
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
