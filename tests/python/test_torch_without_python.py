"""The operator of graphs in C++ where there is no Python: packages of AOTInductor, and programs with libtorch."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from processes import python
from torch_support import assert_near, by_cpp, tensors, torch

import convtune
import convtune.torch
import convtune.torch.fused
from convtune import _library

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [by_cpp, pytest.mark.usefixtures("nothing_ready")]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = convtune.nn.Conv2d(3, 32, 3, padding=1)
        self.second = torch.nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x):
        y = self.first(x)
        how = (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "relu"
        return torch.ops.convtune.conv2d_fused(y, self.second.weight, self.second.bias, y, *how)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    model, folder = Model().eval(), tmp_path_factory.mktemp("package")
    with torch.no_grad():
        exported = torch.export.export(model, (torch.rand(2, 3, 16, 16),))
        # Without optimisation: the compiled code is not what is tested, and compilers take minutes on busy machines.
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(folder / "model.pt2"),
            inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"},
        )  # fmt: skip
    return model, path


def test_a_package_of_aotinductor(package, prepared):
    model, path = package
    run = torch._inductor.aoti_load_package(path)
    for seed in range(4):
        x = tensors("cpu", (2, 3, 16, 16), seed=seed)[0]
        assert torch.allclose(run(x), model(x), rtol=1e-4, atol=1e-4)
    # The package's constants are C++'s own, and yet packed only once: no call after the second was prepared by Python.
    before = len(prepared)
    run(x)
    assert len(prepared) == before


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """examples/serve_model.cpp"""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    torch_folder, library = Path(torch.__file__).parent, _library.library_path().resolve().parent
    if not (torch_folder / "include/ATen/ATen.h").is_file():
        pytest.skip("PyTorch's headers are not installed")
    headers = torch_folder / "include"
    folders = [f"-I{one}" for one in (ROOT / "include", headers, headers / "torch/csrc/api/include")]
    libraries = [f"-L{library}", "-lconvtune_torch", f"-L{torch_folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch",
                 "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch_folder / 'lib'}:{library}"]  # fmt: skip
    built = tmp_path_factory.mktemp("program") / "serve_model"
    subprocess.run(["g++", "-std=c++20", "-w", ROOT / "examples/serve_model.cpp", "-o", built, *folders, *libraries],
                   check=True, timeout=300)  # fmt: skip
    return built


def test_a_program_in_cpp(program):
    alone = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (alone.returncode, alone.stdout) == (0, "the operator agrees with PyTorch\n"), alone.stderr


def test_a_program_in_cpp_serves_a_package(program, package):
    model, path = package
    served = subprocess.run([program, path, "2", "3", "16", "16"], capture_output=True, text=True, timeout=60)
    assert served.returncode == 0, served.stderr
    numbers = torch.tensor([float(one) for one in re.findall(r"\S+", served.stdout)])
    assert_near(numbers, model(torch.ones(2, 3, 16, 16)).flatten()[:8])


PROGRAM = """
import ctypes, torch
library = ctypes.CDLL({library!r})
library.convtune_torch_register.restype = ctypes.c_char_p
why = library.convtune_torch_register()
assert why is None, why
F = torch.nn.functional
convolve = torch.ops.convtune.conv2d_forward

def near(y, expected):
    assert y.shape == expected.shape and y.stride() == expected.stride(), (y.shape, expected.shape)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)

with torch.no_grad():
    for axes in (1, 2, 3):
        x, w, bias = torch.rand(2, 4, *(7, 6, 5)[:axes]), torch.rand(4, 4, *(3, 3, 3)[:axes]), torch.rand(4)
        text = " ".join(["2"] * axes + ["1"] * (2 * axes) + ["1"] * axes)
        for _ in range(2):
            y = convolve(x, w, bias, None, text + " 1 auto relu reuse")
            near(y, F.relu(getattr(F, f"conv{{axes}}d")(x, w, bias, 2, 1)))
            more = " ".join(["1"] * axes)
            y = convolve(x, w, bias, None, f"{{text}} {{more}} 1 auto none reuse")
            near(y, getattr(F, f"conv_transpose{{axes}}d")(x, w, bias, 2, 1, 1))
            w.mul_(2)
    whole = [torch.randint(-4, 5, one.shape).bfloat16() for one in (x, w, bias)]
    y = convolve(*whole, None, text + " 1 auto none reuse eager")
    assert torch.equal(y, F.conv3d(*whole, 2, 1))  # which rounds a sum with its bias on a CPU
    wrongs = "1 1 1 1 auto none reuse", "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 auto none reuse", text + " 1 auto none reuse late"
    for wrong in (*wrongs, text + " 1 auto relu reuse eager"):  # whose activation is PyTorch's there
        try:
            convolve(*whole, None, wrong)
        except RuntimeError:
            continue
        raise AssertionError(wrong)
print("all well")
"""


def test_one_to_three_axes_and_transposed_layers():
    library = _library.library_path().resolve().with_name("libconvtune_torch.so")
    done = python("-c", PROGRAM.format(library=str(library)))
    assert "all well" in done.stdout, done.stderr
