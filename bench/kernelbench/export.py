#!/usr/bin/env python3
"""Writes `convtune export --class` files for convolutions of KernelBench's level 1, and holds them against the benchmark's
static checker. Needs a checkout of the benchmark and no GPU; evaluate.py goes on from here on a machine with one.

    export.py --kernelbench ~/KernelBench --convtune build/release/cli/convtune --out files
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

ROWS = [50, *range(54, 88)]  # level 1's convolutions
# Precisions in which the files may multiply the benchmark's fp32 tensors: as PyTorch's default lets cuDNN do, or in fp32.
# The last: for 1x1 layers, whose operands cuDNN rounds to TF32 with ties to even.
PRECISIONS = ("tf32", "fp32", "even")
POINTWISE = (86, 87)
# Layers that PyTorch itself multiplies in fp32: of three channels in 3-D, and transposed ones in groups or dilated.
FULL = (54, 59, 60, 66, 72, 75)
# The evaluator's other types, all tensors in one of them, as the command and the checker call them.
HALVES = {"bf16": "bf16", "fp16": "f16"}


def passing(row):
    """The way to multiply that passes beside PyTorch's."""
    return "even" if row in POINTWISE else "fp32" if row in FULL else "tf32"


def problem_file(kernelbench, row):
    found = sorted((Path(kernelbench) / "KernelBench" / "level1").glob(f"{row}_*.py"))
    if not found:
        sys.exit(f"{kernelbench} has no problem {row} of level 1")
    return found[0]


def static_checker(kernelbench):
    path = Path(kernelbench) / "src" / "kernelbench" / "kernel_static_checker.py"
    spec = importlib.util.spec_from_file_location("kernel_static_checker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(convtune, kernelbench, row, kind, format_, target, out):
    """One file by the command; `target` as --target has it."""
    numbers = ["--dtype", HALVES[kind]] if kind in HALVES else ["--precision", "tf32" if kind == "even" else kind]
    words = [] if format_ == "triton" else ["--device" if target.startswith("cuda") else "--target", target]
    file = out / f"{row}_{kind}_{format_}.py"
    subprocess.run([convtune, "export", "--class", problem_file(kernelbench, row), *numbers, "--format", format_, *words,
                    *(["--ties", "even"] if kind == "even" else []), "-o", file], check=True, stderr=subprocess.PIPE)
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, help="problems of level 1 (default: all 35)")
    parser.add_argument("--kernelbench", required=True, metavar="DIR", help="a checkout of the benchmark")
    parser.add_argument("--convtune", default="convtune", help="the command")
    parser.add_argument("--target", default="h100", help="a target of the command, or the GPU that is here: --target cuda:0")
    parser.add_argument("--kinds", nargs="+", default=list(PRECISIONS), choices=[*PRECISIONS, *HALVES, "passing"],
                        help="passing: of each row the one that passes")
    parser.add_argument("--formats", nargs="+", default=["cuda", "triton"], choices=["cuda", "triton"])
    parser.add_argument("--out", required=True, metavar="DIR")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    checker, failed = static_checker(args.kernelbench), 0
    for row in args.rows or ROWS:
        for kind in [passing(row)] if args.kinds == ["passing"] else args.kinds:
            for format_ in args.formats:
                if kind == "even" and (row not in POINTWISE or format_ == "triton"):
                    continue
                file = write(args.convtune, args.kernelbench, row, kind, format_, args.target, out)
                valid, errors, warnings = checker.validate_kernel_static(
                    file.read_text(), backend=format_, precision=kind if kind in HALVES else "fp32")
                failed += not valid
                print(f"{file.name:20} {'valid' if valid else 'NOT VALID'} {'; '.join([*errors, *warnings])}".rstrip())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
