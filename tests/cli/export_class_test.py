"""Drives `convtune export --class`: what a class of convolutions becomes, in both formats; that nothing of its file runs; and,
where PyTorch is, that the new module is constructed as the class is, parameter for parameter.

Usage: export_class_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only; PyTorch where it is.
"""

import ast
import importlib.util
import os
import subprocess
import sys
import unittest

from convtune_command import CliTest, main

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
DENSE = HEAD + '''
class Model(nn.Module):
    """A convolution."""
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, bias: bool = False):
        super(Model, self).__init__()
        self.conv2d = nn.Conv2d(in_channels, out_channels, (kernel_size, kernel_size), stride=stride, padding=1, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies it."""
        return self.conv2d(x)

batch_size = 2
in_channels = 4

def get_inputs():
    x = torch.rand(batch_size, in_channels, 9, 12)
    return [x]

def get_init_inputs():
    return [in_channels, 8, 3, 2]
'''
LINE = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size, stride=1, dilation=1, bias=True):
        super().__init__()
        self.conv1d = nn.Conv1d(channels, filters, kernel_size, stride, dilation=dilation, bias=bias)

    def forward(self, x):
        return F.relu(self.conv1d(x))

def get_inputs():
    return [torch.randn(2, 8, 64)]

def get_init_inputs():
    return [8, 16, 3, 2, 3]
'''
# The second layer of forward is constructed first, so that a seed's numbers are another's in the other order.
PAIR = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size=3, *, bias=False):
        super().__init__()
        assert channels > 0
        self.pointwise = nn.Conv2d(channels, filters, kernel_size=1, bias=bias)
        self.depthwise = nn.Conv2d(channels, channels, kernel_size, padding="same", groups=channels, bias=bias)

    def forward(self, x):
        x = self.depthwise(x)
        y = torch.relu(x)
        return self.pointwise(y)

def get_inputs():
    return [torch.rand(2, 6, 10, 10)]

def get_init_inputs():
    return [6, 12]
'''
VOLUME = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size, padding):
        super().__init__()
        self.conv3d = nn.Conv3d(channels, filters, kernel_size, stride=(1, 2, 1), padding=padding, dilation=(1, 1, 2))

    def forward(self, x):
        return F.relu(self.conv3d(x))

def get_inputs():
    return [torch.randn(2, 4, 5, 9, 8)]

def get_init_inputs():
    return [4, 6, (3, 2, 3), (2, 1, 2)]
'''
UP = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size, stride=2, padding=1, output_padding=1, groups=1, bias=True):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, filters, kernel_size, stride, padding, output_padding, groups, bias)
        self.last = nn.Conv2d(filters, 3, 1)

    def forward(self, x):
        return self.last(torch.relu(self.up(x)))

def get_inputs():
    return [torch.randn(2, 6, 5, 7)]

def get_init_inputs():
    return [6, 8, 3]
'''
# Outputs that no tap meets, and a stride that shares a factor with the dilation.
UP_LINE = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size):
        super().__init__()
        self.up = nn.ConvTranspose1d(channels, filters, kernel_size, stride=6, padding=3, dilation=4, output_padding=5, groups=2)

    def forward(self, x):
        return self.up(x)

def get_inputs():
    return [torch.randn(2, 4, 30)]

def get_init_inputs():
    return [4, 6, 3]
'''
UP_VOLUME = HEAD + '''
class Model(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.up = nn.ConvTranspose3d(channels, filters, (3, 2, 4), (2, 1, 3), (1, 0, 2), bias=False, dilation=(1, 2, 1))

    def forward(self, x):
        return self.up(x)

def get_inputs():
    return [torch.randn(1, 3, 3, 4, 5)]

def get_init_inputs():
    return [3, 5]
'''
GROUPS = DENSE.replace("bias=bias)", "groups=2, bias=bias)")
CLASSES = {"dense": DENSE, "line": LINE, "pair": PAIR, "groups": GROUPS, "volume": VOLUME, "up": UP, "up_line": UP_LINE,
           "up_volume": UP_VOLUME}
# Two filters a channel, and a filter too large to unroll.
DEPTHWISE = DENSE.replace("padding=1", "padding=4, groups=in_channels").replace("[in_channels, 8, 3, 2]", "[in_channels, 8, 9, 2, True]")
HALF = DENSE.replace("9, 12)", "9, 12, dtype=torch.float16)")
CUDA = ["--format", "cuda", "--target", "h100"]

# Runs a Triton file's module on the CPU by Triton's interpreter, with the list's first and last config, beside the class.
INTERPRETED = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import sys
import torch
import triton


class Tuned:
    def __init__(self, kernel, config):
        self.kernel, self.config = kernel, config

    def __getitem__(self, grid):
        return lambda *args, **words: self.kernel[grid({**words, **self.config})](*args, **words, **self.config)


names = {}
exec(open(sys.argv[1]).read(), names)
text = open(sys.argv[2]).read().replace("x.is_cuda and weight.is_cuda", "True").replace("not x.is_cuda", "False")
open(sys.argv[2], "w").write(text)
for at in (0, -1):
    triton.autotune = lambda configs, key: lambda kernel: Tuned(kernel, configs[at].kwargs)
    new = {"__name__": "new", "__file__": sys.argv[2]}
    spec = __import__("importlib.util").util.spec_from_file_location("new", sys.argv[2])
    module = __import__("importlib.util").util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = []
    for kind in (names["Model"], module.ModelNew):
        torch.manual_seed(42)
        made.append(kind(*names["get_init_inputs"]()))
    x, = names["get_inputs"]()
    with torch.no_grad():
        if x.dtype != torch.float32:
            made = [one.to(x.dtype) for one in made]
        expected, found = (one(x).float() for one in made)
    assert expected.shape == found.shape, (expected.shape, found.shape)
    error = float((expected - found).abs().max())
    assert error < (0.03 if x.dtype != torch.float32 else 2e-3), error
    print(error)
"""


class ExportClass(CliTest):
    def file(self, text, name="model.py"):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def export(self, text, *more):
        return self.ok("export", "--class", self.file(text), *more).stdout

    def refused_class(self, text, *needles, more=()):
        self.assertNotIn("\n", self.refused(["export", "--class", self.file(text), *more], 2, *needles).stderr.strip())

    def test_the_constructor(self):
        for more in ([], CUDA):
            module = ast.parse(self.export(DENSE, *more)).body[-1]
            init = module.body[0]
            self.assertEqual(ast.unparse(init.args), "self, in_channels, out_channels, kernel_size, stride=1, bias=False")
            self.assertEqual(ast.unparse(init.body[1]), "self.conv2d = nn.Conv2d(in_channels, out_channels, (kernel_size, "
                             "kernel_size), stride=stride, padding=1, bias=bias)")
            self.assertIn("== ((2, 2), (1, 1), (1, 1), 1)", ast.unparse(init.body[2]), "what the kernel was made for")
            self.assertEqual(ast.unparse(module.body[1].body[0]), "if not x.is_cuda:\n    return self.conv2d(x)")

    def test_sizes_are_those_of_get_inputs(self):
        text = self.export(DENSE, *CUDA)
        self.assertIn("x.shape == (2, 4, 9, 12)", text)
        self.assertIn("at::empty({2, 8, 5, 6}", text)
        self.assertIn("x.shape == (16, 4, 9, 12)", self.export(DENSE, *CUDA, "--batch", "16"))
        self.assertIn("precision=fp32", self.export(DENSE, *CUDA, "--precision", "fp32"))

    def test_one_dimension(self):
        for more in ([], CUDA):
            text = self.export(LINE, *more)
            self.assertIn("self.conv1d = nn.Conv1d(channels, filters, kernel_size, stride, dilation=dilation, bias=bias)", text)
            self.assertIn("return self.conv1d(x).relu()", text)
            self.assertIn(".unsqueeze(2)", text)
        self.assertIn("x.shape == (2, 8, 64)", text)

    def test_two_layers(self):
        for more in ([], CUDA):
            module = ast.parse(self.export(PAIR, *more)).body[-1]
            self.assertEqual(ast.unparse(module.body[0].args), "self, channels, filters, kernel_size=3, *, bias=False")
            held = [ast.unparse(node.targets[0]) for node in module.body[0].body if isinstance(node, ast.Assign)]
            self.assertEqual(held[:2], ["self.pointwise", "self.depthwise"])
            forward = ast.unparse(module.body[1])
            self.assertIn("return self.pointwise(self.depthwise(x).relu())", forward)
            self.assertLess(forward.index("x = conv2d_depthwise("), forward.index("x = conv2d_pointwise("))

    def test_three_dimensions(self):
        text = self.export(VOLUME, *CUDA)
        self.assertIn("channels, filters, kernel_size, stride=(1, 2, 1), padding=padding, dilation=(1, 1, 2)", text)
        self.assertIn("x.shape == (2, 4, 5, 9, 8)", text)
        self.assertIn("at::empty({2, 6, 7, 5, 8}", text)
        self.assertIn("conv3d_kernel[grid](", self.export(VOLUME))

    def test_transposed_layers(self):
        text = self.export(UP, *CUDA)
        self.assertIn("channels, filters, kernel_size, stride, padding, output_padding, groups, bias", text)
        self.assertIn("x.shape == (2, 6, 5, 7)", text)
        self.assertIn("weight.shape == (6, 8, 3, 3)", text)
        self.assertIn("bias.shape == (8,)", text)
        self.assertIn("at::empty({2, 8, 10, 14}", text)
        self.assertIn("x.shape == (2, 8, 10, 14)", text)
        self.assertIn("x = conv_transpose2d_up(", text)
        self.assertIn("self.last(self.up(x).relu())", text)
        self.assertIn("conv_transpose_kernel[grid](", self.export(UP))
        line = "mb32ic6ih9oc8oh18kh3sh2ph1"
        without = UP[:UP.index("        self.last")] + UP[UP.index("\n    def forward"):].replace("self.last(torch.relu(self.up(x)))", "self.up(x)")
        self.assertIn("x.shape == (32, 6, 9, 9)", self.export(without, *CUDA, line, "dir=transposed"))
        self.refused_class(without, "output_padding is [1,1]", more=[*CUDA, "mb32ic6ih9oc8kh3sh2ph1", "dir=transposed"])
        self.refused_class(without, "is not", more=[*CUDA, "mb32ic6ih9oc8kh3sh2ph1"])

    def test_types(self):
        text = self.export(HALF)
        self.assertIn("x.dtype == torch.float16", text)
        self.assertIn("input_precision=PRECISION", text)
        self.assertIn("x.dtype == torch.bfloat16", self.export(DENSE, "--dtype", "bf16"))

    def test_a_problem_beside_the_class(self):
        """It stands for get_inputs() and has what no class says."""
        without = DENSE[:DENSE.index("def get_inputs")] + DENSE[DENSE.index("def get_init"):]
        self.refused_class(without, "line 10", "no get_inputs()")
        line = "mb32ic4ih20oc8kh3sh2ph1"
        text = self.export(without, line, "bias=0", "act=relu")
        self.assertIn("self.conv2d(x).relu()", text)
        self.refused_class(DENSE, "stride is [2,2]", more=["mb32ic4ih20oc8kh3ph1", "bias=0"])
        self.refused_class(PAIR, "one of 2 convolutions", more=[line])

    def test_refusals(self):
        def changed(old, new, text=DENSE):
            self.assertIn(old, text)
            return text.replace(old, new)

        self.refused_class("class Other: pass\n", "no class Model")
        self.refused_class("class Model(:\n", "line 1", "no Python")
        self.refused_class(changed("return self.conv2d(x)", "return F.max_pool2d(self.conv2d(x), 2)"), "line 14",
                           "forward does more than convolutions: 'F.max_pool2d")
        self.refused_class(changed("return self.conv2d(x)", "return self.conv2d(self.conv2d(x))"), "once")
        self.refused_class(changed("        self.conv2d", "        self.fc = nn.Linear(3, 4)\n        self.conv2d"),
                           "line 10", "__init__ does more")
        self.refused_class(changed("nn.Conv1d(", "nn.Conv3d(", LINE), "line 9", "get_inputs() gives a tensor of [2,8,64]")
        self.refused_class(changed("(nn.Module)", "(Base)"), "the class does more")
        self.refused_class(changed("    def forward", "    @torch.compile\n    def forward"), "a decorator does more")
        self.refused_class(changed("    def forward", "    def __call__(self, x): return x\n    def forward"), "the class does more")
        self.refused_class(changed("padding=1", "padding=1, padding_mode='circular'"), "circular")
        self.refused_class(changed("padding=1", "padding=int(input())"), "padding", "not known")
        self.refused_class(changed("return [x]", "return [x, x]"), "get_inputs() does not give one tensor")
        self.refused_class(changed("9, 12)", "9, 12, dtype=torch.float64)"), "type")
        self.refused_class(changed("in_channels = 4", "in_channels = int(input())"), "shape")
        self.refused_class(changed("[in_channels, 8, 3, 2]", "[in_channels, 8]"), "does not fit", "kernel_size")
        self.refused_class(changed("stride: int = 1", "stride: int = f()"), "the default of 'stride'")
        self.refused_class(changed("self.conv2d", "self.packed"), "'packed'")
        self.refused_class(changed("stride", "torch"), "'torch'")
        self.refused(["export", "--class", str(self.folder / "none.py")], 2, "none.py")
        self.refused(["export"], 2, "no problem given")

    def test_nothing_of_the_file_runs(self):
        """The text of what would run is not in the new file either."""
        trace = self.folder / "ran"
        evil = f"__import__('pathlib').Path({str(trace)!r}).write_text('ran')"
        runs = [f"{evil}\n{DENSE}",
                DENSE.replace("class Model", f"@(lambda c: ({evil}, c)[1])\nclass Model"),
                DENSE.replace("batch_size = 2", f"batch_size = ({evil}, 2)[1]"),
                DENSE.replace("stride: int = 1", f"stride: int = ({evil}, 1)[1]"),
                DENSE.replace("in_channels: int,", f"in_channels: ({evil}),"),
                DENSE.replace("padding=1", f"padding=({evil}, 1)[1]"),
                DENSE.replace("(Model, self).__init__()", f"(Model, self).__init__({evil})"),
                DENSE.replace("    x = torch.rand", f"    {evil}\n    x = torch.rand"),
                DENSE.replace("return self.conv2d(x)", f"return self.conv2d(({evil}, x)[1])"),
                DENSE.replace("'''", f"{{{evil}}}"),
                DENSE.replace("(kernel_size, kernel_size)", f"(kernel_size, [{evil} for i in range(1)])")]
        for text in runs:
            for more in ([], CUDA):
                result = self.run_command("export", "--class", self.file(text), *more)
                self.assertIn(result.returncode, (0, 2), result.stderr)
                self.assertNotIn("write_text", result.stdout)
                self.assertFalse(trace.exists(), text)
        self.refused_class(DENSE.replace("in_channels = 4", "in_channels = [0] * 10**9"), "get_in", "not known")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch here")
    def test_constructed_as_the_class_is(self):
        import torch
        has_triton = importlib.util.find_spec("triton") is not None
        for name, text in CLASSES.items():
            for more in [CUDA] + [[]] * has_triton:
                with self.subTest(name=name, more=more):
                    names = {}
                    exec(compile(text, name, "exec"), names)
                    path = self.file(self.export(text, *more), f"new_{name}.py")
                    spec = importlib.util.spec_from_file_location(f"new_{name}", path)
                    new = importlib.util.module_from_spec(spec)
                    spec.loader.exec_module(new)
                    made = []
                    for kind in (names["Model"], new.ModelNew):
                        torch.manual_seed(42)
                        made.append(kind(*names["get_init_inputs"]()))
                    model, model_new = made
                    state, state_new = model.state_dict(), model_new.state_dict()
                    self.assertEqual(list(state), list(state_new))
                    for key, tensor in state.items():
                        self.assertTrue(torch.equal(tensor, state_new[key]), key)
                    x, = names["get_inputs"]()
                    self.assertTrue(torch.equal(model(x), model_new(x)))
                if name == "groups":
                    with self.assertRaisesRegex(AssertionError, "these numbers alone"):
                        new.ModelNew(4, 8, 3, 1)
                if name == "up":
                    with self.assertRaisesRegex(AssertionError, "this output padding alone"):
                        new.ModelNew(6, 8, 3, output_padding=0)

    @unittest.skipUnless(importlib.util.find_spec("torch") and importlib.util.find_spec("triton"), "there is no Triton here")
    def test_triton_files_compute_the_class(self):
        for name, text in {**CLASSES, "half": HALF, "depthwise": DEPTHWISE}.items():
            with self.subTest(name=name):
                new = self.file(self.export(text), "new.py")
                done = subprocess.run([sys.executable, "-c", INTERPRETED, self.file(text), new], capture_output=True, text=True,
                                      env={**os.environ, "TRITON_INTERPRET": "1"}, check=False)
                self.assertEqual(done.returncode, 0, done.stderr[-2000:])


if __name__ == "__main__":
    main()
