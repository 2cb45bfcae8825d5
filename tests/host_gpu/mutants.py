#!/usr/bin/env python3
"""Faults put into copies of the kernels, one at a time: is each found?   mutants.py HOST_KERNEL [WORD]

HOST_KERNEL is the built program host_kernel; WORD chooses faults by their names. Prints a line a fault, and exits with
1 where one is not found."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"
BODY, GEMM80, FMA, STEM = "direct_body_half_sm90", "implicit_gemm_half_sm80", "direct_fma_sm80", "direct_stem_half"
HALF = " dtype=bf16 precision=bf16 layout=nhwc residual=1 act=relu"
PROBLEMS = {
    BODY: [
        "mb2ic64ih14oc128kh3ph1" + HALF,
        "mb1ic128ih30iw20oc200kh3ph1 precision=bf16 layout=nhwc dtype=bf16:bf16:bf16:f32",
    ],
    GEMM80: ["mb2ic64ih14oc64kh3ph1" + HALF],
    FMA: ["mb2g2ic8ih12iw16oc8kh3ph1 precision=fp32"],
    STEM: ["mb1ic3ih16oc16kh3ph1 precision=bf16 layout=nhwc dtype=bf16"],
}
MODES = ["late watch", "shuffled watch seed=1"]
KERNEL, LOAD = "algorithms/{0}/{0}.cuh", "algorithms/{0}/load.cuh"
STORE, RING = "algorithms/{0}/store.cuh", "tile/ring.cuh"
FAULTS = [  # name, algorithm, file, text, what stands in its place
    (
        "weights that are not committed",
        STEM,
        KERNEL,
        "  ptx::cp_async_commit_group();  // the weights: a wait counts what is committed\n",
        "",
    ),
    (
        "a barrier behind shared memory",
        BODY,
        KERNEL,
        "config.stagings() * config.places()",
        "config.consumers * config.places()",
    ),
    (
        "one product too many under way",
        BODY,
        KERNEL,
        "ptx::wgmma_wait<1>();",
        "ptx::wgmma_wait<2>();",
    ),
    (
        "last products that are not waited for",
        BODY,
        KERNEL,
        "  ptx::wgmma_wait<0>();\n  release_weights",
        "  release_weights",
    ),
    (
        "the wrong phase of full",
        BODY,
        RING,
        "ptx::mbarrier_wait(barrier(full), parity)",
        "ptx::mbarrier_wait(barrier(full), parity ^ 1)",
    ),
    (
        "the wrong phase of empty",
        BODY,
        RING,
        "ptx::mbarrier_wait(barrier(empty), parity ^ 1)",
        "ptx::mbarrier_wait(barrier(empty), parity)",
    ),
    (
        "a column off",
        BODY,
        LOAD,
        "(at.column - kColumns.before())",
        "(at.column + 1 - kColumns.before())",
    ),
    (
        "no fence before a box is stored",
        BODY,
        STORE,
        "      ptx::fence_proxy_async();\n      sync();",
        "      sync();",
    ),
    (
        "no barrier before a box is stored",
        BODY,
        STORE,
        "      ptx::fence_proxy_async();\n      sync();",
        "      ptx::fence_proxy_async();",
    ),
    (
        "a residual that is not waited for",
        BODY,
        STORE,
        "      ptx::mbarrier_wait(residual_full, residual_parity);",
        "      ;",
    ),
    (
        "16 bytes too few expected",
        BODY,
        LOAD,
        "ptx::mbarrier_arrive_expect_if(full, kBytes, mine)",
        "ptx::mbarrier_arrive_expect_if(full, kBytes - 16, mine)",
    ),
    (
        "zeros behind boxes that are not written",
        BODY,
        KERNEL,
        "  clear_what_nobody_brings<config>(smem);",
        "",
    ),
    (
        "a stage too few waited for",
        GEMM80,
        KERNEL,
        "          ptx::cp_async_wait_group<kStages - 2>();\n          __syncthreads();",
        "          ptx::cp_async_wait_group<kStages - 1>();\n          __syncthreads();",
    ),
    (
        "no commit in the loop",
        GEMM80,
        KERNEL,
        "          ptx::cp_async_commit_group();\n        }\n      });",
        "        }\n      });",
    ),
    (
        "no barrier behind the wait",
        FMA,
        KERNEL,
        "  ptx::cp_async_wait_group<0>();\n  __syncthreads();",
        "  ptx::cp_async_wait_group<0>();",
    ),
]


def found(program, algorithm, tree):
    """How a fault shows, or nothing."""
    for problem in PROBLEMS[algorithm]:
        for mode in MODES:
            environment = dict(os.environ, CONVTUNE_KERNEL_DIR=str(tree))
            try:
                done = subprocess.run(
                    [program, algorithm, problem, "", mode],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=600,
                )
            except subprocess.TimeoutExpired:
                return f"{mode}: it does not end"
            if done.returncode == 2 or "does not compile" in done.stdout:
                sys.exit(f"mutants: {algorithm} could not be run: {done.stderr or done.stdout[:2000]}")
            if done.returncode != 0:
                mark = next((one for one in ("LAUNCH_FAILED (", ": y[") if one in done.stdout), None)
                text = done.stdout.split(mark, 1)[1].splitlines()[0] if mark else "a crash"
                return f"{mode}: {text[:160]}"
    return ""


def main():
    program, word = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    missed = 0
    for algorithm in PROBLEMS:
        if how := found(program, algorithm, SOURCES):
            sys.exit(f"mutants: {algorithm} is wrong as it is: {how}")
    for name, algorithm, file, text, instead in FAULTS:
        if word not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder) / "src"
            shutil.copytree(SOURCES, tree)
            path = tree / "cuda" / file.format(algorithm)
            before = path.read_text()
            if text not in before:
                sys.exit(f"mutants: {path.relative_to(tree)} has changed, and '{name}' cannot be put in")
            path.write_text(before.replace(text, instead))
            how = found(program, algorithm, tree)
        missed += not how
        print(f"{name} | {algorithm} | {how or 'NOT FOUND'}", flush=True)
    sys.exit(1 if missed else 0)


main()
