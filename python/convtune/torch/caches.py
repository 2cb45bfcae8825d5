"""PyTorch's caches of compiled graphs on disk, kept apart by what convtune made of a graph.

They find a graph again by its operators' names and arguments as the user's code calls them, and hold what is below:
operators that are convtune's own business, and what its Python rewrote. A graph that another version left there would
be run as it stands, with arguments that nobody takes any more. So the tag of all of those caches names this version,
by its sources.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["tag", "version"]


@cache
def version() -> str:
    """A hash of everything in this package that a compiled graph may hold: 16 hexadecimal digits."""
    sources = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(source.read_bytes())
    return sources.hexdigest()[:16]


def tag() -> None:
    """Adds this version to `torch.compiler.config.cache_key_tag`, once. Where PyTorch has no such tag, nothing
    is done."""
    try:
        config: Any = import_module("torch.compiler.config")
    except ImportError:
        return
    own = f"convtune {version()}"
    if own not in getattr(config, "cache_key_tag", own):
        config.cache_key_tag = f"{config.cache_key_tag} {own}".lstrip()
