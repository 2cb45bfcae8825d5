import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


# Written by convtune @VERSION@ (Apache-2.0), which it does not need.

