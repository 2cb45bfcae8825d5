#!/usr/bin/env python3
"""Builds the files that `convtune export` writes, on a GPU with PyTorch: are they right, and as fast as the library?

For each case the CUDA file (with the library's own kernel) and the Triton file, beside the library itself through
its Python package (PYTHONPATH=python, CONVTUNE_LIBRARY=.../libconvtune_c.so) and F.conv2d: the same tensors, the same
stopwatch with L2 flushed, in turns. An answer is held against F.conv2d in TF32 (the share of outputs within
atol = rtol = 1e-4, KernelBench's tolerance) and against double precision, which F.conv2d is too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from problem_lines import BadInput, find, to_line  # noqa: E402
from torch_peers import Case, Machine, NoDevice, Provider, TritonFile  # noqa: E402

TOLERANCE = 1e-4
FP64_IMAGES = 8


def chosen(paths):
    """Algorithm and config of convtune's own row, by case, from results of `convtune bench --json`."""
    plans = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                plans[row["case"]] = next((p["algorithm"], p["config"]) for p in row["providers"]
                                          if p["name"] == "convtune")
    return plans


def export(command, problem, plan, format_, path):
    words = [command, "export", *to_line(problem).split(" "), "--format", format_, "-o", path]
    if format_ == "cuda":
        words += ["--device", "cuda:0", *(["--algorithm", plan[0], "--config", plan[1]] if plan else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BadInput(f"{' '.join(words)}: {done.stderr.strip()}")


def build(path, line):
    """Runs in a child process: compiles what the file will need."""
    import torch
    file, problem = TritonFile(path), find([line])[0]
    file.load()
    if "triton" in os.path.basename(path):
        file.module.ModelNew().cuda()(torch.zeros(problem.n, problem.c, problem.h, problem.w, device="cuda"))
        torch.cuda.synchronize()


def build_all(files):
    """All at once, since nvcc and Triton take a minute for each."""
    begin = time.monotonic()
    running = [(path, subprocess.Popen([sys.executable, os.path.abspath(__file__), "--build", path, line],
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
               for path, line in files]
    for path, child in running:
        output, _ = child.communicate()
        if child.returncode != 0:
            print(f"{os.path.basename(path)} cannot be built:\n{output[-3000:]}")
    print(f"built {len(files)} files in {time.monotonic() - begin:.0f} s")


def share_within(y, expected):
    return float(((y - expected).abs() <= TOLERANCE + TOLERANCE * expected.abs()).double().mean())


def answers(torch, case, model, data):
    """Shares within the tolerance: of the model against F.conv2d, of both against double precision."""
    a, device = case.problem, case.machine.device
    generator = torch.Generator(device).manual_seed(3)
    layer = model.conv1
    with torch.no_grad():
        if data == "uniform -1..1":
            x = torch.rand((a.n, a.c, a.h, a.w), generator=generator, device=device) * 2 - 1
            layer.weight.uniform_(-1, 1, generator=generator)
        else:  # as KernelBench has it: images in 0..1, PyTorch's own weights
            x = torch.rand((a.n, a.c, a.h, a.w), generator=generator, device=device)
            layer.reset_parameters()
        theirs, ours = layer(x), model(x)
        if a.act == "relu":
            theirs = theirs.relu()
        few = x[:FP64_IMAGES].double()
        exact = torch.nn.functional.conv2d(few, layer.weight.double(), None if layer.bias is None else
                                           layer.bias.double(), layer.stride, layer.padding, layer.dilation,
                                           layer.groups)
        exact = exact.relu() if a.act == "relu" else exact
        return {"data": data, "ours_of_conv2d": share_within(ours, theirs),
                "largest_difference": float((ours - theirs).abs().max()),
                "ours_of_fp64": share_within(ours[:FP64_IMAGES].double(), exact),
                "conv2d_of_fp64": share_within(theirs[:FP64_IMAGES].double(), exact)}


def check_module(torch, case, file):
    """Packed once, and again when weights change; any alignment; another stream; PyTorch off the GPU."""
    a, module = case.problem, file.module
    packs, pack = [], module.pack
    module.pack = lambda *tensors: packs.append(1) or pack(*tensors)
    model, x = module.ModelNew().to(case.machine.device), case.x[a.layout]
    with torch.no_grad():
        expected = model.conv1(x)
        expected = expected.relu() if a.act == "relu" else expected
        first = model(x)
        assert torch.equal(model(x), first) and len(packs) == 1, f"packed {len(packs)} times"
        behind = torch.empty(x.numel() + 1, device=x.device)[1:].as_strided(x.shape, x.stride(), 1).copy_(x)
        assert behind.data_ptr() % 16 == 4 and torch.equal(model(behind), first), "another alignment, another answer"
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            elsewhere = model(x)
        stream.synchronize()
        assert torch.equal(elsewhere, first), "another stream, another answer"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = model(x)
        recorded.zero_()
        graph.replay()
        assert torch.equal(recorded, first), "in a CUDA graph, another answer"
        model.conv1.weight.mul_(2)
        assert not torch.equal(model(x), first) and len(packs) == 2, "a change of the weights is not seen"
        model.conv1.weight = torch.nn.Parameter(model.conv1.weight / 2)
        assert torch.equal(model(x), first) and len(packs) == 3, "new weights are not seen"
        small = x[:1].cpu()
        on_cpu = model.cpu()(small)
        assert torch.allclose(on_cpu, expected[:1].cpu(), atol=1e-2), "off the GPU it is not PyTorch's"
    module.pack = pack


def library(torch, case, plan):
    import convtune
    convolution = convtune.Convolution(to_line(case.problem), "cuda:0", *(plan or ()))
    a, device = case.problem, case.machine.device
    packed = torch.empty(convolution.packed_bytes, dtype=torch.uint8, device=device)
    y = torch.empty((a.n, a.k, a.p, a.q), device=device, memory_format=case.formats[a.layout])
    stream = torch.cuda.current_stream().cuda_stream
    w, x = case.w["nchw"], case.x[a.layout]
    convolution.pack_raw(w.data_ptr(), case.bias.data_ptr() if a.bias else 0, packed.data_ptr(), stream)

    def run():
        convolution.run_raw(x.data_ptr(), packed.data_ptr(), y.data_ptr(), stream)
        return y

    return Provider("convtune", f"{convolution.plan.algorithm} {convolution.plan.config}", run=run)


def bind(torch, case, module):
    model = module.ModelNew().to(case.machine.device)
    x = case.x[case.problem.layout]
    with torch.no_grad():
        model.conv1.weight.copy_(case.w["nchw"])
        if case.bias is not None:
            model.conv1.bias.copy_(case.bias)
    return lambda: model(x)


def check_case(torch, machine, problem, plan, paths, seconds):
    case = Case(machine, problem)
    providers, shares = [library(torch, case, plan)], {}
    for format_, path in paths.items():
        file, provider = TritonFile(path), Provider(f"export_{format_}")
        try:
            file.load()
            if format_ == "cuda":
                check_module(torch, case, file)
            provider.run = bind(torch, case, file.module)
            model = file.module.ModelNew().to(machine.device)
            shares[provider.name] = [answers(torch, case, model, data) for data in ("uniform -1..1", "KernelBench's")]
        except Exception as error:  # a file that fails is a row that says so
            provider.failure, provider.run = f"{type(error).__name__}: {error}"[:300], None
        providers.append(provider)
    eager = case.eager()
    lies = case.problem.layout
    providers.append(Provider("torch_eager", f"nhwc={int(lies == 'nhwc')}",
                              run=lambda: eager(case.x[lies], case.w[lies])))
    for provider in providers:
        if provider.run:
            case.judge(provider, problem.act == "relu")
    with torch.no_grad():
        case.measure(providers, seconds)
    row = {"case": problem.name, "problem": to_line(case.problem), "device": machine.fingerprint(),
           "roofline": {"floor_us": 0, "bound": ""}, "providers": [], "best_peer": None, "speedup": None}
    for provider in providers:
        found = {"shares": shares[provider.name]} if provider.name in shares else {}
        row["providers"].append(provider.json(0) | found)
        print(f"{problem.name:24} {provider.name[:60]:60} " + (f"failed: {provider.failure}" if provider.failure else
              f"{provider.time_us:8.1f} us  MAD {provider.mad_us:.1f}  n {provider.n}  error {provider.max_error:.1e}  "
              f"{provider.time_us / providers[0].time_us:.3f} of the library's time"))
        for share in shares.get(provider.name, []):
            print(f"{'':24}   {share['data']}: {100 * share['ours_of_conv2d']:.4f} % within of F.conv2d (largest "
                  f"difference {share['largest_difference']:.1e}); of fp64 {100 * share['ours_of_fp64']:.2f} %, "
                  f"F.conv2d's {100 * share['conv2d_of_fp64']:.2f} %", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="case names or benchdnn lines")
    parser.add_argument("--convtune", default="convtune", help="the command")
    parser.add_argument("--plans", action="append", default=[], metavar="JSON",
                        help="results of `convtune bench --json`: the kernels to export (else what plan says)")
    parser.add_argument("--triton", type=int, default=100, metavar="N", help="Triton files for the first N cases")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--build", nargs=2, metavar=("FILE", "LINE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        return build(*args.build)
    import torch
    try:
        machine, plans = Machine(torch, 0), chosen(args.plans)
        problems = [find([text])[0] for text in args.cases]
        with tempfile.TemporaryDirectory() as folder:
            files, lines = [], []
            for i, problem in enumerate(problems):
                paths = {"cuda": os.path.join(folder, f"cuda_{i}.py")}
                if i < args.triton and problem.layout == "nchw":
                    paths["triton"] = os.path.join(folder, f"triton_{i}.py")
                for format_, path in paths.items():
                    export(args.convtune, problem, plans.get(problem.name), format_, path)
                    lines.append((path, to_line(problem)))
                files.append(paths)
            build_all(lines)
            rows = [check_case(torch, machine, problem, plans.get(problem.name), paths, args.seconds)
                    for problem, paths in zip(problems, files)]
    except (BadInput, NoDevice) as error:
        sys.exit(f"export_check: {error}")
    if args.json:
        report = {"schema": 1, "environment": machine.environment(), "rows": rows, "geomean_speedup": None,
                  "wins": 0, "ties": 0, "losses": 0}
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(report, out, indent=1)
            out.write("\n")
    return 1 if any(p.get("failure") for row in rows for p in row["providers"]) else 0


if __name__ == "__main__":
    sys.exit(main())
