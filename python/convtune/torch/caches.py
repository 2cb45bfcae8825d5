"""PyTorch's caches of compiled graphs on disk, kept apart by what convtune made of a graph.

They find a graph again by its operators' names and arguments as the user's code calls them, and hold what is below:
operators that are convtune's own business, and what its Python rewrote. A graph that another version left there would
be run as it stands, with arguments that nobody takes any more. So the tag of all of those caches names this version,
by its sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["find_best_configs", "tag", "version"]


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


def find_best_configs() -> None:
    """Leaves this version out of the names under which inductor, once it is there, keeps the best configs of Triton's kernels: those
    are by the kernel's source, and nothing of convtune's is in them. Inductor's compiling processes, which know of no tag, say under
    which name one is kept; a later process that asked by another would measure all of them again, in every first call. As PyTorch
    has it where it makes names in another way. docs/decisions/0185-what-first-calls-need-not-wait-for.md."""
    module = sys.modules.get("torch._inductor.runtime.autotune_cache")
    if module is not None:
        _name_without_tag(module)


@cache
def _name_without_tag(module: Any) -> None:
    with contextlib.suppress(ImportError, AttributeError):
        config: Any = import_module("torch.compiler.config")
        kept, strategy = module.AutotuneCache, getattr(module, "AUTOTUNE_CACHE_KEY_STRATEGY", None)
        real = kept._prepare_key

        def name_by(filename: str, tag: str) -> Any:
            text = f"{os.path.basename(filename)}:{tag}"
            return strategy.key(text) if strategy is not None else hashlib.sha256(text.encode()).hexdigest()

        def prepare_key(filename: str) -> Any:
            return name_by(filename, config.cache_key_tag.replace(f"convtune {version()}", "").strip())

        if real("a.py") == name_by("a.py", config.cache_key_tag):
            kept._prepare_key = staticmethod(prepare_key)
