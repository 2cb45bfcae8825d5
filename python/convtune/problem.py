"""Problem: what is asked. A plain value that knows its sizes and has one text form, as in the command and C++."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from ctypes import byref, c_double, c_int64, sizeof
from dataclasses import dataclass, field
from math import prod
from typing import Any

from . import _library
from ._library import ACTIVATIONS, DIRECTIONS, DTYPES, LAYOUTS, PRECISIONS, ROUNDINGS, SNAKES, CProblem
from .cached import cached_property
from .errors import InvalidArgument, Unsupported
from .geometry import Padding, Steps, padding_of, steps_of, whole
from .words import NAMES, activation_of, activation_text, one_of, parameters_of, types_of, types_text

__all__ = ["SHAPES", "Problem", "as_problem", "problem_of", "transposed_problem_of"]

_MAX_NAME_BYTES = 2048
# The letters of a line, and its name with or without quotes; a case's name is no such thing.
_LETTERS = re.compile(r"\s*(?:_|(?:mb|g|[io]c|[iokspd][dhw])\d+)+(?:n(?:\"([^\"]*)\"|(\S*)))?(?=\s|$)")
# The shapes of x and w, by the number of axes that an image has.
SHAPES = {
    1: ("(N, C, L)", "(K, C/groups, S)"), 2: ("(N, C, H, W)", "(K, C/groups, R, S)"),
    3: ("(N, C, D, H, W)", "(K, C/groups, T, R, S)"),
}  # fmt: skip
_NO_NAME = re.compile(r"[\x00-\x1f\x7f\"]")


def _speaks_of_a_depth(*settings: Steps | Padding) -> bool:
    """True where one of the settings has a number for each of three axes, or for their six ends."""
    return any(isinstance(one, Sequence) and not isinstance(one, str) and len(one) in (3, 6) for one in settings)


@dataclass(frozen=True, init=False)
class Problem:
    """A convolution of one to three dimensions (cross-correlation, as in every framework), or its gradient.

    `n, c, h, w`: batch, input channels, image height and width; `k, r, s`: output channels, filter height and
    width; `d` and `t`: depth of image and filter, where the problem is 3-D. A 1-D problem has a height of 1; a depth of
    one plane without padding is none. `groups` divides `c` and `k`. `stride` and `dilation` take a number, (vertical, horizontal), or, of a 3-D problem, (depth,
    vertical, horizontal); dilations count from 1. `padding` takes the same, or (top, left, bottom, right), or (front,
    top, left, back, bottom, right), or "same" or "valid".

    `dtype`: f32, f16, bf16, or "x:w:y" or "x:w:y:bias" of those ("bf16:bf16:f32"); `layout` of x and y: nchw, nhwc,
    with the depth before the height; `precision` of the products: auto, fp32, tf32, fp16, bf16. `direction`: fwd;
    bwd_d and bwd_w are the gradients of x and of w, of the forward problem that the other fields describe.

    Added to the sum, in this order: `bias` (the default, but for bwd_d; in bwd_w: its gradient is asked too),
    `residual` (of y's shape and type, in bwd_d of dx's), `activation`: none, relu, clip:LOW:HIGH or another
    of docs/problems.md. `rounding` to y's type: once, at the end, or eager, after each of them. `snake`: after, y is
    v + scale * sin(alpha * v)^2 of what the rest gives, or beside, both, and y has twice the batch; bias is (3, k) then: biases,
    alphas and scales. `cache`: frames of a second
    tensor that stand before x's first, at most as many as the front padding, whose zeros they take the place of; 3-D and
    forward alone.
    `name` is a label for people, and no part of equality.

    A Problem is valid: making a wrong one raises InvalidArgument that names the field and the numbers. It is
    immutable and hashable; `str` gives the text that `Problem.parse` and the command take back.
    """

    n: int
    c: int
    d: int
    h: int
    w: int
    k: int
    t: int
    r: int
    s: int
    groups: int
    stride: tuple[int, ...]  # three of each, and six paddings, where there is a depth
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    bias: bool
    dtype: str
    layout: str
    precision: str
    activation: str
    direction: str
    residual: bool
    rounding: str
    snake: str
    cache: int
    name: str = field(compare=False)

    def __init__(
        self,
        n: int,
        c: int,
        h: int,
        w: int,
        k: int,
        r: int,
        s: int,
        groups: int = 1,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        bias: bool | None = None,
        dtype: str = "f32",
        layout: str = "nchw",
        precision: str = "auto",
        activation: str = "none",
        name: str = "",
        *,
        d: int = 1,
        t: int = 1,
        direction: str = "fwd",
        residual: bool = False,
        rounding: str = "once",
        snake: str = "none",
        cache: int = 0,
    ) -> None:
        sizes = dict(n=n, c=c, d=d, h=h, w=w, k=k, t=t, r=r, s=s, groups=groups)
        values: dict[str, Any] = {letter: whole(size, letter) for letter, size in sizes.items()}
        axes = 3 if d != 1 or t != 1 or _speaks_of_a_depth(stride, padding, dilation) else 2
        filter_size = (values["t"], values["r"], values["s"])[-axes:]
        steps, holes = steps_of(stride, "stride", axes), steps_of(dilation, "dilation", axes)
        edges = padding_of(padding, filter_size, steps, holes)
        # A single plane without padding is none, whatever its stride and dilation.
        if axes == 3 and (d, t, edges[0], edges[3]) == (1, 1, 0, 0) and min(steps[0], holes[0]) > 0:
            steps, holes, edges = steps[1:], holes[1:], edges[1:3] + edges[4:]
        if axes == 3:  # the library takes 0 for 1
            depth = {"d (id)": d, "t (kd)": t, "stride_d (sd)": steps[-3:][0], "dilation_d (dd + 1)": holes[-3:][0]}
            for what in [what for what, value in depth.items() if value == 0]:
                raise InvalidArgument(f"{what} is 0; it must be at least 1")
        values["stride"], values["dilation"], values["padding"] = steps, holes, edges
        values["direction"] = one_of(direction, DIRECTIONS, "direction")
        values["bias"] = direction != "bwd_d" if bias is None else bool(bias)
        values["residual"] = bool(residual)
        values["dtype"] = dtype if dtype in DTYPES else types_text(*types_of(dtype))
        values["layout"] = one_of(layout, LAYOUTS, "layout")
        values["precision"] = one_of(precision, PRECISIONS, "precision")
        values["activation"] = "none" if activation == "none" else activation_text(*activation_of(activation))
        values["rounding"] = one_of(rounding, ROUNDINGS, "rounding")
        values["snake"] = one_of(snake, SNAKES, "snake")
        values["cache"] = whole(cache, "cache")
        if name and (len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES or _NO_NAME.search(name)):
            raise InvalidArgument(
                f"the name {name!r} is longer than {_MAX_NAME_BYTES} bytes, or holds a double quote or a control "
                "character"
            )
        values["name"] = name
        self.__dict__.update(values)  # its own attributes refuse to be set
        self.output_size  # validates

    @classmethod
    def parse(cls, text: str) -> Problem:
        """The problem of a line of benchdnn's convolution grammar ("mb1ic3ih224oc96kh11sh4ph2 act=relu") or the name of
        a built-in case ("alexnet_conv1"). Raises InvalidArgument that names the column."""
        if not isinstance(text, str):
            raise InvalidArgument(f"{text!r} is neither a Problem nor the text of one")
        raw = CProblem(sizeof(CProblem))
        _library.check(_library.library.convtune_problem_parse(_library.c_text(text), byref(raw)))
        line = _LETTERS.match(text)
        return cls.from_c(raw, (line[1] or line[2] or "") if line else text.split(maxsplit=1)[0])

    @classmethod
    def from_c(cls, raw: CProblem, name: str = "") -> Problem:
        def own(number: int) -> str:  # 0: of x's type
            return DTYPES[number - 1 if number else raw.dtype]

        activation = ACTIVATIONS[raw.activation]
        return cls(
            *(raw.n, raw.c, raw.h, raw.w, raw.k, raw.r, raw.s, raw.groups),
            (raw.stride_d or 1, raw.stride_h, raw.stride_w),
            (raw.pad_front, raw.pad_top, raw.pad_left, raw.pad_back, raw.pad_bottom, raw.pad_right),
            (raw.dilation_d or 1, raw.dilation_h, raw.dilation_w),
            bool(raw.bias),
            types_text(DTYPES[raw.dtype], own(raw.w_dtype), own(raw.y_dtype), own(raw.bias_dtype)),
            LAYOUTS[raw.layout],
            PRECISIONS[raw.precision],
            activation_text(activation, parameters_of(activation, raw.alpha, raw.beta)),
            name,
            d=raw.d or 1, t=raw.t or 1, direction=DIRECTIONS[raw.direction], residual=bool(raw.residual),
            rounding=ROUNDINGS[raw.rounding], snake=SNAKES[raw.snake], cache=raw.cache,
        )  # fmt: skip

    def to_c(self) -> CProblem:
        front, top, left, back, bottom, right = self._with_depth(self.padding, 0)
        (stride_d, *stride), (dilation_d, *dilation) = self._with_depth(self.stride), self._with_depth(self.dilation)
        x, w, y, bias = map(DTYPES.index, types_of(self.dtype))
        activation, parameters = ("none", ()) if self.activation == "none" else activation_of(self.activation)
        return CProblem(
            sizeof(CProblem),
            *(self.n, self.c, self.h, self.w, self.k, self.r, self.s, self.groups),
            *(*stride, *dilation, top, left, bottom, right),
            *(x, LAYOUTS.index(self.layout), PRECISIONS.index(self.precision), ACTIVATIONS.index(activation)),
            *(int(self.bias), SNAKES.index(self.snake), self.d, self.t, stride_d, dilation_d, front, back, 1 + w, 1 + y, 1 + bias),
            *(DIRECTIONS.index(self.direction), int(self.residual), ROUNDINGS.index(self.rounding)),
            *((*parameters, 0.0, 0.0)[:2]), self.cache,
        )

    @property
    def has_depth(self) -> bool:
        """3-D: neither image nor filter is a single plane without padding."""
        return len(self.stride) == 3

    @cached_property
    def dtypes(self) -> tuple[str, str, str, str]:
        """The element types of x, w, y and bias."""
        return types_of(self.dtype)

    @cached_property
    def output_size(self) -> tuple[int, ...]:
        """(p, q): the output's height and width; with its depth before them where there is one: (z, p, q)."""
        z, p, q = c_int64(), c_int64(), c_int64()
        raw = self.to_c()
        _library.check(_library.library.convtune_output_size_3d(byref(raw), byref(z), byref(p), byref(q)))
        return (z.value, p.value, q.value) if self.has_depth else (p.value, q.value)

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of x in the order of the layout: (n, c, h, w), or (n, h, w, c); with d before h where there is a
        depth."""
        return self._ordered(self.c, *self._planes(self.d, self.h, self.w))

    @property
    def cache_shape(self) -> tuple[int, ...]:
        """The shape of the cache in the order of the layout: x's, with `cache` frames."""
        return self._ordered(self.c, self.cache, self.h, self.w)

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """The shape of `cache_out` in the order of the layout: x's, with the (t - 1) * dilation frames that the next call needs."""
        return self._ordered(self.c, (self.t - 1) * self._with_depth(self.dilation)[0], self.h, self.w)

    @cached_property
    def weight_shape(self) -> tuple[int, ...]:
        """(k, c / groups, r, s), whatever the layout; with t before r where there is a depth."""
        return self.k, self.c // self.groups, *self._planes(self.t, self.r, self.s)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of y in the order of the layout: (n, k, p, q), or (n, p, q, k); with z before p where there is a
        depth. What is stored has `stored_images` of them."""
        return self._ordered(self.k, *self.output_size)

    @property
    def stored_images(self) -> int:
        """n, and twice that where a Snake's values stand behind those that it is of."""
        return 2 * self.n if self.snake == "beside" else self.n

    @property
    def flops(self) -> int:
        """Multiplies and adds: 2*n*k*z*p*q*(c/groups)*t*r*s in every direction; products with padding count."""
        return 2 * prod(self.output_shape) * prod(self.weight_shape[1:])

    @property
    def bytes(self) -> int:
        """Bytes that must move at least once: input, weights, bias, residual and output, or their gradients; of the
        input what some window touches, in whole pixels where channels come last, else in sectors of 32 bytes."""
        bytes_, raw = c_double(), self.to_c()
        _library.check(_library.library.convtune_problem_bytes(byref(raw), byref(bytes_)))
        return int(bytes_.value)

    @property
    def key(self) -> str:
        """The text form without the name: what records are filed under."""
        return _library.take_text(_library.library.convtune_problem_text, byref(self.to_c()))

    def replace(self, **changes: Any) -> Problem:
        """A copy of the problem with the named fields changed."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        letters, blank, words = self.key.partition(" ")
        return letters + (f'n"{self.name}"' if self.name else "") + blank + words

    def _ordered(self, channels: int, *image: int) -> tuple[int, ...]:
        return (self.n, channels, *image) if self.layout == "nchw" else (self.n, *image, channels)

    def _planes(self, depth: int, height: int, width: int) -> tuple[int, ...]:
        return (depth, height, width) if self.has_depth else (height, width)

    def _with_depth(self, values: tuple[int, ...], usual: int = 1) -> tuple[int, ...]:
        """The values with those of a single plane added where the problem has no depth."""
        if self.has_depth:
            return values
        return (usual, *values) if len(values) == 2 else (usual, *values[:2], usual, *values[2:])


def as_problem(problem: Problem | str) -> Problem:
    return problem if isinstance(problem, Problem) else Problem.parse(problem)


def problem_of(
    x_shape: Sequence[int], w_shape: Sequence[int], has_bias: bool, stride: Steps = 1, padding: Padding = 0,
    dilation: Steps = 1, groups: int = 1, precision: str | None = None, activation: str | None = None,
    dtype: str = "float32", residual: bool = False, axes: int = 2, cache: int = 0,
) -> Problem:  # fmt: skip
    """The problem of conv2d's arguments; with one or three `axes` of conv1d's or conv3d's: x and w as in `SHAPES`, of the
    type that array libraries call `dtype`. Raises InvalidArgument with the numbers."""
    shape_of_x, shape_of_w = SHAPES[axes]
    if len(x_shape) != axes + 2:
        more = "; x[None] adds a batch of 1" if len(x_shape) == axes + 1 else ""
        raise InvalidArgument(f"x has the shape {tuple(x_shape)}; it must be {shape_of_x}{more}")
    if len(w_shape) != axes + 2:
        raise InvalidArgument(f"w has the shape {tuple(w_shape)}; it must be {shape_of_w}")
    n, c, *image = (int(extent) for extent in x_shape)
    k, c_of_group, *taps = (int(extent) for extent in w_shape)
    steps, holes = steps_of(stride, "stride", axes), steps_of(dilation, "dilation", axes)
    edges = padding_of(padding, taps, steps, holes)
    depth = {"d": image[0], "t": taps[0]} if axes == 3 else {}
    if axes == 1:  # an image of one row
        image, taps, steps, holes, edges = [1, *image], [1, *taps], (1, *steps), (1, *holes), (0, edges[0], 0, edges[1])
    problem = Problem(
        n, c, *image[-2:], k, *taps[-2:], groups, steps, edges, holes, has_bias,
        NAMES[dtype], precision=precision or "auto", activation=activation or "none", residual=residual, cache=cache,
        **depth,
    )  # fmt: skip
    if c_of_group * problem.groups != c:
        raise InvalidArgument(
            f"x has {c} channels, but w has {c_of_group} for each of {problem.groups} groups: x {tuple(x_shape)}, "
            f"w {tuple(w_shape)}"
        )
    return problem


def transposed_problem_of(
    x_shape: Sequence[int], w_shape: Sequence[int], has_bias: bool, stride: Steps = 1, padding: Padding = 0,
    output_padding: Steps = 0, groups: int = 1, dilation: Steps = 1, precision: str | None = None,
    activation: str | None = None, dtype: str = "float32", residual: bool = False, axes: int = 2,
) -> Problem:  # fmt: skip
    """The problem of conv_transpose's arguments: backward data of the convolution that makes x of y. Raises InvalidArgument
    with the numbers, and Unsupported where the output padding is beyond what such a convolution has."""
    shape_of_x, shape_of_w = SHAPES[axes][0], SHAPES[axes][1].replace("K, C/", "C, K/")
    if len(x_shape) != axes + 2:
        raise InvalidArgument(f"x has the shape {tuple(x_shape)}; it must be {shape_of_x}")
    if len(w_shape) != axes + 2:
        raise InvalidArgument(f"w has the shape {tuple(w_shape)}; it must be {shape_of_w}")
    n, c, *image = (int(extent) for extent in x_shape)
    c_of_w, k_of_group, *taps = (int(extent) for extent in w_shape)
    if c_of_w != c:
        raise InvalidArgument(f"x has {c} channels, but w has {c_of_w}: x {tuple(x_shape)}, w {tuple(w_shape)}")
    steps, holes = steps_of(stride, "stride", axes), steps_of(dilation, "dilation", axes)
    more = steps_of(output_padding, "output_padding", axes)
    edges = padding_of(padding, taps, steps, holes)
    if min(*steps, *holes) < 1:
        raise InvalidArgument(f"stride is {steps}, dilation {holes}; they must be at least 1")
    before, behind = edges[:axes], list(edges[axes:])
    output = []
    for at in range(axes):
        if not 0 <= more[at] < max(steps[at], holes[at]):
            raise InvalidArgument(f"output_padding is {more}; it must be less than stride {steps} or dilation {holes}")
        whole = (image[at] - 1) * steps[at] + holes[at] * (taps[at] - 1) + 1 + more[at]
        output.append(whole - before[at] - behind[at])
        if more[at] >= steps[at]:  # another convolution has as many windows, with less padding
            behind[at] -= more[at]
    if min(output) < 1:
        raise InvalidArgument(f"y would be {' x '.join(map(str, output))}: there is more padding than output")
    if min(behind) < 0:
        raise Unsupported(f"output_padding is {more}, beyond stride {steps} and padding {edges}")
    size, filter_size = output, taps
    if axes == 1:  # an image of one row
        size, filter_size, steps, holes = [1, *output], [1, *taps], (1, *steps), (1, *holes)
        before, behind = (0, *before), [0, *behind]
    depth = {"d": size[0], "t": filter_size[0]} if axes == 3 else {}
    return Problem(
        n, k_of_group * groups, *size[-2:], c, *filter_size[-2:], groups, steps, (*before, *behind), holes, has_bias,
        NAMES[dtype], precision=precision or "auto", activation=activation or "none", residual=residual,
        direction="bwd_d", **depth,
    )  # fmt: skip
