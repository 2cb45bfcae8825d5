"""Reads and edits a Triton file for `convtune refine`: its autotuned kernels and their lists, what a launch's grid
comes to, the same file with another list. By `ast` and its positions: nothing of the file is run, and whatever it
holds, its answers take 1 GB and 10 s of the processor at most.

Requests are lines of JSON on standard input, answers lines of JSON on standard output.
"""

import ast
import json
import sys
import time

from module_class import read_class
from python_limits import Late, leave_network, limit_memory, within
from python_objects import Config, Given, NotKnown, Pair, Tensor
from triton_edits import Edits, in_order
from triton_file import File
from triton_source import Refused

MEMORY, SECONDS = 1 << 30, 8.0  # for all answers about a file; Python's start and end take the rest of 10 s
LEAST = 0.25  # seconds that an answer has in any case


def given_values(request):
    given = Given({name: Tensor(shape) for name, shape in request.get("tensors", {}).items()})
    given.update((name, Pair(value) if isinstance(value, list) else value)
                 for name, value in request.get("values", {}).items())
    own = {name: ast.literal_eval(text) for name, text in request.get("own", {}).items()}
    given.update((name, Tensor(value) if isinstance(value, list) else value) for name, value in own.items())
    given.own = frozenset(own)
    return given


def config_of(described):
    """A config by its description, where its values are plain."""
    meta = {}
    for name, text in described["meta"]:
        try:
            meta[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise NotKnown(f"the value {text[:60]} of {name} is not known") from None
    return Config(None, meta, {"num_warps": described["warps"], "num_stages": described["stages"]}, 0)


def chosen(file, at):
    if not isinstance(at, int) or not 0 <= at < len(file.kernels):
        raise Refused("there is no such kernel")
    return file.kernels[at]


def edited(file, request):
    notes, edits = [], Edits(file)
    for edit in request["edits"]:
        edits.list(chosen(file, edit["kernel"]), edit["configs"], edit["keep"])
    source = edits.text()
    if request["order"]:
        mark = source.startswith("\ufeff")
        source = ("\ufeff" if mark else "") + in_order(source[1:] if mark else source, notes)
    try:
        ast.parse(source[1:] if source.startswith("\ufeff") else source)
    except SyntaxError as error:
        raise Refused(f"the new file would be no Python, line {error.lineno}: {error.msg}") from None
    return {"source": source, "notes": notes}


def answer(state, request):
    if request["do"] == "read":
        state["file"] = File(request["source"], request.get("path") or None, request.get("target", {}))
        return state["file"].read()
    if request["do"] == "class":
        return read_class(request)
    file = state.get("file")
    if file is None:
        raise Refused("no file was read")
    if request["do"] == "grids":
        try:
            kernel = chosen(file, request["kernel"])
            configs = [config_of(one) for one in request["configs"]] if "configs" in request else kernel.configs
            return {"grids": file.grids(kernel, given_values(request), configs), "why": ""}
        except NotKnown as error:
            return {"grids": [], "why": str(error)}
    if request["do"] == "edit":
        return edited(file, request)
    raise Refused("there is no such request")


def main():
    sys.setrecursionlimit(4000)
    limit_memory(MEMORY)
    leave_network()
    state, start = {}, time.process_time()
    for line in sys.stdin:
        try:
            with within(max(LEAST, SECONDS - (time.process_time() - start))):
                found = answer(state, json.loads(line))
        except Refused as error:
            found = {"refused": str(error)}
        except RecursionError:
            found = {"refused": "it is nested too deeply"}
        except MemoryError:
            found = {"refused": "reading it takes over 1 GB of memory, or it is nested too deeply"}
        except Late:
            found = {"refused": f"reading it takes over {SECONDS:g} s"}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
