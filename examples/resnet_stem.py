"""convtune.nn.Conv2d in the place of torch.nn.Conv2d: ResNet's stem, its answer, one step of training, its time.

python examples/resnet_stem.py             # with the plan that convtune has for this machine
python examples/resnet_stem.py --tune      # searches for a better one first, half a minute, and keeps it
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("examples/resnet_stem.py needs PyTorch: `pip install torch`")

import torch
from torch import nn
from torch.utils.benchmark import Timer

import convtune
import convtune.nn
import convtune.torch

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
stem = nn.Sequential(
    convtune.nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(3, stride=2, padding=1),
).to(device)
x = torch.rand(32 if device == "cuda" else 4, 3, 224, 224, device=device)
ours = stem[0]
theirs = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False).to(device)
theirs.load_state_dict(ours.state_dict())  # one state_dict, both ways

if "--tune" in sys.argv[1:]:
    problem = convtune.torch.problem_of(x, ours.weight, False, 2, 3, 1, 1)
    print(convtune.tune(problem, "cuda:0" if device == "cuda" else "cpu", budget=20))

optimizer = torch.optim.SGD(stem.parameters(), lr=0.1)
loss = stem(x).square().mean()
loss.backward()  # PyTorch's own backward
optimizer.step()  # changes the weights: they are packed again by themselves
theirs.load_state_dict(ours.state_dict())

stem.eval()
with torch.no_grad():
    error = (ours(x) - theirs(x)).abs().max().item()
    print(f"largest difference from torch.nn.Conv2d on {device}: {error:.1e}")
    for name, module in (("torch.nn.Conv2d", theirs), ("convtune.nn.Conv2d", ours)):
        time = Timer("module(x)", globals={"module": module, "x": x}).blocked_autorange(min_run_time=1)
        print(f"{name:20} {1e6 * time.median:10.1f} us")
