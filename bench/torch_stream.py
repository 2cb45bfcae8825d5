#!/usr/bin/env python3
"""A compiled model that is served batches of random sizes: how long its slowest calls take beside others of their batch.

    python bench/torch_stream.py --model resnet50 --calls 500                       # on the GPU, in bf16
    python bench/torch_stream.py --model resnet18 --size 64 --device cpu --calls 200
    python bench/torch_stream.py --backend inductor --write inductor.json           # for comparison,
    python bench/torch_stream.py --beside inductor.json                             # which this says

The first call has a batch of 8 whose first size is marked (mark_dynamic), of which PyTorch makes a graph for any batch but 1; then come random ones,
--calls and more, until --seconds are over since the first call began. A batch's median is that of all its calls. Of the slowest it says
what else happened: how much was the host's until all was launched, how often the system took the processor away, collections of garbage.
One answer in ten is held to the model's own. Status 1 where a call after --minute seconds took over 3 times its batch's median, or an answer is wrong. Random
weights; needs PyTorch and torchvision.
"""

import argparse
import contextlib
import gc
import json
import math
import pathlib
import random
import resource
import statistics
import sys
import threading
import time

import torch
import torch.fx.experimental._config
import torchvision


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def counted():
    """Counts over a thread's life: how often its processor was taken away, and collections of garbage."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw, sum(one["collections"] for one in gc.get_stats())


def sent_away(moments):
    """Has the moments noted at which inductor ends its compiling processes, as it does when they have had no work for a minute."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.compile_worker.subproc_pool import SubprocPool

        real = SubprocPool.quiesce
        SubprocPool.quiesce = lambda pool: (moments.append(time.perf_counter()), real(pool))


def send_away(times, begin, until, moments):
    """Wakes inductor's compiling processes and sends them away `times` times, begun `begin` seconds from now and over after `until`: by
    turns as inductor does it, and as convtune does (torch/leaving.py). Notes the moments, and which it was."""
    from torch._inductor.async_compile import AsyncCompile

    from convtune.torch.leaving import leave_quietly

    def run():
        time.sleep(begin)
        leave_quietly()
        pool, pause = AsyncCompile.process_pool(), max((until - begin) / times / 2, 1.0)
        for number in range(times):
            pool.wakeup()
            time.sleep(pause)
            moments.append((time.perf_counter(), "as inductor does it" if number % 2 == 0 else "quietly"))
            (type(pool).quiesce.__wrapped__ if number % 2 == 0 else type(pool).quiesce)(pool)
            time.sleep(pause)

    threading.Thread(target=run, daemon=True).start()


def phases(backend):
    """Seconds of the graph that was compiled last, by what they were spent on."""
    report = sys.modules["convtune.torch.backend"].last_report() if backend == "convtune" else None
    return "" if report is None else "; " + ", ".join(f"{name} {took:.1f}" for name, took in report.seconds.items())


def medians_of(stream, begin=0.0):
    """The median of each batch's calls since then."""
    some = [(batch, took) for at, batch, took in stream if at > begin]
    return {batch: statistics.median(took for of, took in some if of == batch) for batch in {batch for batch, _ in some}}


def ratios_in_words(mine, others):
    """How many times as long another stream's batches took, by the batches that both have."""
    ratios = {batch: others[batch] / mine[batch] for batch in sorted(mine) if batch in others}
    if not ratios:
        return "of no batch"
    mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
    least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
    return f"{mean:.3f} times, of {len(ratios)} batches, {ratios[least]:.2f} ({least}) to {ratios[most]:.2f} ({most})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--most", type=int, default=64, help="images in a batch")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", default="convtune")
    parser.add_argument("--minute", type=float, default=60, help="seconds after which calls are held to their median")
    parser.add_argument("--seconds", type=float, default=75, help="that the stream lasts at least, compiling counted")
    parser.add_argument("--error", type=float, default=0.1, help="of an answer, over the root mean square of all")
    parser.add_argument("--whole", type=int, help="1: the whole graph must be proven, 0: it is not asked")
    parser.add_argument("--all-sizes", action="store_true", help="height and width are any, too: PyTorch traces for twice as long")
    parser.add_argument("--oblivious", action="store_true", help="PyTorch traces one graph for batches of 1, too")
    parser.add_argument("--away", type=int, default=0, metavar="TIMES", help="before --minute, inductor's compiling processes are sent away")
    parser.add_argument("--write", type=pathlib.Path, help="a file for the medians")
    parser.add_argument("--beside", type=pathlib.Path, help="the file of another stream, which medians are compared with")
    args = parser.parse_args()
    if args.oblivious:
        torch.fx.experimental._config.backed_size_oblivious = True
    if args.backend == "convtune":
        import convtune.torch.backend  # noqa: F401  (registers it)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = getattr(torchvision.models, args.model)().eval().to(args.device, dtype)
    images = torch.rand(args.most, 3, args.size, args.size).to(args.device, dtype)
    if args.device == "cuda":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    options = {} if args.whole is None or args.backend != "convtune" else {"convtune.whole": bool(args.whole)}
    run = torch.compile(model, backend=args.backend, options=options or None, dynamic=True if args.all_sizes else None)
    rng, errors, stream, told, away, sent = random.Random(0), [], [], [], [], []
    sent_away(away)

    def call(batch):
        x = images[:batch]
        if not stream and not args.all_sizes:
            torch._dynamo.mark_dynamic(x, 0)
        wait(args.device)
        switched, collected = counted()
        before = time.perf_counter()
        y = run(x)
        launched = time.perf_counter()
        wait(args.device)
        end, (later, more) = time.perf_counter(), counted()
        return y, end - before, (launched - before, later - switched, more - collected)

    with torch.no_grad():
        expected = model(images).float()
        scale = expected.square().mean().sqrt()
        begin = time.perf_counter()
        print(f"batch 8, which compiles: {call(8)[1]:.2f} s{phases(args.backend)}", flush=True)
        if args.away:
            gone = time.perf_counter() - begin
            send_away(args.away, max(args.minute / 2 - gone, 1.0), args.minute - gone, sent)
        while time.perf_counter() - begin < args.seconds or len(stream) < args.calls:
            batch = rng.randint(1, args.most)
            y, took, more = call(batch)
            told.append(more)
            stream.append((time.perf_counter() - begin, batch, took))
            if took > 1:
                print(f"batch {batch} at {time.perf_counter() - begin:.0f} s: {took:.2f} s{phases(args.backend)}", flush=True)
            if len(stream) % 10 == 1:
                errors.append(float((y.float() - expected[:batch]).abs().max() / scale))
    medians, settled = medians_of(stream), medians_of(stream, args.minute)
    ratios = sorted(((took / medians[batch], at, batch, took, *more) for (at, batch, took), more in zip(stream, told)), reverse=True)
    late = [one for one in ratios if one[1] > args.minute]
    print(f"{args.backend} {args.model}, {len(stream)} calls of 1 to {args.most} images in {stream[-1][0]:.0f} s, the first {args.calls} "
          f"in {sum(one[2] for one in stream[:args.calls]):.2f} s, error {max(errors):.2g}")  # fmt: skip
    for ratio, at, batch, took, launched, switches, collections in ratios[:3] + [one for one in late[:6] if one not in ratios[:3]]:
        print(f"  {ratio:.2f} times the median of batch {batch}: {1e3 * took:.1f} ms, {1e3 * launched:.1f} until launched, {at:.2f} s after the "
              f"beginning; the processor taken {switches} times, {collections} collections")  # fmt: skip
    print("inductor ended its compiling processes after " + (", ".join(f"{at - begin:.2f} s" for at in away) or "the stream"))
    for moment, how in sent:
        near = [took / medians[batch] for at, batch, took in stream if 0 <= at + begin - moment <= 1.5]
        print(f"sent away {how} after {moment - begin:.2f} s: of {len(near)} calls behind it the slowest took {max(near, default=0):.2f} times "
              f"its batch's median, {sum(one > 2 for one in near)} over 2")  # fmt: skip
    some = sorted(settled)[:: max(1, len(settled) // 8)]
    print(f"ms of batches, after {args.minute:.0f} s: " + ", ".join(f"{batch} {1e3 * settled[batch]:.2f}" for batch in some))
    if args.write:
        args.write.write_text(json.dumps({"all": medians, "settled": settled}))
    if args.beside and args.beside.exists():
        others = {name: {int(batch): took for batch, took in of.items()} for name, of in json.loads(args.beside.read_text()).items()}
        print(f"{args.beside.stem} takes {ratios_in_words(settled, others['settled'])}; "
              f"by all calls, those that wait for kernels too, {ratios_in_words(medians, others['all'])}")  # fmt: skip
    parts = [[one[2] for one in stream if begin <= one[0] < begin + 15] for begin in range(0, int(stream[-1][0]) + 1, 15)]
    print("calls of 15 s, their median and slowest in ms: " + ", ".join(
        f"{len(one)} {1e3 * statistics.median(one):.1f} {1e3 * max(one):.0f}" for one in parts if one))  # fmt: skip
    over = sum(one[0] > 3 for one in late)
    print(f"calls over 3 times their batch's median: {sum(one[0] > 3 for one in ratios)}; of the {len(late)} after {args.minute:.0f} s "
          f"{over}, the largest {f'{late[0][0]:.2f} times' if late else 'of none'}")  # fmt: skip
    return 0 if late and not over and all(error <= args.error for error in errors) else 1


if __name__ == "__main__":
    sys.exit(main())
