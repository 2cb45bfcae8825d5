"""The package's modules import each other without circles, inside functions as well."""

import ast
from pathlib import Path

import convtune

FOLDER = Path(convtune.__file__).parent


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [name.name for name in node.names]


def test_no_circles():
    above = {file.stem: set(imported(file)) for file in FOLDER.glob("*.py") if file.stem != "__init__"}
    assert "torch_run" in above["torch"]  # it reads imports at all
    while leaves := [module for module, names in above.items() if not names & above.keys()]:
        for module in leaves:
            del above[module]
    assert not above
