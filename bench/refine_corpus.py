"""Refines every autotuned kernel of folders of Python files, and judges what comes back without trusting it.

Usage: refine_corpus.py CONVTUNE FOLDER... [--most N] [--python PYTHON] [--jobs N]
                        [--files N] [--json FILE]

Each config of a list is named in turn (--most: so many of a list, spread over it; 0: all); where a list is not known
to `convtune refine`, a whole config is made up. Judged are: bytes outside of the list's expression; the rules R2 to
R5 in what was written; that the new file still loads where the old one did, with stand-ins for every module that is
not here. Files that are the same count once. Nothing of the files is kept.
"""

import argparse
import ast
import collections
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

METRICS = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 64.79, "launch__grid_size": 48400,
           "sm__warps_active.avg.pct_of_peak_sustained_active": 33.05,
           "dram__throughput.avg.pct_of_peak_sustained_elapsed": 26.97, "lts__t_sector_hit_rate.pct": 93.4}

LOADS = r'''
import importlib.abc, importlib.machinery, sys
class Stand:
    def __init__(self, *a, **k): pass
    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"): raise AttributeError(name)
        return Stand()
    def __call__(self, *a, **k):
        return a[0] if len(a) == 1 and callable(a[0]) and not k and not isinstance(a[0], Stand) else Stand()
    def __getitem__(self, key): return Stand()
    def __iter__(self): return iter(())
    def __mro_entries__(self, bases): return (object,)
    def __or__(self, other): return Stand()
    __ror__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __floordiv__ = __truediv__ = __mod__ = __or__
    def __lt__(self, other): return False
    __gt__ = __le__ = __ge__ = __lt__
    def __int__(self): return 8
    __index__ = __int__
    def __bool__(self): return False
    def __hash__(self): return 1
class Module(Stand):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Stand()
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        import types
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: (_ for _ in ()).throw(AttributeError(name)) if name.startswith("__") else Stand()
        return module
    def exec_module(self, module): pass
sys.meta_path.append(Finder())
import types
text = open(sys.argv[1], encoding="utf-8").read()
module = types.ModuleType("a.b.c.d.file")
module.__package__ = "a.b.c.d"
for name in ("a", "a.b", "a.b.c", "a.b.c.d"):
    __import__(name)
sys.modules["a.b.c.d.file"] = module
module.__file__ = sys.argv[1]
exec(compile(text, sys.argv[1], "exec"), vars(module))
'''


def spans(source):
    """The byte spans of all `configs=` expressions, by their own positions."""
    starts = [0]
    data = source.encode()
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if b"\f" in data or b"\x0b" in data or b"\x1c" in data:
        starts = [0] + [at + 1 for at, byte in enumerate(data) if byte == 10]
    found = []
    for node in ast.walk(ast.parse(data)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        values = [word.value for word in node.keywords if word.arg == "configs"]
        if name == "autotune" and node.args:
            values.append(node.args[0])
        found += [(starts[value.lineno - 1] + value.col_offset, starts[value.end_lineno - 1] + value.end_col_offset)
                  for value in values]
    return data, found


def changed(old, new):
    """Tells whether nothing but one of the expressions differs; the new text of it."""
    before, places = spans(old)
    after = new.encode()
    for begin, end in places:
        tail = len(before) - end
        if before[:begin] == after[:begin] and before[end:] == after[len(after) - tail:]:
            text = after[begin:len(after) - tail]
            if before[begin:end] != text:
                return text.decode()
    return None


def broken_rule(text, warps, stages):
    """Which rule a written list breaks, given what was asked for."""
    items = ast.parse(text.strip(), mode="eval").body.elts
    configs = []
    for item in items:
        words = {word.arg: word.value for word in item.keywords}
        configs.append((ast.dump(item.args[0]), words["num_warps"].value, words["num_stages"].value))
    if not 3 <= len(configs) <= 6 or len(set(configs)) != len(configs):
        return "R4"
    if configs[0][1:] != (warps, stages):
        return "R5"
    for meta, w, s in configs:
        if meta != configs[0][0]:
            return "R3"
        if abs(s - stages) > 1 or (s != stages and s not in (2, 3, 4)):
            return "R2"
        if w != warps and w not in (2, 4, 8, 16):
            return "R1"
    return None


def loads(python, folder, text):
    file = Path(folder, "loaded.py")
    file.write_text(text, encoding="utf-8", newline="")
    done = subprocess.run([python, "-c", LOADS, str(file)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, cwd=folder)
    return done.returncode == 0, done.stderr.strip().splitlines()[-1:] or [""]


def words(config):
    pairs = [f"{name}={text}" for name, text in config["meta"] + config["others"]
             if not name.endswith("hook") and " " not in text]
    return " ".join([*pairs, f"num_warps={config['warps']}", f"num_stages={config['stages']}"])


def file_outcomes(options, path):
    source = Path(path).read_bytes().decode()
    sys.path.insert(0, str(Path(__file__).parent.parent / "src" / "triton" / "runner"))
    import triton_reader as reader  # known to the command of the file: to name configs, not to judge
    sys.setrecursionlimit(4000)
    try:
        kernels = reader.answer({}, {"do": "read", "source": source, "path": path,
                                     "target": {"major": 8, "minor": 9, "sms": 128, "shared": 101376}})["kernels"]
    except reader.Refused:
        return []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        before = None
        for kernel in kernels:
            if not kernel["listed"]:
                continue
            configs = kernel["configs"]
            count = len(configs)
            picked = range(count) if options.most == 0 or count <= options.most else sorted(
                {at * (count - 1) // max(options.most - 1, 1) for at in range(options.most)})
            asked = [configs[at] for at in picked] if not kernel["why"] else [
                {"meta": [["BLOCK_M", "64"], ["BLOCK_N", "64"]], "others": [], "warps": 4, "stages": 3}]
            for config in asked:
                outcome, why = one(options, folder, path, source, kernel, config)
                if outcome == "refined":
                    before = loads(options.python, folder, source)[0] if before is None else before
                    if before:
                        ok, error = loads(options.python, folder, Path(folder, "out.py").read_bytes().decode())
                        if not ok:
                            outcome, why = "BROKEN", error[0]
                found.append({"file": path, "kernel": kernel["name"], "line": kernel["line"], "outcome": outcome,
                              "why": why, "unknown": kernel["why"]})
    return found


def one(options, folder, path, source, kernel, config):
    metrics, out = Path(folder, "metrics.json"), Path(folder, "out.py")
    metrics.write_text(json.dumps({kernel["name"]: METRICS}))
    out.unlink(missing_ok=True)
    command = [options.convtune, "refine", path, "--metrics", str(metrics), "--target", "rtx4090", "--kernel",
               f"{kernel['name']}:{kernel['line']}", "--original", words(config), "-o", str(out), "--python",
               options.python, "--no-compile", "--no-import"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    if done.returncode < 0 or done.returncode not in (0, 2):
        return "CRASHED", f"exit code {done.returncode}: {done.stderr[-200:]}"
    if done.returncode == 2:
        return "refused", done.stderr.strip().splitlines()[0].split(": ", 3)[-1][:300]
    new = out.read_bytes().decode()
    if "\nkeep: " in "\n" + done.stdout:
        return ("keep" if new == source else "CHANGED OUTSIDE"), next(
            line for line in done.stdout.splitlines() if line.startswith("R4"))
    text = changed(source, new)
    if text is None:
        return "CHANGED OUTSIDE", ""
    rule = broken_rule(text, config["warps"], config["stages"])
    return ("BROKE " + rule, text) if rule else ("refined", "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convtune")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", type=int, default=0, help="stop after so many files with kernels")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.convtune = os.path.abspath(options.convtune)
    seen, files = set(), []
    for folder in options.folders:
        for path in sorted(Path(folder).rglob("*.py")):
            try:
                text = path.read_bytes()
                text.decode()
            except (OSError, UnicodeDecodeError):
                continue
            mark = hashlib.sha256(text).digest()
            if (b"autotune" in text or b"configs=" in text) and b"triton" in text and mark not in seen:
                seen.add(mark)
                files.append(str(path))
    if options.files:
        files = files[::max(1, len(files) // options.files)]
    outcomes, kernels, places = collections.Counter(), collections.defaultdict(set), collections.Counter()
    every = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(file_outcomes, options, path): path for path in files}
        for done in concurrent.futures.as_completed(waiting):
            try:
                found = done.result()
            except Exception as error:
                found = [{"file": waiting[done], "kernel": "?", "line": 0, "outcome": "CHECK FAILED", "why": repr(error),
                          "unknown": ""}]
            every += found
            for one_found in found:
                outcomes[one_found["outcome"]] += 1
                kernels[one_found["outcome"]].add((one_found["file"], one_found["kernel"], one_found["line"]))
                if one_found["outcome"] == "refused":
                    places[one_found["why"][:110]] += 1
    total = sum(outcomes.values())
    everything = set().union(*kernels.values()) if kernels else set()
    unknown = {(one["file"], one["kernel"], one["line"]) for one in every if one["unknown"]}
    print(f"{len(files)} files looked at, {len(everything)} kernels with a list, {len(unknown)} of them not known, "
          f"{total} configs named")
    for outcome, count in outcomes.most_common():
        print(f"{outcome:16} {count:6} configs {100 * count / max(total, 1):5.1f} %  {len(kernels[outcome]):5} kernels")
    for why, count in places.most_common(40):
        print(f"  {count:5} {why}")
    if options.json:
        Path(options.json).write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
