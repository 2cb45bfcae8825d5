"""Compiles a kernel's configs with Triton's own compiler, for a GPU that need not be here; the list that a file's
autotuner has once it is imported; and whether a file can be imported at all.

Started by `convtune refine --trust` where Triton can be imported. Requests are lines of JSON on standard input, answers
lines of JSON on standard output, after a first line that says which Triton this is. Every import and every compile
happens in a child process of its own. An import runs the file; what is compiled is a slice (triton_slice), of which
nothing is run, and by a process without a network.
"""

import hashlib
import inspect
import json
import os
import signal
import struct
import sys
import tempfile

from python_limits import leave_network, limit_memory
from python_modules import load
from python_objects import PLAIN
from triton_file import File
from triton_reader import chosen, given_values
from triton_signature import signature_of, truths, types_to_try
from triton_slice import Failed, Slice

REGISTERS, FRAME = 0x2F, 0x11  # attributes of a cubin's .nv.info
OPTIONS = ("num_ctas", "maxnreg")  # arguments of a config that change the code, beside its warps and stages
MEMORY = 16 << 30  # bytes of addresses of a process that compiles
PATIENCE = 4  # a compile's limit is of processor time, so that a busy machine changes no answer; by the clock it has more

answers = os.fdopen(os.dup(1), "w")


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
        except BaseException as error:  # an exception of somebody else's file: SystemExit, too
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

def compile_one(function, values, config, facts, target):
    """Registers, spills, shared memory and code. `values`: the config's parameters and OPTIONS, worked out by the reader."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types, constants, multiples, use, truth = facts
    given = {**constants, **truth, **{name: values[name] for name, _ in config["meta"]}}
    defaults = {name: one.default for name, one in inspect.signature(getattr(function, "fn", function)).parameters.items()
                if one.default is not one.empty}
    missing = [name for name in use.params if name in use.constexprs - given.keys() - defaults.keys()]
    if missing:
        raise Failed(f"the value of {', '.join(missing)} is not known")
    given = {name: value for name, value in given.items() if name in use.params}
    signature = {name: "constexpr" if name in given or name in use.constexprs else types[name]
                 for name in use.params if name in given or name in types or name in use.constexprs}
    for name in use.constexprs:
        if name not in given:
            given[name] = defaults[name]
    places = {name: (use.params.index(name),) for name in use.params}
    attrs = {places[name]: [["tt.divisibility", 16]] for name in multiples if name not in given}
    source = ASTSource(fn=function, signature=signature, constexprs={places[name]: value for name, value in given.items()},
                       attrs=attrs)
    options = {"num_warps": config["warps"], "num_stages": config["stages"]}
    options.update((name, values[name]) for name, _ in config["others"] if name in OPTIONS)
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
    limit_memory(MEMORY)
    leave_network()
    file = File(request["source"], request["path"], request["target"])
    file.read()
    kernel = chosen(file, request["kernel"])
    if kernel.node is None:
        raise Failed("the kernel's own text is not in the file")
    part = Slice(file, kernel)
    function = getattr(part.load(folder), part.kernel)
    values = [{name: part.value(text, kernel.scope, f"its {name}, '{text[:60]}',") for name, text in [
        *config["meta"], *[one for one in config["others"] if one[0] in OPTIONS]]} for config in request["configs"]]
    given = given_values(request)
    target = 10 * request["target"]["major"] + request["target"]["minor"]

    def compiled(first, facts):
        """All configs' facts, as many at once as there are processors."""
        results, running, waiting = {0: first}, {}, list(range(1, len(request["configs"])))
        while waiting or running:
            while waiting and len(running) < max(1, len(os.sched_getaffinity(0))):
                at = waiting.pop(0)
                running[at] = started(at, facts)
            at = next(iter(running))
            results[at] = result_of(running.pop(at))
        return [results[at] for at in range(len(request["configs"]))]

    def started(at, facts):
        seconds, config = request["seconds"], request["configs"][at]
        one = lambda: compile_one(function, values[at], config, facts, target)  # noqa: E731
        return in_child(one, PATIENCE * seconds, seconds)

    defaults = inspect.signature(getattr(function, "fn", function)).parameters
    defaults = {name for name, one in defaults.items() if one.default is not one.empty}
    for dtype in types_to_try(kernel, request.get("dtype")):
        types, constants, multiples, assumed, use = signature_of(file, kernel, given, dtype)
        constants = {name: part.worked_out(value, name) for name, value in constants.items()}
        known = {*constants, *[name for name, _ in request["configs"][0]["meta"]]}
        variants, first = [], {}
        for truth in truths(kernel, known, defaults):
            facts = (types, constants, multiples, use, truth)
            first = result_of(started(0, facts))
            if "failed" not in first:
                variants.append((truth, facts, first))
        if variants:
            break
    if not variants:
        return {"variants": [{"given": {}, "facts": [first] * len(request["configs"])}], "assumed": [], "dtype": ""}
    found = [{"given": truth, "facts": compiled(first, facts)} for truth, facts, first in variants]
    return {"variants": found, "assumed": assumed, "dtype": dtype}


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
