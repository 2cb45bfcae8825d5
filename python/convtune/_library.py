"""libconvtune_c.so by ctypes: found, its version checked, every signature of convtune/c.h declared once, and a
status that is not 0 turned into an exception with the library's own words.

The library is CONVTUNE_LIBRARY (a file) where that is set, else convtune/lib/libconvtune_c.so beside this file.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from . import errors

# The version of the C face that this file declares; a library with another number would misread our structs.
C_VERSION = 3

# The enums of c.h, by the words that problem lines and JSON use.
DTYPES = ("f32", "f16", "bf16")
LAYOUTS = ("nchw", "nhwc")
PRECISIONS = ("auto", "fp32", "tf32", "fp16", "bf16")
DIRECTIONS = ("fwd", "bwd_d", "bwd_w")
ROUNDINGS = ("once", "eager")
SNAKES = ("none", "after", "beside")

_ERRORS: dict[int, type[errors.Error]] = {
    1: errors.InvalidArgument,
    2: errors.Unsupported,
    3: errors.NoDevice,
    4: errors.FileError,
    5: errors.DeviceLost,
    6: errors.InternalError,
    7: errors.OutOfMemory,
}


class CText(ctypes.Structure):
    """convtune_text."""

    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class CProblem(ctypes.Structure):
    """convtune_problem."""

    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_int64) for name in ("n", "c", "h", "w", "k", "r", "s", "groups")]
        + [(name, c_int64) for name in ("stride_h", "stride_w", "dilation_h", "dilation_w")]
        + [(name, c_int64) for name in ("pad_top", "pad_left", "pad_bottom", "pad_right")]
        + [(name, c_int32) for name in ("dtype", "layout", "precision", "activation", "bias", "snake")]
        + [(name, c_int64) for name in ("d", "t", "stride_d", "dilation_d", "pad_front", "pad_back")]
        + [(name, c_int32) for name in ("w_dtype", "y_dtype", "bias_dtype", "direction", "residual", "rounding")]
        + [(name, c_float) for name in ("alpha", "beta")]
        + [("cache", c_int64)]
    )


class CTensors(ctypes.Structure):
    """convtune_tensors."""

    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_void_p) for name in ("x", "residual", "dy", "y", "dx", "dw", "dbias", "cache", "cache_out")
    ] + [("dw_last", c_int32), ("reserved", c_int32)]


# int32_t (*)(void* context, stage, done, total, best_us, best, eta_seconds)
PROGRESS = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, c_int64, c_double, c_char_p, c_double)


class CPairProblem(ctypes.Structure):
    """convtune_pair_problem."""

    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_int64) for name in ("n", "c", "t", "first_taps", "dilation", "second_taps")]
        + [("dtype", c_int32), ("activation", c_int32), ("slope", c_float), ("snake", c_int32)]
        + [("activated", c_int32), ("reserved", c_int32)]
    )


class CPairWeights(ctypes.Structure):
    """convtune_pair_weights."""

    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_void_p)
        for name in (
            *("first", "first_bias", "second", "second_bias", "first_alpha", "first_scale", "second_alpha", "second_scale"),
            *("behind_alpha", "behind_scale"),
        )
    ]


class CTuneOptions(ctypes.Structure):
    """convtune_tune_options."""

    _fields_ = (
        [("struct_size", c_size_t), ("budget_seconds", c_double), ("budget_trials", c_int64), ("min_gain", c_double)]
        + [("retune", c_int32), ("save", c_int32), ("progress", PROGRESS), ("context", c_void_p)]
    )  # fmt: skip


class CBenchOptions(ctypes.Structure):
    """convtune_bench_options."""

    _fields_ = [("struct_size", c_size_t), ("seconds", c_double), ("progress", PROGRESS), ("context", c_void_p)]


# double (*)(void* context, challenger)
SIDE = ctypes.CFUNCTYPE(c_double, c_void_p, c_int32)


class CContestOptions(ctypes.Structure):
    """convtune_contest_options."""

    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_double) for name in ("min_gain", "confidence", "max_seconds")]
        + [(name, c_int32) for name in ("min_rounds", "max_rounds")]
    )


class CContestResult(ctypes.Structure):
    """convtune_contest_result."""

    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, c_double) for name in ("gain", "low", "high", "incumbent_us", "challenger_us")]
        + [(name, c_int32) for name in ("accepted", "rounds")]
    )


def library_path() -> Path:
    asked = os.environ.get("CONVTUNE_LIBRARY")
    if asked:
        return Path(asked)
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    return Path(__file__).parent / "lib" / ("libconvtune_c" + suffix)


def _load() -> ctypes.CDLL:
    path = library_path()
    if not path.is_file():
        raise ImportError(
            f"convtune's library is not at {path}: `pip install .` in convtune's sources builds and places it, "
            "or set CONVTUNE_LIBRARY to the file"
        )
    try:
        library = ctypes.CDLL(str(path))
        version = library.convtune_c_version
    except (OSError, AttributeError) as why:
        raise ImportError(f"{path} is not convtune's library: {why}") from why
    version.restype, version.argtypes = c_int32, []
    if version() != C_VERSION:
        raise ImportError(
            f"{path} speaks version {version()} of convtune's C face, this package version {C_VERSION}: "
            "install both from the same sources"
        )
    return library


def _declare(library: ctypes.CDLL) -> None:
    problem, text = POINTER(CProblem), POINTER(CText)
    status = c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "version": (c_char_p, []),
        "error_text": (c_char_p, []),
        "activation_usage": (c_char_p, [c_int32]),
        "text_free": (None, [text]),
        "problem_parse": (status, [c_char_p, problem]),
        "problem_text": (status, [problem, text]),
        "output_size_3d": (status, [problem, *[POINTER(c_int64)] * 3]),
        "problem_bytes": (status, [problem, POINTER(c_double)]),
        "devices": (status, [text]),
        "set_cpu_threads": (status, [c_int32]),
        "share_openmp_threads": (status, [c_int32]),
        "set_gpu_share": (status, [c_double]),
        "plan": (status, [problem, c_char_p, c_char_p, c_char_p, POINTER(c_void_p)]),
        "convolution_free": (None, [c_void_p]),
        "plan_json": (status, [c_void_p, text]),
        "explain": (status, [c_void_p, text]),
        "packed_bytes": (c_size_t, [c_void_p]),
        "pack": (status, [c_void_p] * 5),
        "run": (status, [c_void_p] * 5),
        "run_tensors": (status, [c_void_p, POINTER(CTensors), c_void_p, c_void_p]),
        "pair_plan": (status, [POINTER(CPairProblem), c_char_p, c_char_p, POINTER(c_void_p)]),
        "pair_free": (None, [c_void_p]),
        "pair_json": (status, [c_void_p, text]),
        "pair_packed_bytes": (c_size_t, [c_void_p]),
        "pair_pack": (status, [c_void_p, POINTER(CPairWeights), c_void_p, c_void_p]),
        "pair_run": (status, [c_void_p] * 5),
        "tune": (status, [problem, c_char_p, POINTER(CTuneOptions), text]),
        "bench": (status, [problem, c_char_p, POINTER(CBenchOptions), text]),
        "export_records": (status, [text]),
        "import_records": (status, [c_char_p, c_char_p, text]),
        "missing_shipped_records": (status, [text]),
        "environment": (status, [c_char_p, text]),
        "report_page": (status, [c_char_p, text]),
        "contest": (status, [SIDE, c_void_p, POINTER(CContestOptions), POINTER(CContestResult)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, "convtune_" + name)
        function.restype, function.argtypes = result, arguments


# Every call lets other Python threads run: a convolution on a CPU takes milliseconds, a plan on a GPU compiles.
library = _load()
_declare(library)

# Spellings of the activations, in the order of the enum in c.h: {"clip": "clip:LOW:HIGH"}.
ACTIVATION_USAGES = {
    usage.partition(":")[0]: usage
    for usage in (text.decode() for text in iter(map(library.convtune_activation_usage, count()).__next__, None))
}
ACTIVATIONS = tuple(ACTIVATION_USAGES)


def version() -> str:
    """The library's version, "0.1.0"."""
    return bytes(library.convtune_version()).decode()


def fail(status: int) -> NoReturn:
    """Raises what `status`, which is not 0, stands for, with the words that the library has for it."""
    words = bytes(library.convtune_error_text()).decode("utf-8", "replace")
    raise _ERRORS.get(status, errors.Error)(words)


def check(status: int) -> None:
    if status:
        fail(status)


def c_text(text: str | None) -> bytes | None:
    """The text as the library reads it. Null characters, which would cut it short there unseen, are refused."""
    if text is None:
        return None
    if "\0" in text:
        raise errors.InvalidArgument(f"{text!r} holds a null character")
    return text.encode("utf-8", "surrogateescape")


def device_text(device: Any) -> bytes | None:
    """The C face's text for "cuda:0", a Device or a torch.device; None stays None."""
    return None if device is None else c_text(str(device))


def take_text(function: Any, *arguments: Any) -> str:
    """Calls a function whose last parameter is a convtune_text, and takes what it wrote."""
    text = CText()
    check(function(*arguments, byref(text)))
    try:
        return ctypes.string_at(text.data, text.size).decode("utf-8", "replace") if text.data else ""
    finally:
        library.convtune_text_free(byref(text))


def take_json(function: Any, *arguments: Any) -> Any:
    return json.loads(take_text(function, *arguments))
