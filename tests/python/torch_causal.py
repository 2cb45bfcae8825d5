"""A causal convolution as video decoders have it: frames are joined to a cache, and padded."""

from torch_support import torch

nn, F = torch.nn, torch.nn.functional


class Causal(nn.Conv3d):
    """Over time alone, which a CPU's own kernels compute."""

    def forward(self, x, cache=None):
        front = 2
        if cache is not None:
            x = torch.cat([cache, x], dim=2)
            front -= cache.shape[2]
        return super().forward(F.pad(x, (0, 0, 0, 0, front, 0)))
