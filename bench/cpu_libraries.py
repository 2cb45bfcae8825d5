"""Libraries that run one convolution on a CPU, each behind a class of the same shape; used by cpu_peers.py, which
makes one in each worker process. A library is imported by load() and nowhere else.

A class has `load()`, `versions()`, and `ways(problem, data)`: {what it is called: a function that runs once and leaves its
output in `.output`, an array of y's shape in any order of memory, or the reason why it cannot}. Nothing but the
run is timed: weights are packed, models compiled and tensors laid before.
"""

import ctypes
import datetime
import importlib
import json
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Data:
    """x, w, and bias and residual (or None) as NumPy arrays, channels first; bf16 as its upper 16 bits in uint16."""
    x: object
    w: object
    bias: object
    residual: object = None


class Way:
    """`run()` does the work once. `read()` gives the output as a NumPy array, channels first, bf16 as uint16."""

    def __init__(self, run, read, config=""):
        self.run, self.read, self.config = run, read, config


def attempt(make, *arguments):
    """A way, or the reason why there is none: whatever a library raises belongs in the table."""
    try:
        return make(*arguments)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def medians_in_turns(runs, seconds, rounds):
    """Medians by name, in microseconds, of functions that run in turns of this process. Turns go round and back; each warms up with a
    run, and has its share of the seconds or takes one sample."""
    samples = {name: [] for name in runs}
    for round_ in range(rounds):
        for name in list(runs) if round_ % 2 == 0 else list(runs)[::-1]:
            run, end = runs[name], time.perf_counter() + seconds / rounds / len(runs)
            run()
            while True:
                start = time.perf_counter_ns()
                run()
                samples[name].append((time.perf_counter_ns() - start) / 1000)
                if time.perf_counter() > end:
                    break
    return {name: statistics.median(found) for name, found in samples.items()}


def write_rows(path, where, rows):
    """Writes a table as JSON, a row a line, with where and when it was measured."""
    where = where | {"date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"}
    lines = ",\n  ".join(map(json.dumps, rows))
    Path(path).write_text(f'{{\n "environment": {json.dumps(where)},\n "rows": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def even(problem):
    return problem.before == problem.behind


class Library:
    def __init__(self, threads):
        self.threads = threads

    def fingerprint(self):
        """Returns convtune's name of the machine; the others do not say."""
        return ""

    def rivals(self, problem, data):
        """Ways that are not convtune's."""
        return self.ways(problem, data)


class Convtune(Library):
    """Returns convtune's plan, from its record or its estimate, or a plan that the caller names; `tune`: seconds in which
    it searches first; `offset`: bytes from a cache line to x and y. Then oneDNN as convtune calls it: in the problem's layout, and in
    the layout that oneDNN chooses with both conversions counted. `layouts`: all of that in channels last, too."""

    def __init__(self, threads, tune=0, plan="", offset=0, layouts=False):
        super().__init__(threads)
        self.tune, self.plan, self.offset, self.layouts = tune, plan, offset, layouts
        self.kept_for = self.kept_layout = self.kept = None

    def load(self):
        sys.path.insert(0, str(ROOT / "python"))
        built = ROOT / "build/release/src/c/libconvtune_c.so"
        if built.exists():
            os.environ.setdefault("CONVTUNE_LIBRARY", str(built))
        self.module, self.np = importlib.import_module("convtune"), importlib.import_module("numpy")
        self.module.set_cpu_threads(self.threads)

    def versions(self):
        """oneDNN's is asked of the file that convtune has loaded."""
        attempt(self.module.Convolution, "mb1ic1ih1oc1kh1", "cpu", "onednn")
        files = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libdnnl.so" in line}
        numbers = [ctypes.cast(ctypes.CDLL(file).dnnl_version, ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_int * 3)))()[0]
                   for file in files]
        return {"convtune": self.module.__version__} | {"oneDNN": ".".join(map(str, n)) for n in numbers}

    def fingerprint(self):
        return next(d.fingerprint for d in self.module.devices() if d.device == "cpu")

    def environment(self):
        return {"fingerprint": self.fingerprint(), "threads": self.threads, "versions": self.versions()}

    def way(self, problem, data, line, algorithm=None, config=None):
        planned = self.module.Convolution(line, "cpu", algorithm, config)
        x, y, residual = self.tensors(problem, data)
        w = data.w.reshape(planned.problem.weight_shape)
        packed = self.module.pack(planned, *(self.typed(problem, a) for a in (w, data.bias) if a is not None))
        x_at, packed_at, y_at = x.ctypes.data, packed.pointer, y.ctypes.data
        residual_at = 0 if residual is None else residual.ctypes.data

        def read():
            """The output, which is then spoiled: the next way has to write its own."""
            output = y.copy()
            y.view(self.np.uint8).fill(255)  # NaN
            return self.np.moveaxis(output, -1, 1) if problem.layout == "nhwc" else output

        names = ("dy", "dx") if problem.transposed else ("x", "y")
        tensors = dict(zip(names, (x_at, y_at), strict=True))
        run = (lambda: planned.run_tensors_raw(**tensors, residual=residual_at, packed=packed_at)) \
            if residual_at or problem.transposed else (lambda: planned.run_raw(x_at, packed_at, y_at))
        way = Way(run, read, f"{planned.plan.algorithm} {planned.plan.config}".rstrip())
        way.kept = planned, packed, x, y, residual
        return way

    def tensors(self, problem, data):
        """x, y and the residual (or None), the same for every way of a problem: the same code on two pairs of tensors differs by a tenth
        with the pages that they happen to lie in, and oneDNN is a way of its own and often convtune's plan."""
        if self.kept_for is not data or self.kept_layout != problem.layout:
            axes = range(2, data.x.ndim)
            order = (0, *axes, 1) if problem.layout == "nhwc" else (0, 1, *axes)

            def laid(array):
                there = self.at_lines([array.shape[axis] for axis in order], data.x.dtype)
                there[...] = array.transpose(order)
                return there

            y = self.at_lines([problem.y_shape[axis] for axis in order], data.x.dtype)
            self.kept_for, self.kept_layout = data, problem.layout
            self.kept = laid(data.x), y, None if data.residual is None else laid(data.residual)
        return self.kept

    def at_lines(self, shape, dtype):
        """An array that begins `offset` bytes behind a line of the cache: 0 as PyTorch's tensors, 16 as NumPy's."""
        np, line = self.np, 64
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = np.empty(size + 2 * line, np.uint8)
        first = -memory.ctypes.data % line + self.offset
        return memory[first:first + size].view(dtype).reshape(shape)

    def typed(self, problem, array):
        return array if problem.dtype == "f32" else array.view(importlib.import_module("ml_dtypes").bfloat16)

    def ways(self, problem, data):
        ways = self.in_layout(problem, data)
        if self.layouts and problem.layout == "nchw" and len(problem.strides) > 1:  # as PyTorch, which has no 1-D one
            last = self.in_layout(replace(problem, layout="nhwc"), data)
            ways |= {f"{name} nhwc=1": way for name, way in last.items()}
        return ways

    def in_layout(self, problem, data):
        line = problem.key()
        if self.tune:
            self.module.tune(line, "cpu", self.tune, progress=False)
        algorithm, _, config = self.plan.partition(" ")
        return {"convtune": attempt(self.way, problem, data, line, algorithm or None, config or None),
                **self.rivals(problem, data)}

    def rivals(self, problem, data):
        line = problem.key()
        return {f"onednn blocked={blocked}": attempt(self.way, problem, data, line, "onednn", f"blocked={blocked}")
                for blocked in (0, 1)}


class PyTorch(Library):
    """F.conv1d to conv_transpose3d in inference mode, channels first and channels last; a residual and an activation follow it in place
    where PyTorch has them so."""

    def load(self):
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(self.threads)

    def versions(self):
        config = self.torch.__config__.show()
        inside = config.partition("MKL-DNN v")[2].split(" ")[0]
        return {"PyTorch": self.torch.__version__} | ({"PyTorch's oneDNN": inside} if inside else {})

    def way(self, problem, data, channels_last):
        torch, a, axes = self.torch, problem, len(problem.strides)
        if channels_last and axes == 1:
            raise ValueError("PyTorch has no channels last of one axis")
        last = torch.channels_last if axes == 2 else torch.channels_last_3d
        order = last if channels_last else torch.contiguous_format

        def tensor(array):
            found = torch.from_numpy(array)
            return found.view(torch.bfloat16) if a.dtype == "bf16" else found

        x, w = (tensor(array).clone().contiguous(memory_format=order) for array in (data.x, data.w))
        bias = None if data.bias is None else tensor(data.bias)
        functional, padding = torch.nn.functional, a.before if even(a) else 0
        margins = None if even(a) else [pad for ends in zip(a.before[::-1], a.behind[::-1], strict=True) for pad in ends]
        activate = self.activation(a)
        convolve = getattr(functional, f"conv{'_transpose' if a.transposed else ''}{axes}d")
        rest = (a.output_padding, a.groups, a.dilations) if a.transposed else (a.dilations, a.groups)
        residual = None if data.residual is None else tensor(data.residual).clone().contiguous(memory_format=order)

        def run():
            with torch.inference_mode():
                image = functional.pad(x, margins) if margins else x
                y = convolve(image, w, bias, a.strides, padding, *rest)
                way.output = activate(y if residual is None else y.add_(residual))

        def read():
            return (way.output.view(torch.int16) if a.dtype == "bf16" else way.output).numpy().view(data.x.dtype)

        way = Way(run, read)
        return way

    def activation(self, problem):
        name, parameters = problem.activation
        functional = self.torch.nn.functional
        return {"none": lambda y: y, "relu": lambda y: y.relu_(), "clip": lambda y: y.clamp_(*parameters),
                "silu": lambda y: functional.silu(y, inplace=True), "sigmoid": lambda y: y.sigmoid_(),
                "gelu_erf": functional.gelu, "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
                "hardswish": lambda y: functional.hardswish(y, inplace=True),
                "leaky_relu": lambda y: functional.leaky_relu_(y, *parameters)}[name]

    def ways(self, problem, data):
        return {f"torch nhwc={last}": attempt(self.way, problem, data, last) for last in (0, 1)}


class OnnxRuntime(Library):
    """A model of a convolution with its weights as initializers, and of its residual and activation, which the library
    fuses where it can; inputs and output are bound to memory of ours."""

    def load(self):
        self.module, self.onnx = importlib.import_module("onnxruntime"), importlib.import_module("onnx")
        self.np = importlib.import_module("numpy")

    def versions(self):
        return {"ONNX Runtime": self.module.__version__}

    def model(self, a, data):
        helper, kind = self.onnx.helper, getattr(self.onnx.TensorProto, "FLOAT" if a.dtype == "f32" else "BFLOAT16")

        def constant(name, array):
            return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)

        inputs, constants = ["x", "w"], [constant("w", data.w)]
        if data.bias is not None:
            inputs, constants = [*inputs, "b"], [*constants, constant("b", data.bias)]
        values = [helper.make_tensor_value_info("x", kind, data.x.shape)]
        more = {"output_padding": a.output_padding} if a.transposed else {}
        nodes = [helper.make_node("ConvTranspose" if a.transposed else "Conv", inputs, ["sum"],
                                  kernel_shape=a.w_shape[2:], strides=a.strides, dilations=a.dilations,
                                  pads=[*a.before, *a.behind], group=a.groups, **more)]
        if data.residual is not None:
            values.append(helper.make_tensor_value_info("residual", kind, data.residual.shape))
            nodes.append(helper.make_node("Add", ["sum", "residual"], ["added"]))
        last, (name, parameters) = nodes[-1].output[0], a.activation
        if name == "silu":
            nodes += [helper.make_node("Sigmoid", [last], ["gate"]), helper.make_node("Mul", [last, "gate"], ["y"])]
        elif name == "clip":
            constants += [helper.make_tensor(bound, kind, (), [value])
                          for bound, value in zip(("low", "high"), parameters, strict=True)]
            nodes.append(helper.make_node("Clip", [last, "low", "high"], ["y"]))
        elif name != "none":
            operator, attributes = {"relu": ("Relu", {}), "sigmoid": ("Sigmoid", {}), "hardswish": ("HardSwish", {}),
                                    "gelu_erf": ("Gelu", {}), "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
                                    "leaky_relu": ("LeakyRelu", {"alpha": (parameters or [0])[0]})}[name]
            nodes.append(helper.make_node(operator, [last], ["y"], **attributes))
        nodes[-1].output[0] = "y"
        graph = helper.make_graph(nodes, "convolution", values,
                                  [helper.make_tensor_value_info("y", kind, a.y_shape)], constants)
        opset = [helper.make_opsetid("", 20 if a.dtype == "f32" else 22)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10)

    def way(self, problem, data):
        options = self.module.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 4
        session = self.module.InferenceSession(self.model(problem, data).SerializeToString(), options,
                                                providers=["CPUExecutionProvider"])
        y = self.np.empty(problem.y_shape, data.x.dtype)
        binding = session.io_binding()
        binding.bind_input("x", "cpu", 0, data.x.dtype, data.x.shape, data.x.ctypes.data)
        if data.residual is not None:
            shape, at = data.residual.shape, data.residual.ctypes.data
            binding.bind_input("residual", "cpu", 0, data.x.dtype, shape, at)
        binding.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)
        way = Way(lambda: session.run_with_iobinding(binding), lambda: y)
        way.kept = data, y
        return way

    def ways(self, problem, data):
        return {"onnxruntime": attempt(self.way, problem, data)}


class OpenVino(Library):
    """A model of one operation, compiled for latency with one stream; tensors share memory with ours. A bf16 problem
    has bf16 tensors, and bf16 as the precision of inference."""

    def load(self):
        self.module, self.np = importlib.import_module("openvino"), importlib.import_module("numpy")
        self.operators = importlib.import_module("openvino.opset13")
        self.core = self.module.Core()

    def versions(self):
        return {"OpenVINO": self.module.__version__.split("-")[0]}

    def way(self, problem, data):
        a, ov, operators = problem, self.module, self.operators
        kind = ov.Type.f32 if a.dtype == "f32" else ov.Type.bf16
        if a.transposed:
            raise ValueError("transposed layers are not asked of OpenVINO here")

        def tensor(array, shape):
            return ov.Tensor(array, ov.Shape(list(shape)), kind)

        x = operators.parameter(list(data.x.shape), kind)
        shape = data.w.shape if a.groups == 1 else (a.groups, a.k // a.groups, *data.w.shape[1:])
        w = operators.constant(tensor(data.w, shape), shared_memory=False)
        convolve = operators.convolution if a.groups == 1 else operators.group_convolution
        y = convolve(x, w, list(a.strides), list(a.before), list(a.behind), list(a.dilations))
        if data.bias is not None:
            y = operators.add(y, operators.constant(tensor(data.bias, (1, a.k, *[1] * len(a.strides))), shared_memory=False))
        inputs = [x]
        if data.residual is not None:
            inputs.append(operators.parameter(list(data.residual.shape), kind))
            y = operators.add(y, inputs[1])
        name, parameters = a.activation
        if name == "leaky_relu":
            y = operators.prelu(y, operators.constant(parameters, kind))
        elif name.startswith("gelu"):
            y = operators.gelu(y, name.removeprefix("gelu_"))
        elif name != "none":
            y = {"relu": operators.relu, "silu": lambda v: operators.multiply(v, operators.sigmoid(v)),
                 "sigmoid": operators.sigmoid, "clip": operators.clamp, "hardswish": operators.hswish}[name](y, *parameters)
        compiled = self.core.compile_model(
            ov.Model([y], inputs, "convolution"), "CPU",
            {"INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
             "INFERENCE_PRECISION_HINT": a.dtype})
        request, out = compiled.create_infer_request(), self.np.empty(a.y_shape, data.x.dtype)
        request.set_input_tensor(0, tensor(data.x, data.x.shape))
        if data.residual is not None:
            request.set_input_tensor(1, tensor(data.residual, data.residual.shape))
        request.set_output_tensor(tensor(out, out.shape))
        way = Way(lambda: (request.start_async(), request.wait()), lambda: out)
        way.kept = data, out
        return way

    def ways(self, problem, data):
        return {"openvino": attempt(self.way, problem, data)}


LIBRARIES = {"convtune": Convtune, "torch": PyTorch, "onnxruntime": OnnxRuntime, "openvino": OpenVino}
