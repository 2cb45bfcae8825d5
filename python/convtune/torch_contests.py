"""Contests of layers with PyTorch that were held in other processes of this machine: a model that is compiled or
optimized again takes their outcomes, as it takes the records of tuning. They lie beside those, in contests.jsonl, and
hold for one version of PyTorch, cuDNN and convtune, one device, and one setting of PyTorch's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from . import _library
from ._contest import Contest
from .tensors import allowed_precision

__all__ = ["forget", "keep", "key_of", "recall"]

_NUMBERS = [field.name for field in fields(Contest)]
_known: dict[Path, dict[str, Contest]] = {}  # by file


def _file() -> Path:
    """Beside the records."""
    own = os.environ.get("CONVTUNE_DATA_DIR")
    shared = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(own or os.path.join(shared, "convtune")) / "contests.jsonl"


@cache
def _own_hash() -> str:
    """Of the library, and of the package's sources: some operators are in Triton."""
    found = hashlib.sha256(_library.library_path().read_bytes())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def key_of(what: str, fingerprint: str, device: torch.device) -> str:
    """Of a contest. `what`: its two sides and what a gain has to be, in words that say all of it; `fingerprint`: what
    records of that device are kept under."""
    index = device.index or 0 if device.type == "cuda" else -1
    cudnn = torch.backends.cudnn
    settings = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads() if index < 0 else 0
    versions = torch.__version__, cudnn.version(), _own_hash()
    text = repr((versions, fingerprint, settings, allowed_precision(index), threads, what))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _contest(row: dict[str, Any]) -> Contest:
    found = Contest(**{name: row[name] for name in _NUMBERS})
    if not math.isfinite(found.incumbent_us + found.challenger_us + found.gain):
        raise ValueError("no numbers")
    return found


def _kept() -> dict[str, Contest]:
    file = _file()
    if file not in _known:
        found = _known[file] = {}
        with contextlib.suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # cut short, or written by another version
                    row = json.loads(line)
                    found[str(row["key"])] = _contest(row)
    return _known[file]


def recall(key: str) -> Contest | None:
    return _kept().get(key)


def keep(key: str, outcome: Contest) -> None:
    """In one write, which no other process can cut; where there is no room the next process holds the contest again."""
    _kept()[key] = outcome
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, **asdict(outcome)}) + "\n"
        with open(_file(), "ab", buffering=0) as file:
            file.write(line.encode())


def forget() -> None:
    """Every outcome in this process and in the file: layers are held against PyTorch anew."""
    _known.clear()
    with contextlib.suppress(OSError):
        _file().unlink()
