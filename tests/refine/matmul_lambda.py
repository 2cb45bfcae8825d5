"""A file in another order, with a lambda for its grid and code that only tests."""
import triton.language as tl
import triton
import torch
import torch.nn as nn

BLOCK_K = 32


def wrapper(x, weight):
    n, c, h, w = x.shape
    k = weight.shape[0]
    rows = n * h * w
    grid = lambda META: (triton.cdiv(rows, META["BLOCK_M"]) * triton.cdiv(k, META["BLOCK_N"]),)  # noqa: E731
    y = torch.empty((n, k, h, w), device=x.device)
    pointwise[grid](x, weight, y, rows, c, k)
    return y


# one by one
@triton.autotune([triton.Config(kwargs={"BLOCK_M": 64, "BLOCK_N": 64, "EVEN": True}, num_stages=3, num_warps=8, num_ctas=1),
                  triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "EVEN": True}, num_ctas=1)], key=["rows"])
@triton.jit
def pointwise(x, w, y, rows, c, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, EVEN: tl.constexpr):
    m = tl.program_id(0)
    tl.store(y + m, tl.load(x + m))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 256, 1, bias=False)

    def forward(self, x):
        return wrapper(x, self.conv.weight)


def get_inputs():
    return [torch.rand(1, 64, 56, 56)]


if __name__ == "__main__":
    print(ModelNew()(get_inputs()[0]).shape)
