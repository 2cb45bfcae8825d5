"""Contests of layers with PyTorch that were held in other processes of this machine: a model that is compiled or
optimized again takes their outcomes, as it takes the records of tuning. They lie beside those, in contests.jsonl, and
hold for one version of PyTorch, cuDNN and convtune, one device, and one setting of PyTorch's. So do the budgets that
searches of models had, and what was decided of a compiled graph's layers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ... import _library
from ..._contest import Contest
from ...tensors import allowed_precision

__all__ = [
    "forget", "keep", "keep_layers", "keep_number", "key_of", "recall", "recall_layers", "recall_number",
]  # fmt: skip

Rows = list[dict[str, Any]]
_Value = Contest | float | Rows
_NUMBERS = [field.name for field in fields(Contest)]


@dataclass
class _Known:
    """One file: its size when it was read, and its contests, numbers (budgets in seconds, times) and layers of graphs."""

    size: int = 0
    rows: dict[str, _Value] = field(default_factory=dict)


_known: dict[Path, _Known] = {}


def _file() -> Path:
    """Beside the records."""
    own = os.environ.get("CONVTUNE_DATA_DIR")
    shared = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(own or os.path.join(shared, "convtune")) / "contests.jsonl"


@cache
def _own_hash() -> str:
    """A hash of the library and of the package's sources: some operators are in Triton."""
    found = hashlib.sha256(_library.library_path().read_bytes())
    for source in sorted(Path(__file__).parents[2].rglob("*.py")):
        found.update(source.read_bytes())
    return found.hexdigest()[:16]


def key_of(what: str, fingerprint: str, device: torch.device) -> str:
    """The key of a contest or a budget. `what`: its two sides and what a gain has to be, or what was searched, in words
    that say all of it; `fingerprint`: what records of that device are kept under."""
    index = device.index or 0 if device.type == "cuda" else -1
    cudnn = torch.backends.cudnn
    settings = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads() if index < 0 else 0
    versions = torch.__version__, cudnn.version(), _own_hash()
    text = repr((versions, fingerprint, settings, allowed_precision(index), threads, what))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(row: dict[str, Any]) -> _Value:
    if "number" in row:
        return float(row["number"])
    if "layers" in row:
        return [dict(one) for one in row["layers"]]
    found = Contest(**{name: row[name] for name in _NUMBERS})
    if not math.isfinite(found.incumbent_us + found.challenger_us + found.gain):
        raise ValueError("no numbers")
    return found


def _add(rows: dict[str, _Value], key: str, value: _Value) -> None:
    """The last contest, the largest number."""
    before = rows.get(key)
    is_more = isinstance(before, float) and isinstance(value, float) and before > value
    rows[key] = before if is_more else value


def _kept() -> dict[str, _Value]:
    """Read again where another process has written meanwhile."""
    file = _file()
    known = _known.setdefault(file, _Known())
    with contextlib.suppress(OSError):
        size = file.stat().st_size
        if size != known.size:
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):  # cut short, or written by another version
                    row = json.loads(line)
                    _add(known.rows, str(row["key"]), _read(row))
            known.size = size
    return known.rows


def _keep(key: str, value: _Value, row: dict[str, Any]) -> None:
    """Adds the row in one write, which no other process can cut; where there is no room the next process does the work
    again."""
    _add(_kept(), key, value)
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, **row}) + "\n"
        with open(_file(), "ab", buffering=0) as file:
            file.write(line.encode())


def recall(key: str) -> Contest | None:
    found = _kept().get(key)
    return found if isinstance(found, Contest) else None


def keep(key: str, outcome: Contest) -> None:
    _keep(key, outcome, asdict(outcome))


def recall_number(key: str) -> float:
    """Seconds of a budget, or microseconds; 0 where nothing is known."""
    found = _kept().get(key)
    return found if isinstance(found, float) else 0.0


def keep_number(key: str, value: float) -> None:
    _keep(key, float(value), {"number": float(value)})


def recall_layers(key: str) -> Rows | None:
    found = _kept().get(key)
    return found if isinstance(found, list) else None


def keep_layers(key: str, layers: Rows) -> None:
    """`layers`: what was decided of each, in an order that the key tells."""
    _keep(key, layers, {"layers": layers})


def forget() -> None:
    """All of it, in this process and in the file: models are searched, and layers held against PyTorch, anew."""
    _known.clear()
    with contextlib.suppress(OSError):
        _file().unlink()
