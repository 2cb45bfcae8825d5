"""convtune.optimize on a whole model: swaps the convolutions that are proven faster here, and prints the table.

python examples/optimize_model.py                                  # a small network made here
python examples/optimize_model.py torchvision.models:resnet50      # any callable that makes a model, by import path
python examples/optimize_model.py timm:create_model convnext_tiny --batch 32 --budget 120
"""

import argparse
import importlib
import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("examples/optimize_model.py needs PyTorch: `pip install torch`")

import torch
from torch import nn

import convtune


def small_network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ReLU(),
        nn.Conv2d(32, 64, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", nargs="?", help="module:callable; a small network made here where it is left out")
parser.add_argument("arguments", nargs="*", help="handed to the callable as they stand")
parser.add_argument("--batch", type=int, default=64 if torch.cuda.is_available() else 4)
parser.add_argument("--size", type=int, default=224, help="height and width of the image")
parser.add_argument("--budget", type=float, default=60, help="seconds for tuning")
args = parser.parse_args()

make = small_network
if args.model:
    module, _, name = args.model.partition(":")
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        sys.exit(f"{module} is not installed here")
    make = getattr(importlib.import_module(module), name)

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cudnn.benchmark = True  # PyTorch at its best is what convtune must beat
model = make(*args.arguments).to(device).eval()
x = torch.rand(args.batch, 3, args.size, args.size, device=device)
with torch.no_grad():
    expected = model(x)
    model = convtune.optimize(model, x, budget=args.budget)
    error = ((model(x) - expected).abs().max() / expected.square().mean().sqrt()).item()
    print(f"answers differ by {error:.1e} of their root mean square")
    model = convtune.restore(model)
    print(f"restored; the same bits as before: {torch.equal(model(x), expected)}")
