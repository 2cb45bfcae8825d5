"""What Triton's own compiler makes of a kernel's configs, for a GPU that need not be here; the list that a file's
autotuner has once it is imported; and whether a file can be imported at all.

Started by `convtune refine` where Triton can be imported. Requests are lines of JSON on standard input, answers
lines of JSON on standard output, after a first line that says which Triton this is. Every import and every compile
happens in a child process of its own.
"""

import ast
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import signal
import struct
import sys
import tempfile

from python_modules import load, place_of
from python_objects import PLAIN
from triton_edits import bound_names, loaded_names
from triton_file import File
from triton_reader import chosen, given_values
from triton_signature import signature_of, types_to_try
from triton_source import is_jit

REGISTERS, FRAME = 0x2F, 0x11  # attributes of a cubin's .nv.info
PATIENCE = 4  # a compile's limit is of processor time, so that a busy machine changes no answer; by the clock it has more

answers = os.fdopen(os.dup(1), "w")


class Failed(Exception):
    pass


def in_child(work, seconds, processor_seconds=None):
    """work() in a forked process, started: result_of() has its answer, or why there is none. `seconds` by the clock."""
    take, put = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(take)
        try:
            os.dup2(2, 1)
            signal.alarm(max(1, int(seconds)))
            if processor_seconds:
                signal.setitimer(signal.ITIMER_PROF, processor_seconds)
            found = work()
        except BaseException as error:  # of somebody else's file: SystemExit, too
            found = {"failed": f"{type(error).__name__}: {error}".replace("\n", " ")[:600]}
        with os.fdopen(put, "w") as out:
            json.dump(found, out)
            out.flush()
        os._exit(0)
    os.close(put)
    return process, take


def result_of(started):
    process, take = started
    with os.fdopen(take) as text:
        found = text.read()
    _, status = os.waitpid(process, 0)
    if not found:
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGPROF)
        return {"failed": "it took too long" if late else f"its process ended with status {status}"}
    return json.loads(found)


def tuner_of(module, names):
    for name in names:
        found = module
        for part in name.split("."):
            found = getattr(found, part, None)
        while found is not None and not hasattr(found, "configs"):  # @triton.heuristics may lie outside
            found = getattr(found, "fn", None)
        if found is not None:
            return found
    raise Failed("no autotuner of that name once the file is imported")


def imported_list(request, folder):
    module = load(request["source"], request["path"], folder)
    configs = []
    for config in tuner_of(module, request["names"]).configs:
        found = {"meta": [], "others": [], "warps": config.num_warps, "stages": config.num_stages,
                 "line": request["line"], "hidden": ""}
        try:
            found["meta"] = [[name, text_of(value, module)] for name, value in config.kwargs.items()]
            for name, default in (("num_ctas", 1), ("maxnreg", None), ("pre_hook", None), ("ir_override", None)):
                value = getattr(config, name, default)
                if value != default:
                    found["others"].append([name, text_of(value, module)])
        except Failed as error:
            found["hidden"] = str(error)
        configs.append(found)
    return {"configs": configs}


def text_of(value, module):
    if isinstance(value, PLAIN):
        return repr(value)
    name = getattr(value, "__name__", None)
    if name and getattr(module, name, None) is value:
        return name
    text = str(value)
    root = text.split(".")[0]
    if text.replace(".", "").replace("_", "").isalnum() and hasattr(module, root):
        return text
    raise Failed(f"its value {text[:60]} is no name of the file")


def imports(request, folder):
    load(request["source"], request["path"], folder)
    return {"imports": True}


# Compiling

def slice_of(file, kernel):
    """The file's text without anything that the kernel does not use: Triton compiles what is left."""
    owner = {}
    for node in file.tree.body:
        for name in bound_names(node):
            owner.setdefault(name, []).append(node)
    for node in kernel.chain:  # of a kernel within a function, what stands beside it
        for inner in node.body:
            for name in bound_names(inner):
                owner.setdefault(name, []).append(inner)
    wanted, work, found = set(), [kernel.node], {}
    while work:
        node = work.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        names = loaded_names(node)
        if isinstance(node, ast.FunctionDef):
            names -= {name for one in node.decorator_list for name in loaded_names(one)}
            names |= {"triton"}
        for name in names - wanted:
            wanted.add(name)
            work += owner.get(name, [])
    lines = ["import triton", "import triton.language as tl"]
    for node in sorted(found.values(), key=lambda one: (one.lineno, one.col_offset)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            jit = [one for one in node.decorator_list if is_jit(one)]
            if not jit:
                continue
            plain = ast.FunctionDef(**{field: getattr(node, field, []) for field in node._fields})
            plain.decorator_list = [ast.parse("triton.jit", mode="eval").body]
            lines.append(ast.unparse(ast.fix_missing_locations(plain)))
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)):
            text = ast.unparse(node)
            lines += ["try:", *["    " + line for line in text.split("\n")], "except Exception:", "    pass"]
        elif not isinstance(node, ast.ClassDef):
            lines += ["try:", *["    " + line for line in ast.unparse(node).split("\n")], "except Exception:", "    pass"]
    return "\n".join(lines) + "\n"


def compile_one(module, kernel_name, config, facts, target):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module, kernel_name)
    types, constants, multiples, use = facts
    given = dict(constants)
    for name, text in config["meta"]:
        given[name] = eval(text, dict(vars(module)))  # a number, a name: the file's own text
    missing = [name for name in use.params if name in use.constexprs - given.keys() - use.defaults.keys()]
    if missing:
        raise Failed(f"the value of {', '.join(missing)} is not known")
    given = {name: value for name, value in given.items() if name in use.params}
    signature = {name: "constexpr" if name in given or name in use.constexprs else types[name]
                 for name in use.params if name in given or name in types or name in use.constexprs}
    for name in use.constexprs:
        if name not in given:
            given[name] = use.defaults[name](module)
    places = {name: (use.params.index(name),) for name in use.params}
    attrs = {places[name]: [["tt.divisibility", 16]] for name in multiples if name not in given}
    source = ASTSource(fn=function, signature=signature, constexprs={places[name]: value for name, value in given.items()},
                       attrs=attrs)
    options = {"num_warps": config["warps"], "num_stages": config["stages"]}
    for name, text in config["others"]:
        if name in ("num_ctas", "maxnreg"):
            options[name] = eval(text, {})
    made = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    cubin = made.asm["cubin"]
    registers, spilled = resources_of(cubin)
    return {"registers": registers, "spilled": spilled, "smem": int(made.metadata.shared),
            "code": hashlib.sha256(code_of(cubin)).hexdigest()}


def sections(cubin):
    """The ELF sections of a cubin: name -> bytes."""
    if cubin[:4] != b"\x7fELF":
        return {}
    offset, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + at * size) for at in range(count)]
    table = headers[names]
    found = {}
    for header in headers:
        start = table[4] + header[0]
        name = cubin[start:cubin.index(b"\0", start)].decode(errors="replace")
        found[name] = (cubin[header[4]:header[4] + header[5]] if header[1] != 8 else b"", header)
    return found


def code_of(cubin):
    """The instructions alone: debug lines and names may differ where the code does not."""
    found = [data for name, (data, _) in sorted(sections(cubin).items()) if name.startswith(".text")]
    return b"".join(found) or cubin


def resources_of(cubin):
    """Registers of a thread, and the bytes that it keeps in local memory: two attributes of .nv.info."""
    registers = spilled = 0
    data, _ = sections(cubin).get(".nv.info", (b"", None))
    at = 0
    while at + 4 <= len(data):
        form, kind, size = struct.unpack_from("<BBH", data, at)
        if form == 4 and size >= 8:
            value = struct.unpack_from("<II", data, at + 4)[1]
            registers = max(registers, value) if kind == REGISTERS else registers
            spilled = max(spilled, value) if kind == FRAME else spilled
        at += 4 + (size if form == 4 else 0)
    return registers, spilled


def compile_all(request, folder):
    file = File(request["source"], request["path"], request["target"])
    file.read()
    kernel = chosen(file, request["kernel"])
    if kernel.node is None:
        raise Failed("the kernel's own text is not in the file")
    given = given_values(request)
    arguments = kernel.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = {arg.arg: default_of(value) for arg, value in
                    [*zip(positional[len(positional) - len(arguments.defaults):], arguments.defaults),
                     *[(arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value]]}
    module = load_slice(slice_of(file, kernel), request["path"], folder)
    target = 10 * request["target"]["major"] + request["target"]["minor"]

    def started(config, facts):
        seconds = request["seconds"]
        one = lambda: compile_one(module, kernel.node.name, config, facts, target)  # noqa: E731
        return in_child(one, PATIENCE * seconds, seconds)

    for dtype in types_to_try(kernel, request.get("dtype")):
        types, constants, multiples, assumed, use = signature_of(file, kernel, given, dtype)
        use.defaults = defaults
        facts = (types, constants, multiples, use)
        first = result_of(started(request["configs"][0], facts))
        if "failed" not in first:
            break
    if "failed" in first:
        return {"facts": [first] * len(request["configs"]), "assumed": [], "dtype": ""}
    results, running, waiting = {0: first}, {}, list(enumerate(request["configs"]))[1:]
    while waiting or running:
        while waiting and len(running) < max(1, len(os.sched_getaffinity(0))):
            at, config = waiting.pop(0)
            running[at] = started(config, facts)
        at = next(iter(running))
        results[at] = result_of(running.pop(at))
    return {"facts": [results[at] for at in range(len(request["configs"]))], "assumed": assumed,
            "dtype": dtype}


def default_of(node):
    text = ast.unparse(node)
    return lambda module: eval(text, dict(vars(module)))


def load_slice(text, path, folder):
    root, name = place_of(path) if path else (folder, "file")
    sys.path.insert(0, root)
    file = os.path.join(folder, "convtune_kernel.py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
    module_name = f"{name.rpartition('.')[0]}.convtune_kernel" if "." in name else "convtune_kernel"
    loader = importlib.machinery.SourceFileLoader(module_name, file)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(module_name, loader))
    sys.modules[module_name] = module
    loader.exec_module(module)
    return module


def main():
    sys.setrecursionlimit(4000)
    try:
        import triton
    except Exception as error:
        answers.write(json.dumps({"failed": f"{type(error).__name__}: {error}"[:300]}) + "\n")
        answers.flush()
        return
    answers.write(json.dumps({"triton": triton.__version__}) + "\n")
    answers.flush()
    work = {"list": imported_list, "imports": imports, "compile": compile_all}
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory(prefix="convtune_") as folder:
            os.environ.setdefault("TRITON_CACHE_DIR", os.path.join(folder, "cache"))
            limit = request["seconds"] * (PATIENCE * len(request.get("configs", [])) + 1)
            found = result_of(in_child(lambda: work[request["do"]](request, folder), limit))
        answers.write(json.dumps(found) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
