"""convtune as an operator of PyTorch: `convtune::conv2d`, with gradients, autocast, torch.compile and CUDA graphs.

    y = convtune.torch.conv2d(x, w, bias, stride=4, padding=2)      # what convtune.conv2d does with PyTorch's tensors
    y = torch.ops.convtune.conv2d(...)                              # the same, as graphs hold it

What it promises, with the reasons in docs/decisions/0012-pytorch.md:

- float32 tensors are convtune's. Any other type, and everything under autocast, is computed by PyTorch's own
  convolution: convtune has no kernel for it that would be faster.
- The output is in the memory format that PyTorch's convolution gives: channels last where x or the weight is.
- Products are rounded to TF32 exactly where torch.backends.cudnn allows it to PyTorch's convolution.
- The same input gives the same bits, every time: torch.use_deterministic_algorithms has nothing to switch.
- Gradients are PyTorch's own convolution backward, double backward included.
- Weights are packed when they change, by `_version`: not at every call. Calls that record gradients of the weight,
  and CUDA graphs, pack every time, so that a training step and a replay see what the weight holds then.
- A CUDA graph can record what was called once before: a plan may have to compile, and that cannot be recorded.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from . import functional
from .caches import PACKS, PLANS
from .convolution import Convolution
from .errors import Error, InvalidArgument, Unsupported
from .problem import Padding, Pair, Problem, pair_of, padding_of
from .tensors import allowed_precision, check_like, pack, packed_weights

__all__ = ["conv2d", "convolution_of", "forget_packed", "problem_of"]

_float32 = torch.float32
_contiguous, _channels_last = torch.contiguous_format, torch.channels_last
_plain = (Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_any_autocast: Any = torch._C._is_any_autocast_enabled
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd
_dispatch_modes: Any = torch._C._len_torch_dispatch_stack
_function_modes: Any = torch._C._len_torch_function_stack
_tracing_state: Any = torch._C._get_tracing_state
_profiling: Any = torch.autograd._profiler_enabled
_transform: Any = torch._C._functorch.peek_interpreter_stack
_forward_mode: Any = torch.autograd.forward_ad
# Of a PyTorch built with CUDA.
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_fp32_precision: Any = getattr(torch._C, "_get_fp32_precision_getter", None) or (
    lambda *_: "tf32" if torch.backends.cudnn.allow_tf32 else "none"
)

# Convolutions that a CUDA graph has recorded stay: nobody says how long the graph may be replayed.
_recorded: set[Convolution] = set()


def wants_channels_last(tensor: Tensor) -> bool:
    """Whether PyTorch takes the tensor to lie channels last: its strides fall in the order N, H, W, C."""
    if tensor.is_contiguous() and tensor.stride(1) != 1:
        return False
    (n, c, h, w), (of_n, of_c, of_h, of_w) = tensor.shape, tensor.stride()
    if of_c == 0 or n == 0 or c == 0 or h == 0 or w == 0 or of_w < of_c * c:
        return False
    if of_h < of_w * w:
        return False
    image = of_h * h
    return of_n >= image and image != of_c  # N x 1 x 1 x 1 lies both ways, and is taken for channels first


def _pytorch(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    activation: str = "none",
) -> Tensor:  # fmt: skip
    """PyTorch's own convolution, which has no uneven padding."""
    top, left, bottom, right = padding
    if top == bottom and left == right:
        y = torch.conv2d(x, weight, bias, stride, (top, left), dilation, groups)
    else:
        x = torch.nn.functional.pad(x, (left, right, top, bottom))
        y = torch.conv2d(x, weight, bias, stride, 0, dilation, groups)
    return torch.relu(y) if activation == "relu" else y


class _Planned:
    """A convolution, and what a call must know of it. `convolution` is None where PyTorch's own is to run; `format`: in
    which memory format it reads and writes."""

    __slots__ = ("convolution", "format", "output_shape")

    def __init__(self, convolution: Convolution | None, problem: Problem) -> None:
        self.convolution = convolution
        self.output_shape = (problem.n, problem.k, *problem.output_size)
        nhwc = convolution is not None and convolution.problem.layout == "nhwc"
        self.format = _channels_last if nhwc else _contiguous


_fingerprints: dict[str, str] = {}


def fingerprint(device: str) -> str:
    """What records of that device are kept under; "" where convtune does not see it."""
    if device not in _fingerprints:
        _fingerprints.update({one.device: one.fingerprint for one in functional.devices()})
    return _fingerprints.get(device, "")


def choice_line(device: str, problem: Problem, run_as: Problem, algorithm: str, config: str) -> str:
    """A line of what optimize leaves in a module: how `problem` runs on that kind of device, proven. `run_as` is the
    problem, or the same in the other layout, with copies before and after."""
    return "\t".join((fingerprint(device), problem.key, run_as.layout, algorithm, config))


def choice(choices: str, device: str, problem: Problem) -> tuple[Problem, str, str] | None:
    """(what to plan, algorithm, config) by the line for that problem on that device, if there is one."""
    wanted = [fingerprint(device), problem.key]
    for line in choices.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[:2] == wanted:
            return problem.replace(layout=fields[2]), fields[3], fields[4]
    return None


def problem_of(
    x: Tensor, weight: Tensor, has_bias: bool, stride: Pair, padding: Padding, dilation: Pair, groups: int,
    precision: str = "auto", activation: str = "none",
) -> Problem:  # fmt: skip
    """What is asked of convtune by a call with those tensors: of them only shape, memory format and device count."""
    problem = functional.problem_of(
        x.shape, weight.shape, has_bias, stride, padding, dilation, groups, precision, activation
    )
    if precision == "auto":
        problem = problem.replace(precision=allowed_precision(x.get_device() if x.is_cuda else -1))
    nhwc = wants_channels_last(x) or wants_channels_last(weight)
    return problem.replace(layout="nhwc") if nhwc else problem


def _plan(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int, precision: str,
    activation: str, choices: str, index: int,
) -> _Planned:  # fmt: skip
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be {tuple(weight.shape[:1])}")
    problem = problem_of(x, weight, bias is not None, stride, padding, dilation, groups, precision, activation)
    device = "cpu" if index < 0 else f"cuda:{index}"
    plan: tuple[Problem, str | None, str | None] = (problem, None, None)
    if problem.n == 0:
        return _Planned(None, problem)
    if choices:
        proven = choice(choices, device, problem)
        if proven is None:
            return _Planned(None, problem)
        plan = proven
    if index >= 0 and _capturing():
        raise Error(
            f"{problem} has not run on {device} yet, and a CUDA graph is being recorded: a plan may have to compile, "
            "which cannot be recorded. Call the convolution (or Conv2d.prepare) once before"
        )
    try:
        return _Planned(Convolution(plan[0], device, *plan[1:]), problem)
    except (InvalidArgument, Unsupported):
        if choices:  # proven by another version of convtune, whose configs were others
            return _Planned(None, problem)
        raise


def convolution_of(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "",
) -> Convolution | None:  # fmt: skip
    """The convolution that the operator runs for those arguments, planned if it was not; None where PyTorch's own
    runs. For tests and for the curious."""
    index = x.get_device() if x.is_cuda else -1
    rest = stride, padding, dilation, groups, precision, activation, choices, index
    return _plan(x, weight, bias, *rest).convolution


def run(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", reuse: bool = True,
) -> Tensor:  # fmt: skip
    """The operator on a CPU and on a GPU: no gradients, tensors with memory."""
    if x.dtype is not _float32 or weight.dtype is not _float32:
        y = _pytorch(x, weight, bias, stride, padding, dilation, groups, activation)
        return y.contiguous(memory_format=_format(x, weight))
    index, capturing, stream = -1, False, 0
    if x.is_cuda:
        index, capturing = x.get_device(), _capturing()
        stream = _raw_stream(index)
        if precision == "auto":
            precision = "tf32" if _fp32_precision("cuda", "conv") == "tf32" else "fp32"
    elif precision == "auto":
        precision = "fp32"
    if x.dim() != 4 or weight.dim() != 4:
        functional.problem_of(x.shape, weight.shape, bias is not None)  # raises
    if x.is_contiguous() and weight.is_contiguous() and x.stride(1) != 1 and weight.stride(1) != 1:
        lies, format = True, _contiguous
    else:
        format = _format(x, weight)
        lies = x.is_contiguous(memory_format=format)
    # Nothing is checked twice: shapes when they are planned, weight and bias when they are packed.
    key = (
        x.shape, weight.shape, bias is None, stride, padding, dilation, groups, precision, activation, choices, index,
        format,
    )  # fmt: skip
    planned = PLANS.peek(key)
    if planned is None:
        how = stride, padding, dilation, groups, precision, activation, choices, index
        planned = PLANS.get_or_make(key, lambda: _plan(x, weight, bias, *how))
    convolution = planned.convolution
    # cuDNN's workspace is ours and of one stream: a graph takes PyTorch's, from the graph's own memory.
    if convolution is None or (capturing and convolution.plan.algorithm == "cudnn"):
        y = _pytorch(x, weight, bias, stride, padding, dilation, groups, activation)
        return y.contiguous(memory_format=format)
    if capturing:
        _recorded.add(convolution)
    if capturing or not reuse:
        kept, packed = pack(convolution, weight, bias, x, stream)
    else:
        kept, packed = packed_weights(convolution, weight, bias, x, stream)
    own = planned.format
    address = x.data_ptr()
    if not lies or own is not format or address & 3 or x.is_neg():
        x = x.resolve_neg().clone(memory_format=own)
        address = x.data_ptr()
    if own is _contiguous:
        y = x.new_empty(planned.output_shape)
    else:
        y = torch.empty(planned.output_shape, dtype=_float32, device=x.device, memory_format=own)
    convolution.run_raw(address, packed, y.data_ptr(), stream)
    del kept  # freed in the order of the stream
    return y if own is format else y.contiguous(memory_format=format)


def _kernel(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> Tensor:
    """`run`, as the dispatcher calls it: with lists."""
    return run(x, weight, bias, tuple(stride), tuple(padding), tuple(dilation), *rest)


def _format(x: Tensor, weight: Tensor) -> torch.memory_format:
    return _channels_last if wants_channels_last(x) or wants_channels_last(weight) else _contiguous


def _fake(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", reuse: bool = True,
) -> Tensor:  # fmt: skip
    """Shape and strides of what `run` gives, sizes possibly symbolic."""
    torch._check(x.dim() == 4, lambda: f"x has the shape {tuple(x.shape)}; it must be (N, C, H, W)")
    torch._check(weight.dim() == 4, lambda: f"w has the shape {tuple(weight.shape)}; it must be (K, C/groups, R, S)")
    n, c, h, w = x.shape
    k, c_of_group, r, s = weight.shape
    torch._check(
        c_of_group * groups == c,
        lambda: f"x has {c} channels, but w has {c_of_group} for each of {groups} groups",
    )
    torch._check(
        bias is None or (bias.dim() == 1 and bias.shape[0] == k),
        lambda: f"bias has the shape {tuple(bias.shape)}; it must be ({k},)",  # type: ignore[union-attr]
    )
    p = (h + padding[0] + padding[2] - dilation[0] * (r - 1) - 1) // stride[0] + 1
    q = (w + padding[1] + padding[3] - dilation[1] * (s - 1) - 1) // stride[1] + 1
    torch._check(p > 0, lambda: f"the output would be {p} x {q}: the filter does not fit")
    torch._check(q > 0, lambda: f"the output would be {p} x {q}: the filter does not fit")
    return torch.empty((n, k, p, q), dtype=x.dtype, device=x.device, memory_format=_format(x, weight))


def _below(*arguments: Any) -> Tensor:
    with _below_autograd():
        return _forward_operator(*arguments)  # type: ignore[no-any-return]


class _Convolution(torch.autograd.Function):
    """Forward by convtune, backward by PyTorch. The last argument is the forward: `run`, or the operator below
    autograd for tensors that are traced or fake."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        stride, padding, dilation, groups, precision, activation, choices, reuse, forward = rest
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            # Optimisers in the wild write through `.data`, which `_version` does not count.
            reuse = False
            PACKS.forget(weight)
        y = forward(x, weight, bias, stride, padding, dilation, groups, precision, activation, choices, reuse)
        ctx.save_for_backward(x, weight, y if activation == "relu" else None)
        ctx.bias_shape = None if bias is None else list(bias.shape)
        ctx.how = stride, padding, dilation, groups
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, weight, y = ctx.saved_tensors
        stride, (top, left, bottom, right), dilation, groups = ctx.how
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        even = top == bottom and left == right
        padded = x if even else torch.nn.functional.pad(x, (left, right, top, bottom))
        grads = torch.ops.aten.convolution_backward(
            grad, padded, weight, ctx.bias_shape, stride, (top, left) if even else (0, 0), dilation, False, (0, 0),
            groups, ctx.needs_input_grad[:3],
        )  # fmt: skip
        grad_x = grads[0]
        if grad_x is not None and not even:
            grad_x = grad_x[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        return grad_x, grads[1], grads[2], *(None,) * 9


def _records_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)


def _is_ordinary(x: Tensor, weight: Tensor) -> bool:
    """Tensors with memory, and nobody who watches what is done with them."""
    return (
        type(x) in _plain
        and type(weight) in _plain
        and (x.is_cuda or x.is_cpu)
        and not _dispatch_modes()
        and _transform() is None
        and _tracing_state() is None
    )


def _autograd(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", reuse: bool = True,
) -> Tensor:  # fmt: skip
    rest = stride, padding, dilation, groups, precision, activation, choices, reuse
    if _is_grad_enabled() and _records_gradients(x, weight, bias):
        return _Convolution.apply(x, weight, bias, *rest, _below)  # type: ignore[no-any-return]
    if _is_ordinary(x, weight):  # past the dispatcher, which would call Python a second time
        return _kernel(x, weight, bias, *rest)
    return _below(x, weight, bias, *rest)


def _autocast(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", reuse: bool = True,
) -> Tensor:  # fmt: skip
    """PyTorch's convolution, which casts: half precision is what was asked for, and faster than convtune's fp32."""
    return _pytorch(x, weight, bias, stride, padding, dilation, groups, activation)


# conv2d_forward is what there is below autograd, and what graphs of torch.compile hold: one call of Python less.
_library = torch.library.Library("convtune", "DEF")
for _name in ("conv2d", "conv2d_forward"):
    _library.define(
        f"{_name}(Tensor x, Tensor weight, Tensor? bias, SymInt[2] stride, SymInt[4] padding, SymInt[2] dilation, "
        "SymInt groups, str precision='auto', str activation='none', str choices='', bool reuse=True) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    _library.impl(_name, _kernel, "CPU")
    _library.impl(_name, _kernel, "CUDA")
    torch.library.register_fake(f"convtune::{_name}", _fake, lib=_library)
_library.impl("conv2d", _autograd, "Autograd")
_library.impl("conv2d", _autocast, "AutocastCPU")
_library.impl("conv2d", _autocast, "AutocastCUDA")
_operator = torch.ops.convtune.conv2d.default
_forward_operator = torch.ops.convtune.conv2d_forward.default


def call(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", reuse: bool = True,
) -> Tensor:  # fmt: skip
    """The operator, by the shortest way that PyTorch leaves open: its dispatcher takes 4 us to call Python, and 13
    with gradients, so eager calls on ordinary tensors go past it. Takes the operator's own arguments."""
    if _is_compiling() or not _is_ordinary(x, weight) or _function_modes() or _profiling():
        if not _is_compiling() and (_transform() is not None or not (x.is_cuda or x.is_cpu)):
            return _pytorch(x, weight, bias, stride, padding, dilation, groups, activation)
        return _operator(  # type: ignore[no-any-return]
            x, weight, bias, stride, padding, dilation, groups, precision, activation, choices, reuse
        )
    if _forward_mode._current_level >= 0 or (_any_autocast() and torch.is_autocast_enabled(x.device.type)):
        return _pytorch(x, weight, bias, stride, padding, dilation, groups, activation)
    if _is_grad_enabled() and _records_gradients(x, weight, bias):
        rest = stride, padding, dilation, groups, precision, activation, choices, reuse
        return _Convolution.apply(x, weight, bias, *rest, run)  # type: ignore[no-any-return]
    return run(x, weight, bias, stride, padding, dilation, groups, precision, activation, choices, reuse)


_warned: set[torch.dtype] = set()
# The operator's stride, padding and dilation, by what the caller wrote and the filter's size.
_geometries: dict[Any, tuple[Any, Any, Any]] = {}


def _geometry(kernel: Any, stride: Pair, padding: Padding, dilation: Pair) -> tuple[Any, Any, Any]:
    steps, holes = pair_of(stride, "stride"), pair_of(dilation, "dilation")
    return steps, padding_of(padding, tuple(kernel), steps, holes), holes  # type: ignore[arg-type]


def _remembered_geometry(weight: Tensor, stride: Pair, padding: Padding, dilation: Pair) -> tuple[Any, Any, Any]:
    key = (stride, padding, dilation, weight.shape) if type(padding) is str else (stride, padding, dilation)
    try:
        found = _geometries.get(key)
    except TypeError:  # a list among them
        return _geometry(weight.shape[2:], stride, padding, dilation)
    if found is None:
        found = _geometry(weight.shape[2:], stride, padding, dilation)
        if len(_geometries) < 4096:
            _geometries[key] = found
    return found


def _check_types(x: Any, weight: Any, bias: Any) -> None:
    """For types that the operator is not for: an error with their names, or one warning."""
    for name, tensor in (("w", weight), ("bias", bias)):
        if tensor is not None and not isinstance(tensor, Tensor):
            check_like(tensor, name, x)
    if not x.dtype.is_floating_point:
        raise InvalidArgument(f"x is {x.dtype}; a convolution takes floating-point tensors")
    if x.dtype not in _warned:
        _warned.add(x.dtype)
        warnings.warn(f"convtune has no kernels for {x.dtype}: PyTorch's own convolution runs", stacklevel=4)


def conv2d_of_tensors(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, precision: Any,
    activation: Any, reuse: bool = True,
) -> Tensor:  # fmt: skip
    """convtune.conv2d, where x is a tensor."""
    if _is_compiling():
        geometry = _geometry(weight.shape[2:], stride, padding, dilation)
    else:
        if x.dtype is not _float32 or not isinstance(weight, Tensor) or not (bias is None or isinstance(bias, Tensor)):
            _check_types(x, weight, bias)
        geometry = _remembered_geometry(weight, stride, padding, dilation)
    steps, edges, holes = geometry
    return call(x, weight, bias, steps, edges, holes, groups, precision or "auto", activation or "none", "", reuse)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    reuse: bool = True,
) -> Tensor:
    """activation(conv2d(x, weight) + bias) by convtune's plan for this problem, differentiable. The arguments are
    convtune.conv2d's. `reuse=False` packs the weights in this call: for writes that `_version` does not count.

    Tensors that are not float32 are computed by PyTorch's own convolution, with one warning. Raises InvalidArgument
    with the numbers where shapes, types or devices do not fit each other.
    """
    return conv2d_of_tensors(x, weight, bias, stride, padding, dilation, groups, precision, activation, reuse)


def forget_packed(module: Any) -> None:
    """Packs the weights of a module, of all modules in it, or of one tensor anew at the next call. Needed only after
    writes that PyTorch does not count: through `weight.data`, or through the memory's address."""
    for tensor in [module] if isinstance(module, Tensor) else module.parameters():
        PACKS.forget(tensor)
