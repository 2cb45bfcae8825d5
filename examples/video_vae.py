"""diffusers' Wan decoder (random weights) before and after convtune.optimize: time, peak memory, how far answers differ.

python examples/video_vae.py                                # on a GPU: bf16, 17 frames of 480 x 832; else a small one
python examples/video_vae.py --latents 21 --budget 120      # 81 frames; a search for the fastest kernels
python examples/video_vae.py --rounding eager               # convolutions round where PyTorch's eager calls do

It needs PyTorch and diffusers (`pip install torch diffusers`). One line makes a decoder's convolutions convtune's, where
that is proven faster: its causal layers then read the frames of the piece before where they are, neither joined nor padded.
"""

import argparse
import importlib.util
import sys
import time

for name in ("torch", "diffusers"):
    if importlib.util.find_spec(name) is None:
        sys.exit(f"examples/video_vae.py needs PyTorch and diffusers, and {name} is not here: `pip install torch diffusers`")

import torch
from diffusers import AutoencoderKLWan
from torch import nn

import convtune


class Decoder(nn.Module):
    """The latents' way back to frames, as a module of its own."""

    def __init__(self, vae):
        super().__init__()
        self.vae = vae

    def forward(self, latents):
        return self.vae.decode(latents, return_dict=False)[0]


def lie_channels_last(model):
    """The weights of convolutions channels last, and so all that they give: model.to(memory_format=...) refuses a module
    that also has parameters of other ranks."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Conv3d)):
            module.weight.data = module.weight.data.contiguous(memory_format=formats[module.weight.dim()])


def measured(decoder, latents, calls):
    """(milliseconds a call, MiB at most on the GPU)."""
    on_gpu = latents.is_cuda
    for _ in range(2):  # compilation, and cuDNN's search
        decoder(latents)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(calls):
        decoder(latents)
    if on_gpu:
        torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - begin) / calls
    return ms, torch.cuda.max_memory_allocated() >> 20 if on_gpu else 0


def told(name, before, after, y, expected):
    error = ((y - expected).abs().max() / expected.square().mean().sqrt()).item()
    memory = f", peak memory {before[1]} -> {after[1]} MiB" if after[1] else ""
    print(f"{name}: {before[0]:.1f} -> {after[0]:.1f} ms ({before[0] / after[0]:.2f}x){memory}; differs by {error:.1e}")


on_gpu = torch.cuda.is_available()
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--latents", type=int, default=5 if on_gpu else 3, help="frames of latents; 4 frames each, the first 1")
parser.add_argument("--height", type=int, default=60 if on_gpu else 8, help="rows of a latent; 8 of a frame each")
parser.add_argument("--width", type=int, default=104 if on_gpu else 8, help="columns of a latent")
parser.add_argument("--budget", type=float, default=0, help="seconds for tuning")
parser.add_argument("--rounding", default="once", choices=("once", "eager"), help="of convolutions in half precision")
parser.add_argument("--calls", type=int, default=3, help="decodes that are timed")
args = parser.parse_args()
how = {"budget": args.budget, "rounding": args.rounding}

torch.manual_seed(0)
torch.backends.cudnn.benchmark = True  # PyTorch at its best is what convtune must beat
size = {} if on_gpu else {"base_dim": 16, "num_res_blocks": 1}
vae = AutoencoderKLWan(**size).to(*("cuda", torch.bfloat16) if on_gpu else ("cpu",))
decoder = Decoder(vae).eval().requires_grad_(False)
latents = torch.randn(1, 16, args.latents, args.height, args.width).to(vae.device, vae.dtype)

with torch.no_grad():
    before = measured(decoder, latents, args.calls)
    expected = decoder(latents).float()

    decoder = convtune.optimize(decoder, latents, **how)  # the one line

    after = measured(decoder, latents, args.calls)
    told("as it was made", before, after, decoder(latents).float(), expected)

    decoder = convtune.restore(decoder)
    lie_channels_last(decoder)
    decoder = convtune.optimize(decoder, latents, **how, progress=False)
    after = measured(decoder, latents, args.calls)
    told("channels last", before, after, decoder(latents).float(), expected)
