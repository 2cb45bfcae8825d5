"""The Python reader of ONNX files under mutations: for whatever bytes a list or a reason, never an exception of another
kind, nor more than 20 s or some GiB. What ends the process (onnx is C++) is counted; the command makes a sentence of it.

Usage: onnx_fuzz.py FILES [CONVTUNE [EACH]]: so many files, 1000 a process; with CONVTUNE every EACHth (50) is given to the
whole command, too. Exit code 1 and the file in crash-onnx.onnx at the first failure; 77 where onnx is not installed.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent / "src" / "onnx"), str(HERE.parent / "python")]
try:
    import onnx
except ImportError:
    print("onnx_fuzz: skipped, the Python package onnx is not installed here")
    sys.exit(77)
import onnx_file  # noqa: E402
import onnx_models as models  # noqa: E402
import onnx_reader as reader  # noqa: E402
from forked_python import served  # noqa: E402
from mutated_bytes import bytes_mutated  # noqa: E402
from onnx import helper  # noqa: E402

NUMBERS = [0, 1, -1, 2, 3, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 10**12]
NAMES = ["", "input", "x" * 70_000, "\x1b[2J", 'a"b', "é\u2028", "weight_3", "Conv_4"]
KINDS = ["Conv", "ConvTranspose", "Relu", "Add", "Mul", "Sigmoid", "Reshape", "Loop", "If", "Scan", "Constant", "Resize",
         "BatchNormalization", "Clip", "Tile", "Expand", "ConstantOfShape", "Range", "Shape", "Concat", "ConvInteger", "Nothing",
         "Pad", "FusedConv", "NhwcFusedConv", "NhwcConv", "Cast", "Slice", "Transpose", "Split", "DequantizeLinear"]
BATCH = [None, 1, 8, 0, -1, 2**62]


def nested(kind, depth):
    """Graphs in graphs."""
    inner = helper.make_graph([], "g", [], [])
    for _ in range(depth):
        inner = helper.make_graph([helper.make_node(kind, ["input"], ["v"], body=inner)], "g", [], [])
    return inner


def field(number, data):
    length, size = b"", len(data)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def bomb(depth):
    """As above, deeper than any library writes it: the bytes of a model's graph, to be merged into another's."""
    data = b""
    for _ in range(depth):
        data = field(1, field(5, field(6, data)))  # a node's attribute's graph
    return field(7, data)


def fields_mutated(model, draw):
    graph = model.graph
    for _ in range(draw.choice((1, 1, 2, 5))):
        node, weight = draw.choice(graph.node), draw.choice(graph.initializer)
        number, kind = draw.choice(NUMBERS), draw.randrange(13)
        if kind == 0 and weight.dims:
            weight.dims[draw.randrange(len(weight.dims))] = number
        elif kind == 1:
            weight.dims.extend([number] * draw.choice((1, 2, 100)))
        elif kind == 2:
            draw.choice(graph.input).type.tensor_type.shape.dim[draw.randrange(4)].dim_value = number
        elif kind == 3 and node.attribute:
            attribute = draw.choice(node.attribute)
            attribute.ints[:] = [draw.choice(NUMBERS) for _ in range(draw.choice((0, 1, 2, 4, 5, 3000)))]
            attribute.i = number
            attribute.type = draw.choice((attribute.type, attribute.type, draw.randrange(15)))
        elif kind == 4 and node.input:  # cycles, and what is not there
            node.input[draw.randrange(len(node.input))] = draw.choice([draw.choice(graph.node).output[0], *NAMES])
        elif kind == 5 and node.output:
            node.output[draw.randrange(len(node.output))] = draw.choice([draw.choice(graph.node).output[0], *NAMES])
        elif kind == 6:
            node.op_type = draw.choice(KINDS)
        elif kind == 7:
            node.domain = draw.choice(["", "ai.onnx", "com.microsoft", "mine"])
        elif kind == 8:
            model.opset_import[0].version = draw.choice([*NUMBERS, 1, 6, 7, 9, 11, 13, 17, 21, 99])
        elif kind == 9:
            node.attribute.append(helper.make_attribute("then_branch", nested(draw.choice(KINDS), draw.choice((1, 5, 20, 30)))))
        elif kind == 10:
            name = draw.choice(["A", "B"])
            calls = [helper.make_node(draw.choice(["A", "B", "Relu"]), ["a"], [f"v{at}"], domain="mine") for at in range(3)]
            model.functions.append(helper.make_function("mine", name, ["a"], ["v0"], calls, [helper.make_opsetid("mine", 1)]))
            node.op_type, node.domain = name, "mine"
        elif kind == 11:
            weight.data_type = draw.choice([*range(26), -1, 2**31 - 1])
        else:
            del graph.node[draw.randrange(len(graph.node))]
    return model.SerializeToString()


def case(number):
    draw = random.Random(number)
    model = getattr(models, draw.choice(("resnet50", "mobilenet_v2", "yolo", "unet", "computed_pads", "fused")))()
    data = fields_mutated(model, draw) if draw.random() < 0.6 else model.SerializeToString()
    if draw.random() < 0.5:
        data = bytes_mutated(data, draw)
    if draw.random() < 0.02:
        data += bomb(draw.choice((10, 32, 33, 100, 3000)))
    batch = draw.choice(BATCH)
    return data, (1 if batch is None and draw.random() < 0.8 else batch), draw.choice(({}, {}, {"input": [1, 3, 64, 64]}))


def judge(number):
    """0 for a list, 1 for a reason."""
    data, batch, shapes = case(number)
    try:
        found = json.loads(json.dumps(reader.read(onnx_file.parse(data), batch, shapes)))
    except (onnx_file.Refused, MemoryError, RecursionError, OSError) as error:
        assert len(str(error)) < 2000, f"a reason of {len(str(error))} bytes"
        return 1
    assert all(one["problem"] and one["count"] == len(one["layers"]) for one in found["convolutions"])
    return 0


def worker(begin, end):
    """Judges in a process of its own and writes a digit a file into a pipe; returns what came, and how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (onnx_file.PLAIN_MEMORY,) * 2)
        signal.alarm(0)
        code = 1
        try:
            for number in range(begin, end):
                signal.alarm(20)  # its default ends the process, in C++ too
                os.write(write, str(judge(number)).encode())
            code = 0
        finally:
            os._exit(code) if code == 0 else (sys.excepthook(*sys.exc_info()), sys.stderr.flush(), os._exit(code))
    os.close(write)
    with open(read, "rb") as stream:
        digits = stream.read()
    return digits, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def through_the_command(convtune, python, path, number):
    data, batch, shapes = case(number)
    path.write_bytes(data)
    options = ["--batch", str(batch)] if batch is not None and batch >= 0 else []
    options += [word for name, extents in shapes.items() for word in ("--shape", f"{name}={'x'.join(map(str, extents))}")]
    ran = subprocess.run([convtune, "cases", "--model", str(path), "--python", python, *options],
                         capture_output=True, text=True, errors="replace", timeout=200, stdin=subprocess.DEVNULL)
    sentences = ran.stderr.count("convtune: error: ")
    assert (ran.returncode, sentences) in ((0, 0), (2, 1)), (number, ran.returncode, ran.stderr)
    assert "\x1b" not in ran.stderr + ran.stdout, number
    return ran.returncode


def all_through_the_command(convtune, numbers):
    """The exit codes; a Python of its own gives the same for the first."""
    with tempfile.TemporaryDirectory() as folder, served(folder) as python:
        path = Path(folder) / "net.onnx"
        codes = [through_the_command(convtune, python, path, number) for number in numbers]
        assert codes[:5] == [through_the_command(convtune, sys.executable, path, number) for number in numbers[:5]]
    return codes


def main():
    files = int(sys.argv[1])
    convtune, each = (sys.argv[2] if len(sys.argv) > 2 else None), int(sys.argv[3]) if len(sys.argv) > 3 else 50
    done, counts, ended = 0, [0, 0], {}
    while done < files:
        digits, code = worker(done, min(done + 1000, files))
        for digit in digits:
            counts[digit - ord("0")] += 1
        done += len(digits)
        if code == 0:
            continue
        if code > 0 or code == -signal.SIGALRM:
            Path("crash-onnx.onnx").write_bytes(case(done)[0])
            sys.exit(f"number {done} fails: crash-onnx.onnx: {'more than 20 s' if code < 0 else 'see above'}")
        ended[done] = signal.Signals(-code).name
        done += 1
    whole = all_through_the_command(convtune, [*ended, *range(0, files, each)]) if convtune else []
    print(f"{files} files: {counts[0]} listed, {counts[1]} refused, {len(ended)} ended the reader {ended or ''}; "
          f"{len(whole)} through the command: {whole.count(0)} listed, {whole.count(2)} refused")


if __name__ == "__main__":
    main()
