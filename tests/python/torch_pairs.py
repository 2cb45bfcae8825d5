"""Models of sound with residual steps in the ways in which they are written, and a kernel of such steps for CPUs, by PyTorch."""

import ctypes

import pytest
from torch_support import torch

import convtune
from convtune.pair import PairProblem

nn = torch.nn
functional = torch.nn.functional
KINDS = {"f16": torch.float16, "bf16": torch.bfloat16}


def rows(*shape, dtype=torch.bfloat16):
    return (torch.rand(shape or (2, 8, 40), generator=torch.Generator().manual_seed(0)) * 2 - 1).to(dtype)


def at(address, shape, dtype):
    """The tensor in that memory."""
    count = torch.Size(shape).numel()
    bytes_ = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(bytes_, dtype=dtype, count=count).view(shape)


class Pair:
    """As convtune.pair.Pair is, of every shape, on the CPU: sums in float32, rounded where the kernel rounds. `planned`: how often."""

    planned, configs = 0, ["config=1", "config=2"]

    def __init__(self, problem, device, config=None):
        if self.refuses(problem):
            raise convtune.Unsupported("no kernel is for it")
        assert isinstance(problem, PairProblem) and config in (None, *self.configs)
        type(self).planned += 1
        self.problem, self.device, self.config, self.packing = problem, str(device), config or self.configs[0], f"pair {problem.c}"
        c = problem.c
        self.sizes = [c * c * problem.first_taps, c, c * c * problem.second_taps, *[c] * 7]
        self.packed_bytes = 4 * sum(self.sizes)
        self.shape = problem.n, c, problem.t

    @staticmethod
    def refuses(problem):
        return False

    def pack_raw(self, *addresses):
        packed, sources = addresses[8], (*addresses[:8], *(addresses[10:] or (0, 0)))
        parts = at(packed, (sum(self.sizes),), torch.float32).split(self.sizes)
        kind = KINDS[self.problem.dtype]
        for number, (source, part) in enumerate(zip(sources, parts)):
            part.zero_() if source == 0 else part.copy_(at(source, part.shape, kind if number < 4 else torch.float32))

    def run_raw(self, x, packed, y, stream=0):
        problem, kind = self.problem, KINDS[self.problem.dtype]
        n, c, t = self.shape
        parts = at(packed, (sum(self.sizes),), torch.float32).split(self.sizes)
        x = at(x, (n * (2 if problem.activated else 1), t, c), kind).transpose(1, 2)
        x, activated, y = x[:n], x[n:], at(y, (n * (2 if problem.snake == "beside" else 1), t, c), kind).transpose(1, 2)

        def act(value, alpha, scale):
            if problem.slope is not None:
                return functional.leaky_relu(value, problem.slope)
            return value + scale[:, None] * (alpha[:, None] * value).sin().square()

        def convolved(value, weight, bias, taps, hole):
            return functional.conv1d(value, weight.view(c, c, taps), bias, padding=hole * (taps // 2), dilation=hole)

        activated = activated if problem.activated else act(x.float(), *parts[4:6]).to(kind)
        h = convolved(activated.float(), *parts[:2], problem.first_taps, problem.dilation)
        h = convolved(act(h, *parts[6:8]).to(kind).float(), *parts[2:4], problem.second_taps, 1)
        h = (h + x.float()).to(kind)
        if problem.snake != "none":
            behind = act(h.float(), *parts[8:]).to(kind)
            h = behind if problem.snake == "after" else torch.cat((h, behind))
        y.copy_(h)


@pytest.fixture
def kernels(monkeypatch):
    """Pairs on the CPU, where half precision then is channels last as it is on GPUs."""
    monkeypatch.setattr("convtune.torch.graph.capture._DEVICES", ("cpu",))
    for module in ("pairs", "measure.pairs"):
        monkeypatch.setattr(f"convtune.torch.{module}.Pair", Pair)
    monkeypatch.setattr(Pair, "planned", 0)
    convtune.clear_caches()
    yield Pair
    convtune.clear_caches()


class Leaky(nn.Module):
    """HiFi-GAN's block, three dilations."""

    def __init__(self, channels=8, taps=3, slope=0.1, holes=(1, 3, 5)):
        super().__init__()
        self.first = nn.ModuleList(nn.Conv1d(channels, channels, taps, padding=hole * (taps // 2), dilation=hole) for hole in holes)
        self.second = nn.ModuleList(nn.Conv1d(channels, channels, taps, padding=taps // 2) for _ in holes)
        self.act = nn.LeakyReLU(slope)

    def forward(self, x):
        for first, second in zip(self.first, self.second):
            x = second(self.act(first(functional.leaky_relu(x, self.act.negative_slope)))) + x
        return x


class Snake(nn.Module):
    """x + sin(alpha x)^2 / (alpha + 1e-9), `way` by `way`."""

    def __init__(self, channels, way="div"):
        super().__init__()
        self.way = way
        shape = (channels,) if way == "beta" else (1, channels, 1)
        self.alpha, self.beta = (nn.Parameter(torch.rand(shape, generator=torch.Generator().manual_seed(7)) + 0.5) for _ in range(2))

    def forward(self, x):
        alpha = self.alpha
        if self.way == "div":
            return x + (alpha * x).sin().square() / (alpha + 1e-9)
        if self.way == "dac":
            shape = x.shape
            x = x.reshape(shape[0], shape[1], -1)
            x = x + (alpha + 1e-9).reciprocal() * torch.sin(alpha * x).pow(2)
            return x.reshape(shape)
        if self.way == "beta":  # BigVGAN's
            alpha, beta = torch.exp(self.alpha[None, :, None]), torch.exp(self.beta[None, :, None])
            return x + (1.0 / (beta + 0.000000001)) * torch.pow(torch.sin(x * alpha), 2)
        return torch.sin(alpha * x) * torch.sin(alpha * x) * (1 / alpha) + x


class Unit(nn.Module):
    """DAC's residual unit."""

    def __init__(self, channels=8, hole=3, way="div"):
        super().__init__()
        self.layers = nn.Sequential(
            Snake(channels, way), nn.Conv1d(channels, channels, 7, padding=3 * hole, dilation=hole),
            Snake(channels, way), nn.Conv1d(channels, channels, 1, bias=way != "beta"),
        )  # fmt: skip

    def forward(self, x):
        return x + self.layers(x)
