"""Gradients by convtune's plans beside PyTorch's convolution_backward, free and deterministic, on one GPU.

    python bench/torch_gradients.py --suite training --json found.json
    python bench/torch_gradients.py --lines FILE --plans FILE    # other plans of ours, too: "problem | algorithm | config"
    python bench/torch_gradients.py --suite training --bits 20 --against found.json    # with --ours: no way of PyTorch's

A row is a line of a suite (cases/); forward problems are taken, too, beside PyTorch's convolution. Ours is what plan()
answers, a record's or the first guess, with the packing of weights; PyTorch's is the faster of cudnn.benchmark on and off. A gradient
whose plan keeps cuDNN is PyTorch's own in every call of convtune's (convtune.torch.backward): it counts as 1, and is not measured.
All ways run in turns between events, behind a flush of the L2. `--bits N`: the same bits of N runs, half of them beside
other work, and those of an earlier process in the file `--against`.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch

import convtune
from convtune.tensors import lying

CASES = Path(__file__).resolve().parent.parent / "cases"
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
AGREES = {"f32": 4e-3, "f16": 8e-3, "bf16": 4e-2}  # the largest difference of two answers, over their root mean square
FREE, SURE = "free", "deterministic"
FLUSHED = 512 << 20


@dataclass
class Way:
    name: str
    run: object
    samples: list = field(default_factory=list)
    failure: str = ""

    @property
    def us(self):
        return statistics.median(self.samples) if self.samples else math.inf


def lines_of(path):
    return [line.strip() for line in Path(path).read_text().splitlines() if line.strip() and not line.startswith("#")]


def plans_of(path):
    """By problem, the plans that a file asks for beside ours."""
    found = {}
    for line in lines_of(path) if path else ():
        problem, algorithm, config = (word.strip() for word in line.split("|"))
        found.setdefault(convtune.Problem.parse(problem), []).append((algorithm, config))
    return found


class Row:
    """A problem's tensors, and what runs it."""

    def __init__(self, problem, device, last=False):
        self.problem, self.device, self.last = problem, device, last
        a, axes = problem, 3 if len(problem.stride) == 3 else 2
        kind, last = TYPES[a.dtype], {2: torch.channels_last, 3: torch.channels_last_3d}[axes]
        form = last if a.layout == "nhwc" else torch.contiguous_format
        generator = torch.Generator(device).manual_seed(1)

        def drawn(*shape):
            some = torch.rand(shape, generator=generator, device=device, dtype=torch.float32) * 2 - 1
            return some.to(kind).contiguous(memory_format=form)

        image, taps = (a.d, a.h, a.w)[-axes:], (a.t, a.r, a.s)[-axes:]
        outputs = [(size + before + behind - dilation * (filter_ - 1) - 1) // step + 1 for size, filter_, step, dilation, before,
                   behind in zip(image, taps, a.stride, a.dilation, a.padding[:axes], a.padding[axes:])]  # fmt: skip
        self.x, self.dy = drawn(a.n, a.c, *image), drawn(a.n, a.k, *outputs)
        self.w = drawn(a.k, a.c // a.groups, *taps)
        self.plain = self.w.contiguous()  # as plans take it
        self.even = a.padding[:axes] == a.padding[axes:]

    def theirs(self):
        a, axes = self.problem, len(self.problem.stride)
        padding = a.padding[:axes]
        if a.direction == "fwd":
            convolve = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[axes]
            return lambda: convolve(self.x, self.w, None, a.stride, padding, a.dilation, a.groups)
        mask = [a.direction == "bwd_d", a.direction == "bwd_w", a.direction == "bwd_w" and a.bias]
        sizes, none = [a.k] if mask[2] else None, [0] * axes

        def backward():
            found = torch.ops.aten.convolution_backward(
                self.dy, self.x, self.w, sizes, a.stride, padding, a.dilation, False, none, a.groups, mask)  # fmt: skip
            return found[0 if mask[0] else 1]

        return backward

    def ours(self, convolution):
        """Queues the plan with its packing, and gives its result."""
        a, stream = self.problem, torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        packed = torch.empty(max(convolution.packed_bytes, 1) + 256, dtype=torch.uint8, device=self.device)
        at = packed.data_ptr() + -packed.data_ptr() % 256
        if a.direction == "bwd_w":
            at_once = self.last and convolution.can_lay_dw_last
            result, bias = torch.empty_like(self.w if at_once else self.plain), torch.empty(a.k, dtype=self.w.dtype, device=self.device)

            def run():
                convolution.run_tensors_raw(x=self.x.data_ptr(), dy=self.dy.data_ptr(), dw=result.data_ptr(), dw_last=at_once,
                                            dbias=bias.data_ptr() if a.bias else 0, stream=stream)  # fmt: skip
                return result if at_once or not self.last else torch.empty_like(self.w).copy_(result)

            return run
        of_x = a.direction == "bwd_d"
        result = torch.empty_like(self.x if of_x else self.dy)
        tensors = {"dy": self.dy.data_ptr(), "dx": result.data_ptr()} if of_x else {
            "x": self.x.data_ptr(), "y": result.data_ptr()}  # fmt: skip

        weights = lying(convolution, self.w, self.w)

        def run():
            if not weights:
                convolution.pack_raw(self.plain.data_ptr(), 0, at, stream)
            convolution.run_tensors_raw(**tensors, packed=weights or at, stream=stream)
            return result

        run.packed = packed  # lives as long
        return run


class Machine:
    def __init__(self, device):
        self.device = torch.device(device)
        self.gpu = self.device.type == "cuda"
        if self.gpu:
            self.flush = torch.empty(FLUSHED // 4, dtype=torch.int32, device=self.device)
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def synchronize(self):
        if self.gpu:
            torch.cuda.synchronize(self.device)

    def us(self, run):
        if not self.gpu:
            begin = time.perf_counter()
            run()
            return (time.perf_counter() - begin) * 1e6
        self.flush.add_(1)
        self.events[0].record()
        run()
        self.events[1].record()
        self.events[1].synchronize()
        return 1000 * self.events[0].elapsed_time(self.events[1])


def with_settings(run, benchmark, deterministic):
    def settled():
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
        return run()

    return settled


def signature(tensor):
    """Two sums of all words, one of them by their places."""
    words = tensor.detach().reshape(-1).view(torch.int16 if tensor.element_size() == 2 else torch.int32)
    sums = [0, 0]
    for begin in range(0, words.numel(), 1 << 26):
        part = words[begin : begin + (1 << 26)].long()
        places = torch.arange(begin, begin + part.numel(), device=part.device) % 65521 + 1
        sums = [(sums[0] + int(part.sum())) % (1 << 61), (sums[1] + int((part * places).sum())) % (1 << 61)]
    return sums


def same_bits(run, times, machine):
    """(how many of `times` runs were not as the first, the first's signature); every other beside products of matrices."""
    machine.synchronize()
    first = signature(run())
    matrix = torch.rand(2048, 2048, device=machine.device)
    beside = torch.cuda.Stream() if machine.gpu else None
    unlike = 0
    for i in range(1, times):
        if beside is not None and i % 2:
            with torch.cuda.stream(beside):
                for _ in range(8):
                    matrix = torch.tanh(matrix @ matrix)
        unlike += signature(run()) != first
    return unlike, first


def measure(row, ours, machine, options):
    """A row of the table. `ours`: names and Convolutions, plan()'s first, or why there is none."""
    problem, ways, found = row.problem, [], {}
    for name, convolution in ours:
        ways.append(Way(name, None, failure=convolution) if isinstance(convolution, str) else Way(name, row.ours(convolution)))
    theirs = row.theirs()
    if row.even and not options.ours:
        for name, deterministic in ((FREE, False), (SURE, True)) if problem.direction != "fwd" else ((FREE, False),):
            for benchmark in (True, False):
                ways.append(Way(f"{name}{'' if benchmark else ', no benchmark'}", with_settings(theirs, benchmark, deterministic)))
    answers = {}
    for way in ways:
        if way.failure:
            continue
        try:
            answers[way.name] = way.run()
            machine.synchronize()
            way.run()
            machine.synchronize()
        except Exception as error:  # whatever a library raises belongs in the table
            way.failure = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    if FREE in answers:
        reference = answers[FREE].float()
        for way in ways[: len(ours)]:
            if way.name in answers:
                error = float((answers[way.name].float() - reference).square().mean().sqrt() / reference.square().mean().sqrt())
                if not error <= AGREES[problem.dtype]:
                    way.failure = f"its answer is {error:.2e} off PyTorch's"
        del reference
    answers.clear()
    if options.bits and not ways[0].failure:
        found["unlike"], found["signature"] = same_bits(ways[0].run, options.bits, machine)
    running, spent, rounds = [way for way in ways if not way.failure], 0.0, 0
    while running and (rounds < 5 or (spent < options.seconds * 1e6 and rounds < 200)):
        for way in running if rounds % 2 == 0 else running[::-1]:
            way.samples.append(machine.us(way.run))
            spent += way.samples[-1]
        rounds += 1
    found |= {"name": problem.name, "problem": str(problem), "us": {way.name: way.us for way in ways if way.samples},
              "failures": {way.name: way.failure for way in ways if way.failure}}  # fmt: skip
    return found


def best(found, prefix):
    return min((us for name, us in found["us"].items() if name.split(",")[0] == prefix), default=math.inf)


def said(found, earlier):
    own = found["us"].get("ours", math.inf)
    text = f"{found['name'] or found['problem']:36.36} {own:8.1f} {best(found, FREE):8.1f} {best(found, SURE):8.1f}"
    text += "".join(f" {us:8.1f}" for name, us in found["us"].items() if not name.startswith(("ours", FREE, SURE)))
    if "unlike" in found:
        before = earlier.get(found["problem"])
        text += f"  bits {'equal' if found['unlike'] == 0 else 'UNLIKE ' + str(found['unlike'])}"
        text += "" if before is None else ", as before" if before == found["signature"] else ", NOT as before"
    return text + "".join(f"  {name}: {why}" for name, why in found["failures"].items()) + f"  {found['plan'][:60]}"


def keeps_pytorchs(problem, convolution):
    return problem.direction != "fwd" and not isinstance(convolution, str) and convolution.plan.algorithm == "cudnn"


def ratio(row, peer):
    """None where that peer or ours has no time."""
    if row["pytorchs"]:
        return 1.0 if best(row, peer) < math.inf else None
    own = row["us"].get(row["ours"])
    return best(row, peer) / own if own and best(row, peer) < math.inf else None


def means(rows):
    for direction in ("fwd", "bwd_d", "bwd_w"):
        some = [row for row in rows if row["direction"] == direction]
        for peer in (FREE, SURE):
            ratios = [one for row in some if (one := ratio(row, peer)) is not None]
            if ratios:
                mean = math.exp(statistics.fmean(math.log(one) for one in ratios))
                print(f"{direction}: {mean:.3f} over PyTorch's {peer} ({len(ratios)} rows, least {min(ratios):.2f}, "
                      f"{sum(one < 0.98 for one in ratios)} below 0.98, {sum(row['pytorchs'] for row in some)} are PyTorch's own)")  # fmt: skip


def save(path, machine, rows):
    """Writes the rows with the device and versions that they are of."""
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version() if machine.gpu else None}
    device = torch.cuda.get_device_name(machine.device) if machine.gpu else "cpu"
    path.write_text(json.dumps({"device": device, "versions": versions, "rows": rows}, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", nargs="*", default=[], help="names of files of cases/")
    parser.add_argument("--lines", type=Path, help="problem lines in a file")
    parser.add_argument("--plans", type=Path, help="other plans: lines of PROBLEM | ALGORITHM | CONFIG")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of a row")
    parser.add_argument("--bits", type=int, default=0, help="runs whose bits are compared")
    parser.add_argument("--last", action="store_true", help="dw as the weight lies, with a copy behind plans that cannot store it so")
    parser.add_argument("--against", type=Path, help="another process's --json, whose bits are compared")
    parser.add_argument("--ours", action="store_true", help="no way of PyTorch's")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds behind which rows are left out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    lines = [line for suite in options.suite for line in lines_of(CASES / f"{suite}.txt")]
    lines += lines_of(options.lines) if options.lines else []
    problems, others = [convtune.Problem.parse(line) for line in lines], plans_of(options.plans)
    earlier = json.loads(options.against.read_text())["rows"] if options.against else []
    earlier = {row["problem"]: row["signature"] for row in earlier if "signature" in row}
    machine, rows = Machine(options.device), []

    def planned(problem, *way):
        try:
            return convtune.Convolution(problem, options.device, *way)
        except convtune.Error as why:
            return str(why).splitlines()[0]

    # Kernels are compiled ahead, by all processors.
    with ThreadPoolExecutor(max(len(os.sched_getaffinity(0)) - 1, 1)) as pool:
        ready = [[("ours", pool.submit(planned, one))] + [(f"{name} {config}", pool.submit(planned, one, name, config))
                 for name, config in others.get(one, ())] for one in problems]  # fmt: skip
        print(f"{'us':36} {'ours':>8} {FREE:>8} {'determ.':>8}{'  other plans of ours' if others else ''}", flush=True)
        for problem, ways in zip(problems, ready):
            if time.monotonic() - begin > options.deadline:
                print(f"{len(problems) - len(rows)} rows left out: no time")
                pool.shutdown(wait=False, cancel_futures=True)
                break
            ours = [(name, one.result()) for name, one in ways]
            pytorchs = keeps_pytorchs(problem, ours[0][1]) and not options.ours
            measured = [("ours", "PyTorch's own runs"), *ours[1:]] if pytorchs else ours
            found = measure(Row(problem, machine.device, options.last), measured, machine, options)
            plan = ours[0][1] if isinstance(ours[0][1], str) else f"{ours[0][1].plan.source}: {ours[0][1].plan.algorithm}"
            rows.append(found | {"plan": plan, "direction": problem.direction, "ours": "ours", "pytorchs": pytorchs})
            print(said(rows[-1], earlier), flush=True)
            if options.json:
                save(options.json, machine, rows)
    means(rows)
    wrong = [row["name"] for row in rows if row.get("unlike") or
             row["problem"] in earlier and "signature" in row and row["signature"] != earlier[row["problem"]]]  # fmt: skip
    if wrong:
        sys.exit(f"bits differ: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
