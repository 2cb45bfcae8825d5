"""`reference`, by which every answer is judged, against PyTorch's convolution and its gradients in double precision, on
problems of any kind. Numbers are multiples of 2^-8, so that sums are exact in double in whatever order, and what an
element type rounds to is worked out here: results must be equal, bit for bit. Where an activation takes a function of a
mathematical library (1 + erf loses digits below 0), one unit in the last place may be missed, once in 10,000."""

import collections
import random

import convtune
import random_problems
from torch_support import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
LEAST = {torch.float32: -149, torch.float16: -24, torch.bfloat16: -133}  # the exponent of the least number
EXACT = {"none", "relu", "clip", "leaky_relu"}
aten = torch.ops.aten


def last_place(values, dtype):
    """The exponent of what one unit in the last place is worth."""
    _, exponent = torch.frexp(values)
    return (exponent - DIGITS[dtype]).clamp_min(LEAST[dtype])


def rounded(values, dtype):
    """To nearest, ties to even, in double."""
    place = last_place(values, dtype)
    result = torch.ldexp(torch.round(torch.ldexp(values, -place)), place)
    return torch.where(result.abs() > torch.finfo(dtype).max, result.sign() * torch.inf, result)


def activated(v, activation):
    name, *numbers = activation.split(":")
    # The slope and the bounds are 32-bit floats.
    numbers = [float(torch.tensor(float(number), dtype=torch.float32)) for number in numbers]
    return {
        "none": lambda: v,
        "relu": lambda: torch.relu(v),
        "clip": lambda: v.clamp(*numbers),
        "silu": lambda: torch.nn.functional.silu(v),
        "gelu_erf": lambda: torch.nn.functional.gelu(v),
        "gelu_tanh": lambda: torch.nn.functional.gelu(v, approximate="tanh"),
        "hardswish": lambda: torch.nn.functional.hardswish(v),
        "leaky_relu": lambda: torch.nn.functional.leaky_relu(v, *numbers),
        "sigmoid": lambda: torch.sigmoid(v),
    }[name]()


def numbers(shape, dtype, generator):
    values = torch.randint(-1024, 1025, shape, generator=generator).double() / 256
    return values.to(TYPES[dtype])


def channels_first(tensor, problem):
    return tensor.movedim(-1, 1) if problem.layout == "nhwc" else tensor


def in_layout(tensor, problem):
    return tensor.movedim(1, -1) if problem.layout == "nhwc" else tensor


class InDouble:
    """PyTorch's answers; its convolutions pad both ends alike, so that the image is padded before."""

    def __init__(self, problem):
        self.problem, self.axes = problem, len(problem.stride)
        before, behind = problem.padding[: self.axes], problem.padding[self.axes :]
        self.pads = [pad for both in reversed(list(zip(before, behind))) for pad in both]
        self.inside = tuple(slice(start, start + size) for start, size in zip(before, self.image()))

    def image(self):
        p = self.problem
        return (p.d, p.h, p.w)[-self.axes :]

    def padded(self, x):
        return torch.nn.functional.pad(channels_first(x, self.problem).double(), self.pads)

    def forward(self, x, w, bias, residual):
        p = self.problem
        dtype = TYPES[p.dtypes[2]]
        step = (lambda v: rounded(v, dtype)) if p.rounding == "eager" else (lambda v: v)
        y = step(aten.convolution(
            self.padded(x), w.double(), None, p.stride, [0] * self.axes, p.dilation, False, [0] * self.axes, p.groups
        ))  # fmt: skip
        if bias is not None:
            y = step(y + bias.double().reshape(-1, *[1] * self.axes))
        if residual is not None:
            y = step(y + channels_first(residual, p).double())
        return in_layout(activated(y, p.activation), p)

    def backward(self, x, w, dy):
        """dx, dw, dbias."""
        p = self.problem
        dx, dw, dbias = aten.convolution_backward(
            channels_first(dy, p).double(), self.padded(x), w.double(), [p.k], p.stride, [0] * self.axes, p.dilation,
            False, [0] * self.axes, p.groups, [True] * 3,
        )  # fmt: skip
        return in_layout(dx[(slice(None), slice(None), *self.inside)], p), dw, dbias


def answers(problem, generator):
    """[(the answer of `reference`, PyTorch's in double)]."""
    of_x, of_w, of_y, of_bias = problem.dtypes
    x, w = numbers(problem.input_shape, of_x, generator), numbers(problem.weight_shape, of_w, generator)
    like_y = numbers(problem.output_shape, of_y, generator)  # dy, or the residual
    bias = numbers((problem.k,), of_bias, generator) if problem.bias else None
    conv, theirs = convtune.Convolution(problem, "cpu", "reference"), InDouble(problem)
    if problem.direction == "fwd":
        residual = like_y if problem.residual else None
        y = convtune.run(conv, x, convtune.pack(conv, w, bias), residual=residual)
        return [(y, theirs.forward(x, w, bias, residual))]
    dx, dw, dbias = theirs.backward(x, w, like_y)
    if problem.direction == "bwd_d":
        return [(convtune.backward_data(conv, like_y, convtune.pack(conv, w)), dx)]
    ours = convtune.backward_weights(conv, x, like_y)
    return [(ours[0], dw)] + ([(ours[1], dbias)] if problem.bias else [])


def test_the_reference_equals_pytorch_in_double(capsys):
    draw, generator = random.Random(11), torch.Generator().manual_seed(12)
    kinds, elements, missed = collections.Counter(), 0, 0
    for _ in range(2500):
        problem = random_problems.random_problem(draw)
        for ours, theirs in answers(problem, generator):
            wanted = rounded(theirs, ours.dtype)
            away = (ours.double() - wanted).abs()
            away[ours.double() == wanted] = 0  # infinities too
            name = problem.activation.partition(":")[0]
            limit = torch.ldexp(torch.full_like(wanted, name not in EXACT), last_place(wanted, ours.dtype))
            assert ours.shape == wanted.shape and (away <= limit).all(), f"{problem}: {away.max()}"
            elements += ours.numel()
            missed += int((away > 0).sum())
        depth = "3-D" if problem.has_depth else "1-D" if problem.h == problem.r == 1 else "2-D"
        kinds.update([depth, problem.direction, problem.layout, problem.rounding, f"act={name}"])
        kinds.update(["mixed types" if ":" in problem.dtype else problem.dtype])
        kinds.update([word for word in ("bias", "residual") if getattr(problem, word)])
    assert missed <= elements * 1e-4, (missed, elements)
    assert min(kinds.values()) > 100, kinds
    with capsys.disabled():
        counts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        print(f"\n2500 problems, {elements} elements, {missed} of them a unit in the last place away: {counts}")
