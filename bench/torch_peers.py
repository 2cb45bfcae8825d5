"""PyTorch's ways of running a convolution, and a Triton kernel from a file, checked and timed on one GPU.

Used by peers.py, which hands in the torch module: nothing here needs PyTorch to be imported.
"""

import contextlib
import datetime
import importlib
import importlib.util
import math
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field, replace

from problem_lines import BadInput

SAMPLES = 2048  # output elements that are compared with sums in double precision
MIN_ROUNDS, MAX_ROUNDS = 5, 5000
ROUNDING = {"fp32": 0.0, "tf32": 2.0**-11}  # per operand, before it is multiplied


class NoDevice(Exception):
    """PyTorch or a GPU is missing; the message says which."""


@dataclass
class Provider:
    """A row of the table. `answers`: whether it takes and gives tensors that lie as the problem says."""
    algorithm: str
    config: str = ""
    answers: bool = True
    time_us: float = 0
    mad_us: float = 0
    n: int = 0
    max_error: float = 0
    failure: str = ""
    wrong: bool = False  # it ran, and its answer was not right
    run: object = None
    samples: list = field(default_factory=list)

    @property
    def name(self):
        return f"{self.algorithm} {self.config}".strip()

    def json(self, floor_us):
        fraction = floor_us / self.time_us if self.time_us > 0 else 0
        row = {"name": self.name, "algorithm": self.algorithm, "config": self.config, "time_us": self.time_us,
               "mad_us": self.mad_us, "n": self.n, "roofline_fraction": fraction, "max_error": self.max_error}
        return row | ({"failure": self.failure} if self.failure else {})


class Machine:
    """A GPU as PyTorch shows it: the stopwatch, and the checks against double precision."""

    def __init__(self, torch, index):
        if not torch.cuda.is_available():
            raise NoDevice("PyTorch sees no GPU here")
        if index >= torch.cuda.device_count():
            raise NoDevice(f"there is no device {index}; PyTorch shows {torch.cuda.device_count()}")
        self.torch, self.device = torch, torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        torch.backends.cudnn.benchmark = True
        self.properties = torch.cuda.get_device_properties(self.device)
        # Long enough that the host has queued the work before the device is done with the flush.
        bytes_flushed = max(8 * self.properties.L2_cache_size, 256 << 20)
        self.flush = torch.empty(bytes_flushed // 4, dtype=torch.int32, device=self.device)
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def fingerprint(self):
        major, minor = self.properties.major, self.properties.minor
        isa = f"sm_{major}{minor}{'a' if 9 <= major <= 11 else ''}"  # as src/capability.cpp has it
        return f"cuda|{self.properties.name}|{isa}|{self.properties.multi_processor_count} SMs"

    def environment(self):
        torch, cudnn = self.torch, self.torch.backends.cudnn.version()  # 91900 for 9.19.0
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda,
                    "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"}
        with contextlib.suppress(ImportError):
            versions["triton"] = importlib.import_module("triton").__version__
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            asked = ["nvidia-smi", f"--id={self.device.index}", "--query-gpu=driver_version", "--format=csv,noheader"]
            versions["driver"] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        return {"device": self.properties.name, "fingerprint": self.fingerprint(), "threads": os.cpu_count(),
                "versions": versions, "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"}

    def time_us(self, run):
        self.flush.add_(1)
        self.start.record()
        run()
        self.stop.record()
        self.stop.synchronize()
        return 1000 * self.start.elapsed_time(self.stop)


class Case:
    """One problem's tensors, its peers, and its oracle."""

    def __init__(self, machine, problem):
        torch = machine.torch
        self.machine, self.torch, self.problem = machine, torch, problem
        a = problem
        if a.dtype != "f32" or a.precision not in ("auto", "fp32", "tf32"):
            raise BadInput(f"PyTorch has no like of dtype={a.dtype} precision={a.precision} with f32 tensors")
        if a.n == 0:
            raise BadInput("a batch of 0 has nothing to measure")
        if a.act not in ("none", "relu") or a.residual:
            raise BadInput("activations but ReLU and residuals are compared on CPUs alone")
        if a.precision == "auto":  # the precision that convtune takes it for on a GPU
            self.problem = a = replace(a, precision="tf32")
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.precision == "tf32"
        if hasattr(torch.backends.cudnn, "fp32_precision"):  # the setting that torch.compile's own kernels go by since 2.9
            torch.backends.cudnn.fp32_precision = "tf32" if a.precision == "tf32" else "ieee"
        generator = torch.Generator(machine.device).manual_seed(1)

        def uniform(*shape):
            return torch.rand(shape, generator=generator, device=machine.device) * 2 - 1

        formats = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
        x, w = uniform(a.n, a.c, a.h, a.w), uniform(a.k, a.c // a.groups, a.r, a.s)
        self.bias = uniform(a.k) if a.bias else None
        self.x = {layout: x.contiguous(memory_format=as_) for layout, as_ in formats.items()}
        self.w = {layout: w.contiguous(memory_format=as_) for layout, as_ in formats.items()}
        self.formats, self.other = formats, "nhwc" if a.layout == "nchw" else "nchw"
        self.expected = self.oracle(x, w)

    def oracle(self, x, w):
        """Sampled outputs without their activation, and the sums of |x*w| behind them, in double precision."""
        torch, a = self.torch, self.problem
        generator = torch.Generator().manual_seed(2)
        count = min(SAMPLES, a.n * a.k * a.p * a.q)
        at = [torch.randint(0, extent, (count,), generator=generator).to(x.device) for extent in (a.n, a.k, a.p, a.q)]
        n, k, p, q = at
        channels = a.c // a.groups
        c = (k // (a.k // a.groups) * channels)[:, None] + torch.arange(channels, device=x.device)
        h = (p * a.stride_h - a.pad_top)[:, None] + torch.arange(a.r, device=x.device) * a.dilation_h
        v = (q * a.stride_w - a.pad_left)[:, None] + torch.arange(a.s, device=x.device) * a.dilation_w
        inside = ((h >= 0) & (h < a.h))[:, None, :, None] & ((v >= 0) & (v < a.w))[:, None, None, :]
        value = torch.zeros(count, dtype=torch.float64, device=x.device)
        magnitude = value.clone()
        for chunk in range(0, count, 256):  # or the windows of deep layers would not fit
            s = slice(chunk, chunk + 256)
            seen = x[n[s, None, None, None], c[s, :, None, None], h[s, None, :, None].clamp(0, a.h - 1),
                     v[s, None, None, :].clamp(0, a.w - 1)].double() * inside[s]
            products = seen * w[k[s]].double()
            value[s], magnitude[s] = products.sum((1, 2, 3)), products.abs().sum((1, 2, 3))
        if a.bias:
            value += self.bias[k].double()
            magnitude += self.bias[k].double().abs()
        return at, value, magnitude

    def judge(self, provider, relu):
        """Runs once, compares the samples; a provider that cannot run or is wrong fails."""
        torch, a = self.torch, self.problem
        try:
            y = provider.run()
            torch.cuda.synchronize()
            if tuple(y.shape) != (a.n, a.k, a.p, a.q):
                raise ValueError(f"its output is {tuple(y.shape)}, not {(a.n, a.k, a.p, a.q)}")
            at, value, magnitude = self.expected
            value = value.clamp(min=0) if relu else value
            error = (y[tuple(at)].double() - value).abs()
            terms = a.c // a.groups * a.r * a.s
            limit = 2 * ROUNDING[a.precision] + 8 * 2.0**-24 * math.sqrt(terms + 1)
            provider.max_error = float(error.max() / value.square().mean().sqrt().clamp(min=1e-300))
            wrong = ~(error <= limit * magnitude)  # so written, NaN is wrong
            if bool(wrong.any()):
                i, provider.wrong = int(wrong.nonzero()[0]), True
                raise ValueError(f"y[{', '.join(str(int(index[i])) for index in at)}] is {float(y[tuple(at)][i])}, "
                                 f"double precision says {float(value[i])}")
        except Exception as error:  # whatever PyTorch or a file of the user's raises belongs in the table
            provider.failure = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            provider.run = None

    def variants(self, algorithm, convolve, compiled=lambda function: function):
        """`convolve` in both layouts; in the one that is not the problem's, also with the conversions counted."""
        lies, other = self.problem.layout, self.other

        def converted(x, w):
            y = convolve(x.contiguous(memory_format=self.formats[other]), w)
            return y.contiguous(memory_format=self.formats[lies])

        def runs(function, layout_x, layout_w):
            x, w, function = self.x[layout_x], self.w[layout_w], compiled(function)
            return lambda: function(x, w)

        flag = {"nchw": "nhwc=0", "nhwc": "nhwc=1"}
        return [Provider(algorithm, flag[lies], run=runs(convolve, lies, lies)),
                Provider(algorithm, f"{flag[other]} conversions=1", run=runs(converted, lies, other)),
                Provider(algorithm, f"{flag[other]} conversions=0", answers=False, run=runs(convolve, other, other))]

    def eager(self):
        functional, a = self.torch.nn.functional, self.problem
        uneven = (a.pad_top, a.pad_left) != (a.pad_bottom, a.pad_right)

        def convolve(x, w):
            if uneven:
                x = functional.pad(x, (a.pad_left, a.pad_right, a.pad_top, a.pad_bottom))
            y = functional.conv2d(x, w, self.bias, (a.stride_h, a.stride_w), 0 if uneven else (a.pad_top, a.pad_left),
                                  (a.dilation_h, a.dilation_w), a.groups)
            return y.relu() if a.act == "relu" else y

        return convolve

    def compiled(self, function):
        # Without CUDA graphs, which would copy the input at every call; the host's time is not counted anyway.
        return self.torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)

    def fused(self, x, w):
        a = self.problem
        if (a.pad_top, a.pad_left) != (a.pad_bottom, a.pad_right):
            raise ValueError("PyTorch's door to cuDNN's fused convolution takes even padding only")
        return self.torch.cudnn_convolution_relu(x, w, self.bias, (a.stride_h, a.stride_w), (a.pad_top, a.pad_left),
                                                 (a.dilation_h, a.dilation_w), a.groups)

    def providers(self, chosen, kernel):
        found = []
        relu = self.problem.act == "relu"
        if "eager" in chosen:
            found += [(p, relu) for p in self.variants("torch_eager", self.eager())]
        if "compiled" in chosen:
            self.torch._dynamo.reset()
            found += [(p, relu) for p in self.variants("torch_compiled", self.eager(), self.compiled)]
        if "fused" in chosen:  # with a ReLU whether it was asked for or not: PyTorch offers no other
            found += [(p, True) for p in self.variants("torch_cudnn_conv_bias_relu", self.fused)]
        if kernel:
            provider = Provider("triton_file")
            try:
                provider.run = kernel.bind(self)
            except Exception as error:  # the file is the user's: anything may come of it
                provider.failure = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            found.append((provider, False))
        for provider, rectified in found:
            if provider.run:
                self.judge(provider, rectified)
        return [provider for provider, _ in found]

    def measure(self, providers, seconds):
        """Rounds of one sample each, in an order that is reversed every other round."""
        running, spent = [p for p in providers if p.run], 0.0
        for round_ in range(MAX_ROUNDS):
            if not running or (round_ >= MIN_ROUNDS and spent > seconds * 1e6):
                break
            for provider in running if round_ % 2 == 0 else running[::-1]:
                provider.samples.append(self.machine.time_us(provider.run))
                spent += provider.samples[-1]
        for provider in running:
            provider.time_us, provider.n = statistics.median(provider.samples), len(provider.samples)
            provider.mad_us = statistics.median(abs(s - provider.time_us) for s in provider.samples)


class TritonFile:
    """A Triton kernel from a file: a class ModelNew whose forward(x) is the convolution of its one nn.Conv2d, or,
    named after a colon, a function(x, w, bias, stride, padding)."""

    def __init__(self, text):
        path, _, self.function = text.partition(":")
        if not os.path.isfile(path):
            raise BadInput(f"--triton: there is no file '{path}'")
        self.path, self.module = path, None

    def load(self):
        spec = importlib.util.spec_from_file_location("convtune_triton_file", self.path)
        if spec is None:
            raise BadInput(f"--triton: '{self.path}' is no Python file (its name must end in .py)")
        module = importlib.util.module_from_spec(spec)
        try:
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        except Exception as error:
            raise BadInput(f"--triton: '{self.path}' cannot be imported: {type(error).__name__}: {error}") from None
        wanted = self.function or "ModelNew"
        if not callable(getattr(module, wanted, None)):
            raise BadInput(f"--triton: '{self.path}' has no {'function' if self.function else 'class'} {wanted}")
        self.module = module

    def bind(self, case):
        torch, a = case.torch, case.problem
        if a.layout != "nchw" or a.act != "none" or (a.pad_top, a.pad_left) != (a.pad_bottom, a.pad_right):
            raise ValueError("a kernel from a file is asked for NCHW, no activation and even padding only")
        x, w = case.x["nchw"], case.w["nchw"]
        if self.function:
            if a.groups != 1 or (a.dilation_h, a.dilation_w) != (1, 1):
                raise ValueError("a function from a file is asked for one group without dilation only")
            if a.stride_h != a.stride_w or a.pad_top != a.pad_left:
                raise ValueError("a function from a file is asked for square strides and paddings only")
            function = getattr(self.module, self.function)
            return lambda: function(x, w, case.bias, a.stride_h, a.pad_top)
        inits = getattr(self.module, "get_init_inputs", list)()
        model = self.module.ModelNew(*inits).to(x.device)
        convolutions = [part for part in model.modules() if isinstance(part, torch.nn.Conv2d)]
        if len(convolutions) != 1:
            raise ValueError(f"ModelNew holds {len(convolutions)} nn.Conv2d; one is needed to give it the weights")
        own = convolutions[0]
        theirs = (own.in_channels, own.out_channels, own.kernel_size, own.stride, own.padding, own.dilation, own.groups)
        ours = (a.c, a.k, (a.r, a.s), (a.stride_h, a.stride_w), (a.pad_top, a.pad_left),
                (a.dilation_h, a.dilation_w), a.groups)
        if theirs != ours or (own.bias is not None) != a.bias:
            raise ValueError(f"its ModelNew is made for another problem: {own}")
        with torch.no_grad():
            own.weight.copy_(w)
            if own.bias is not None:
                own.bias.copy_(case.bias)
        return lambda: model(x)
