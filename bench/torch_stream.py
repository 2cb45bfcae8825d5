#!/usr/bin/env python3
"""A compiled model that is served batches of random sizes: how long its slowest calls take beside others of their batch.

    python bench/torch_stream.py --model resnet50 --calls 500                       # on the GPU, in bf16
    python bench/torch_stream.py --model resnet18 --size 64 --device cpu --calls 200
    python bench/torch_stream.py --backend inductor                                 # for comparison

The first call has a batch of 8 and the second one of 7, by which torch.compile makes a graph for any batch; then come the
random ones. A batch's median is that of its calls in a second stream of the same batches. Answers are held to the model's
own. Random weights; needs PyTorch and torchvision.
"""

import argparse
import random
import statistics
import time

import torch
import torchvision


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--most", type=int, default=64, help="images in a batch")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", default="convtune")
    parser.add_argument("--whole", type=int, help="1: the whole graph must be proven, 0: it is not asked")
    args = parser.parse_args()
    if args.backend == "convtune":
        import convtune.torch.backend  # noqa: F401  (registers it)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    model = getattr(torchvision.models, args.model)().eval().to(args.device, dtype)
    images = torch.rand(args.most, 3, args.size, args.size).to(args.device, dtype)
    if args.device == "cuda":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    options = {} if args.whole is None or args.backend != "convtune" else {"convtune.whole": bool(args.whole)}
    run = torch.compile(model, backend=args.backend, options=options or None)
    rng = random.Random(0)
    batches = [rng.randint(1, args.most) for _ in range(args.calls)]
    begin, worst = time.perf_counter(), 0.0

    def call(batch):
        x = images[:batch]
        wait(args.device)
        before = time.perf_counter()
        y = run(x)
        wait(args.device)
        return y, time.perf_counter() - before

    with torch.no_grad():
        for batch in (8, 7):
            took = call(batch)[1]
            print(f"batch {batch}, which compiles: {took:.2f} s")
        expected, stream = model(images).float(), []
        scale = expected.square().mean().sqrt()
        for number, batch in enumerate(batches):
            y, took = call(batch)
            stream.append((time.perf_counter() - begin, batch, took))
            if number % 10 == 0:
                worst = max(worst, float((y.float() - expected[:batch]).abs().max() / scale))
        steady = {}
        for batch in batches:
            steady.setdefault(batch, []).append(call(batch)[1])
    medians = {batch: statistics.median(took) for batch, took in steady.items()}
    ratios = sorted(((took / medians[batch], at, batch, took) for at, batch, took in stream), reverse=True)
    late = [one for one in ratios if one[1] > 60]
    total, again = sum(took for *_, took in stream), sum(map(sum, steady.values()))
    print(f"{args.backend} {args.model}, {args.calls} calls: {total:.2f} s, the same again {again:.2f} s, error {worst:.2g}")
    for ratio, at, batch, took in ratios[:5]:
        print(f"  {ratio:.2f} times the median of batch {batch}: {1e3 * took:.1f} ms, {at:.0f} s after the beginning")
    print(f"calls over 3 times their batch's median: {sum(one[0] > 3 for one in ratios)}, of the {len(late)} after a "
          f"minute {sum(one[0] > 3 for one in late)}, the largest {late[0][0] if late else 0:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
