"""Conv1d, Conv2d and Conv3d: torch.nn's computed by convtune, with the same parameters, state_dict, pickles and semantics;
and CausalConv3d, which PyTorch has none of."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._library import ROUNDINGS
from .errors import InvalidArgument, Unsupported
from .geometry import steps_of
from .torch.functional import call, call_if_ready, call_with_cache
from .torch.how import How, edges_of
from .torch.modules.handover import Led, fused
from .torch.weights import forget_packed, forget_weights, release_weights
from .words import one_of

__all__ = ["CausalConv3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Module = TypeVar("Module", bound="_Convolution")


def _warn_of_quantisation(tracer: Any) -> None:
    """PyTorch's quantisation knows modules by their types: it fuses no batch norm or activation with one of ours."""
    if type(tracer).__name__ == "QuantizationTracer":
        warnings.warn(
            "torch.ao.quantization takes a convtune.nn module for a function, apart from its batch norm and activation: "
            "call convtune.restore(model) before prepare_fx",
            stacklevel=2,
        )


class _Convolution(torch.nn.modules.conv._ConvNd):
    """The part that Conv1d, Conv2d and Conv3d share; each is also PyTorch's class of its name."""

    precision: str = "auto"
    rounding: str = "once"
    # Left by convtune.optimize: the problems that convtune runs, with their kernels; all others are
    # PyTorch's. Empty: convtune runs everything.
    choices: str = ""
    # True where that was proven while gradients are recorded, when weights are packed in every call.
    proven_in_training: bool = True
    # The weights with the batch norm behind this module folded in, whose work it does in eval mode where
    # convtune.optimize proved that.
    led: Led | None = None
    _pytorchs: Any  # the class of PyTorch's that it stands for
    _settings: tuple[str, ...] = ("stride", "padding", "dilation", "groups", "padding_mode")

    def __init__(self, *args: Any, precision: str | None = None, rounding: str = "once", **kwargs: Any) -> None:
        """PyTorch's arguments. `precision`: "fp32" or "tf32"; None is what torch.backends.cudnn allows. `rounding`: conv2d's."""
        super().__init__(*args, **kwargs)
        if precision is not None:
            self.precision = precision
        if one_of(rounding, ROUNDINGS, "rounding") != self.rounding:
            self.rounding = rounding

    @classmethod
    def from_torch(cls: type[Module], module: Any) -> Module:
        """A module of convtune with the same parameters (shared, not copied), settings and mode. Hooks stay behind."""
        if not isinstance(module, cls._pytorchs):
            raise TypeError(f"from_torch takes a torch.nn.{cls._pytorchs.__name__}, not a {type(module).__name__}")
        if type(module).forward not in (cls._pytorchs.forward, cls.forward):
            raise TypeError(f"a {type(module).__name__} has a forward of its own, which from_torch would lose")
        if "weight" not in module._parameters:
            raise TypeError("the module's weight is computed in every forward, as by weight_norm: make it a parameter first")
        settings = {name: getattr(module, name) for name in cls._settings}
        made = cls(
            module.in_channels, module.out_channels, module.kernel_size, **settings, bias=module.bias is not None, device="meta"
        )
        made.weight, made.bias = module.weight, module.bias
        return made.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        own, axes = self._parameters, _AXES.get(type(self))
        # Attributes of a module cost as much as the call: what was called before takes the parameters where they are.
        if axes is not None and not self.training and self.led is None and self.padding_mode == "zeros":
            if "weight" in own and "bias" in own and "_conv_forward" not in self.__dict__ and self.rounding == "once":
                how = self.stride, self.padding, self.dilation, self.groups, self.precision, None, self.choices, None
                y = call_if_ready(axes, input, own["weight"], own["bias"], *how)
                if y is not None:
                    return y
        if self.led is not None:
            y = fused(self, input)
            if y is not None:
                return y
        return super().forward(input)  # type: ignore[misc, no-any-return, unused-ignore]

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(input, torch.fx.Proxy):
            _warn_of_quantisation(input.tracer)
        # Alone it is none of the problems that were proven; symbolic tracing takes no branch by a shape.
        if self.led is not None or isinstance(input, torch.fx.Proxy):
            return super()._conv_forward(input, weight, bias)  # type: ignore[no-any-return, unused-ignore]
        axes = len(self.kernel_size)
        if input.dim() != axes + 2 or (self.choices and self.training and not self.proven_in_training):
            if input.dim() == axes + 1 and not self.choices:
                y: Tensor = self._conv_forward(input.unsqueeze(0), weight, bias).squeeze(0)
                return y
            return super()._conv_forward(input, weight, bias)  # type: ignore[no-any-return, unused-ignore]
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return call(input, weight, bias, self._how(edges_of(self)))

    def _how(self, edges: tuple[int, ...], more: tuple[int, ...] = ()) -> How:
        """The convolution with that padding, and of a transposed one with `more` of the output."""
        words = self.precision, "none", self.choices, True, more, self.rounding
        return How.of(self.stride, edges, self.dilation, self.groups, *words)

    def __prepare_scriptable__(self) -> Any:
        """Asked first by torch.jit.script, which would put another module in this one's place: refused."""
        raise Unsupported(
            f"torch.jit.script takes no convtune.nn.{self._pytorchs.__name__}: convtune.restore(model) makes those that "
            "convtune.optimize swapped PyTorch's again, and torch.jit.trace takes them as they are"
        )

    def prepare(self: Module, *examples: Tensor | tuple[int, ...]) -> Module:
        """Plans, compiles and packs for inputs like the examples: tensors, or shapes (N, C, [[D,] H,] W). Returns itself."""
        with torch.no_grad():
            for example in examples:
                if not isinstance(example, Tensor):
                    example = torch.empty(example, dtype=self.weight.dtype, device=self.weight.device)
                self(example)
        return self

    def repack(self: Module) -> Module:
        """Packs the weights anew at the next call: after writes that PyTorch does not count. Returns itself."""
        forget_packed(self)
        return self

    def _forget(self) -> None:
        forget_weights(self)
        if self.led is not None:
            self.led.folded = None

    def _apply(self: Module, fn: Any, recurse: bool = True) -> Module:
        release_weights(self)  # CUDA graphs keep what they read, and the tensors go elsewhere
        self._forget()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        resume = release_weights(self)
        super()._load_from_state_dict(*args, **kwargs)
        resume()

    def train(self: Module, mode: bool = True) -> Module:
        self._forget()
        return super().train(mode)

    def extra_repr(self) -> str:
        how = f"convtune for {len(self.choices.splitlines())} problems" if self.choices else "convtune"
        settings: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{settings}, {how}"


class Conv1d(_Convolution, torch.nn.Conv1d):
    """A drop-in for torch.nn.Conv1d: all that Conv2d says holds. x may be a transposed (N, L, C), and y lies as x does.

        conv = convtune.nn.Conv1d(128, 512, 3, padding=1).cuda()
        conv = convtune.nn.Conv1d.from_torch(module)        # shares the module's parameters

    Where the weight is computed in every forward (torch.nn.utils.weight_norm, parametrizations), it is packed in every
    forward, too: remove_weight_norm, or remove_parametrizations, makes that the weight's own cost again, once.
    """

    _pytorchs = torch.nn.Conv1d


class Conv2d(_Convolution, torch.nn.Conv2d):
    """A drop-in for torch.nn.Conv2d.

        conv = convtune.nn.Conv2d(3, 96, 11, stride=4, padding=2).cuda()
        conv = convtune.nn.Conv2d.from_torch(module)        # shares the module's parameters

    float32, float16 and bfloat16 run by convtune, anything else by PyTorch. Autocast casts as for PyTorch's. The first
    call for a shape plans it (on a GPU it may compile a kernel, for about a second): `prepare` does that beforehand,
    and must have been called, or the module, before a CUDA graph records it. `convtune.tune` finds the fastest way for
    a problem; `convtune.torch.problem_of` tells which problem tensors make.

    Weights are packed when they change, as `weight._version` tells. Writes that PyTorch does not count
    (`conv.weight.data.copy_(...)`) are seen by calls that record gradients and after train() or eval(); otherwise
    call `repack`.
    """

    _pytorchs = torch.nn.Conv2d


class Conv3d(_Convolution, torch.nn.Conv3d):
    """A drop-in for torch.nn.Conv3d, contiguous or channels_last_3d: all that Conv2d says holds.

        conv = convtune.nn.Conv3d(96, 96, 3, padding=1).cuda()
        conv = convtune.nn.Conv3d.from_torch(module)        # shares the module's parameters

    Its forward takes convtune.conv3d's `cache` and `cache_out`, too. A subclass of torch.nn.Conv3d (a causal one, whose
    forward pads or joins a cache) keeps its forward where convtune.optimize swaps it: convtune computes the convolution
    that it calls, and reads the frames where they are instead of joined and padded.
    """

    _pytorchs = torch.nn.Conv3d

    def forward(self, input: Tensor, cache: Tensor | None = None, cache_out: Tensor | None = None) -> Tensor:
        if cache is None and cache_out is None:
            return super().forward(input)
        if self.padding_mode != "zeros":
            raise Unsupported(f"a cache goes with zeros before it, and padding_mode is {self.padding_mode!r}")
        return self._convolve(input, edges_of(self), cache, cache_out)

    def _convolve(self, x: Tensor, edges: tuple[int, ...], cache: Tensor | None, cache_out: Tensor | None) -> Tensor:
        return call_with_cache(x, self.weight, self.bias, self._how(edges), None, cache, cache_out)


class CausalConv3d(Conv3d):
    """A Conv3d whose frames see themselves and frames before them: all (T - 1) * dilation frames that it pads are in front.

        conv = convtune.nn.CausalConv3d(96, 96, 3, padding=1).cuda()
        y = conv(x)                                          # zeros before the first frame
        y = conv(x, cache, cache_out=next_cache)             # a video in pieces: the frames before come from a cache

    `padding`: of rows and columns, a number or (vertical, horizontal); the other arguments are torch.nn.Conv3d's.
    `cache` and `cache_out`: convtune.conv3d's.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, *args: Any,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        if kwargs.get("padding_mode", "zeros") != "zeros":
            raise InvalidArgument(f"padding_mode is {kwargs['padding_mode']!r}; a CausalConv3d pads zeros")
        edges = 0, *steps_of(padding, "padding", 2)
        super().__init__(in_channels, out_channels, kernel_size, stride, edges, *args, **kwargs)

    @classmethod
    def from_torch(cls: type[Module], module: Any) -> Module:
        raise TypeError("PyTorch has no causal Conv3d: convtune.nn.CausalConv3d is made by its arguments")

    def forward(self, input: Tensor, cache: Tensor | None = None, cache_out: Tensor | None = None) -> Tensor:
        _, vertical, horizontal = self.padding
        front = (self.kernel_size[0] - 1) * self.dilation[0]
        edges = front, vertical, horizontal, 0, vertical, horizontal
        if input.dim() == 4:
            before, kept = (None if one is None else one.unsqueeze(0) for one in (cache, cache_out))
            return self._convolve(input.unsqueeze(0), edges, before, kept).squeeze(0)
        return self._convolve(input, edges, cache, cache_out)


class _Transposed(_Convolution, torch.nn.modules.conv._ConvTransposeNd):
    """The part that the transposed modules share."""

    _settings = (*_Convolution._settings, "output_padding")

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        axes = len(self.kernel_size)
        if isinstance(input, torch.fx.Proxy) or (self.choices and self.training and not self.proven_in_training):
            return self._pytorchs.forward(self, input, output_size)  # type: ignore[no-any-return]
        if input.dim() == axes + 1 and not self.choices:
            size = None if output_size is None else output_size[-axes:]
            return self.forward(input.unsqueeze(0), size).squeeze(0)
        if input.dim() != axes + 2:
            return self._pytorchs.forward(self, input, output_size)  # type: ignore[no-any-return]
        more = self.output_padding
        if output_size is not None:
            settings = self.stride, self.padding, self.kernel_size, axes, self.dilation
            more = tuple(self._output_padding(input, output_size, *settings))  # type: ignore[arg-type]
        return call(input, self.weight, self.bias, self._how(edges_of(self), tuple(more)))


class ConvTranspose1d(_Transposed, torch.nn.ConvTranspose1d):
    """A drop-in for torch.nn.ConvTranspose1d: all that Conv1d says holds."""

    _pytorchs = torch.nn.ConvTranspose1d


class ConvTranspose2d(_Transposed, torch.nn.ConvTranspose2d):
    """A drop-in for torch.nn.ConvTranspose2d, its `output_size` too: all that Conv2d says holds."""

    _pytorchs = torch.nn.ConvTranspose2d


class ConvTranspose3d(_Transposed, torch.nn.ConvTranspose3d):
    """A drop-in for torch.nn.ConvTranspose3d: all that Conv3d says holds, but for caches."""

    _pytorchs = torch.nn.ConvTranspose3d


_AXES: dict[type, int] = {Conv1d: 1, Conv2d: 2, Conv3d: 3}  # subclasses may do anything
