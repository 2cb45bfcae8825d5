"""The package's modules import each other without circles, inside functions as well."""

import ast
from pathlib import Path

import convtune

FOLDER = Path(convtune.__file__).parent


def name_of(file):
    """"torch.run" of convtune/torch/run.py, "torch" of convtune/torch/__init__.py."""
    parts = file.relative_to(FOLDER).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(file, modules):
    """The modules of the package that `file` imports by relative imports."""
    here = file.relative_to(FOLDER).parent.parts
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            base = [*here[: len(here) - node.level + 1], *(node.module or "").split(".")]
            base = ".".join(part for part in base if part)
            for name in node.names:
                inner = f"{base}.{name.name}".lstrip(".")
                yield inner if inner in modules else base


def test_no_circles():
    files = {name_of(file): file for file in FOLDER.rglob("*.py") if file.parent != FOLDER or file.stem != "__init__"}
    above = {name: set(imported(file, files.keys())) for name, file in files.items()}
    assert "torch.run" in above["torch.functional"] and "tuning" in above["torch.measure.decide"]  # it reads imports
    while leaves := [module for module, names in above.items() if not names & above.keys()]:
        for module in leaves:
            del above[module]
    assert not above
