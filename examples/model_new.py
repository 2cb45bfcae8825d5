"""AlexNet's first layer as a PyTorch module whose convolution is convtune's on a GPU and PyTorch's elsewhere.

In the order of KernelBench's answers: imports, wrapper, class ModelNew. Run as a script it says what it computes.
"""

import importlib.util
import sys

if importlib.util.find_spec("torch") is None:
    sys.exit("examples/model_new.py needs PyTorch: `pip install torch`; examples/numpy_conv2d.py needs NumPy only")

import torch
import torch.nn as nn

import convtune


def convtune_conv2d_nchw(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int
) -> torch.Tensor:
    """x (N, C, H, W), weight (K, C, R, S) and bias (K,), float32 on one GPU; differentiable, and traced by
    torch.compile. The plan and the grid of its kernel are convtune's: `convtune.tune` makes them the fastest."""
    return convtune.conv2d(x, weight, bias, stride=stride, padding=padding)


class ModelNew(nn.Module):
    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels=3, out_channels=96, kernel_size=11, stride=4, padding=2, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            return self.conv1(x)
        return convtune_conv2d_nchw(
            x, self.conv1.weight, self.conv1.bias, stride=self.conv1.stride[0], padding=self.conv1.padding[0]
        )


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = ModelNew().to(device)
    x = torch.rand(8, 3, 224, 224, device=device)
    with torch.no_grad():
        y, theirs = model(x), model.conv1(x)
        ours = convtune.conv2d(x, model.conv1.weight, model.conv1.bias, stride=4, padding=2)
    error = (ours - theirs).abs().max().item()
    print(f"y {tuple(y.shape)} on {device} by {'convtune' if device == 'cuda' else 'PyTorch, as it is no GPU'}")
    print(f"convtune's own answer differs from PyTorch's by {error:.1e} at most")
