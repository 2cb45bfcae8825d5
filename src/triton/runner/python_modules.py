"""Imports a file's text as the module that the file is, its package and neighbours included."""

import importlib.machinery
import importlib.util
import os
import sys


def place_of(path):
    """The folder that must be on the path, and the file's dotted name in it."""
    path = os.path.abspath(path)
    folder, name = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
    parts = [name]
    while os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
        parts.insert(0, os.path.basename(folder))
        folder = os.path.dirname(folder)
    return folder, ".".join(parts)


def load(source, path, folder):
    """The file as a module, from this text, with its place in its package."""
    root, name = place_of(path) if path else (folder, "convtune_refined_file")
    sys.path.insert(0, root)
    if path:
        sys.path.insert(1, os.path.dirname(os.path.abspath(path)))
    if "." in name:
        importlib.import_module(name.rpartition(".")[0])
    file = os.path.join(folder, os.path.basename(path) if path else "file.py")
    with open(file, "w", encoding="utf-8", newline="") as out:
        out.write(source)
    loader = importlib.machinery.SourceFileLoader(name, file)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module
