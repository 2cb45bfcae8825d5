"""Drives `convtune refine --document` about a convolution: what is said of a whole kernel of ours, and --whole, which writes it.

Usage: whole_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
from pathlib import Path

from convtune_command import CliTest, main

DOCUMENT = (Path(__file__).parent.parent / "refine" / "document.txt").read_text()
CLASS = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, num_classes=1000):
        super(Model, self).__init__()
        self.stem = nn.Conv2d(in_channels=3, out_channels=96, kernel_size=11, stride=4, padding=2)

    def forward(self, x):
        return self.stem(x)

def get_inputs():
    return [torch.rand(256, 3, 224, 224)]

def get_init_inputs():
    return [1000]
'''
LINE = "a whole kernel of ours for alexnet_conv1 "


class Whole(CliTest):
    def document(self, *changes):
        text = DOCUMENT
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / "document.txt"
        path.write_text(text)
        return ["refine", "--document", str(path)]

    def said(self, *changes, more=()):
        return self.ok(*self.document(*changes), *more, "-o", str(self.folder / "out.py")).stderr

    def class_file(self, text=CLASS):
        path = self.folder / "model.py"
        path.write_text(text)
        return ["--class", str(path)]

    def test_the_answer_says_what_ours_would_take(self):
        said = self.said()
        self.assertIn(LINE, said)
        self.assertIn("the profiled grid is one that its configs launch", said)
        self.assertRegex(said, r"direct_stem_sm80, 940\.3 us by the model on NVIDIA GeForce RTX 4090; `convtune refine "
                         r"--document \S+ --whole --format cuda -o new\.py`")
        self.assertIn("conv_kernel", (self.folder / "out.py").read_text(), "the stage's answer is written as before")
        said = self.said(('"launch__grid_size"', '"gpu__time_duration.sum": 2360000, "launch__grid_size"'))
        self.assertIn("940.3 us by the model on NVIDIA GeForce RTX 4090, where 2.360 ms was profiled", said)

    def test_the_document_s_order(self):
        text = self.ok(*self.document(), "--whole").stdout
        body = ast.parse(text).body
        self.assertEqual([ast.unparse(node) for node in body[:4]], ["import torch", "import torch.nn as nn", "import triton",
                                                                  "import triton.language as tl"])
        kinds = ["kernel" if node.decorator_list else type(node).__name__ for node in body[4:]]
        self.assertEqual(kinds, ["kernel", "kernel", "FunctionDef", "FunctionDef", "ClassDef"])
        self.assertEqual(body[-1].name, "ModelNew")
        self.assertEqual(ast.unparse(body[-1].body[0].args), "self, num_classes=1000")
        self.assertNotIn("get_inputs", text)

    def test_in_cuda(self):
        result = self.ok(*self.document(), "--whole", "--format", "cuda")
        self.assertIn("code=sm_89", result.stdout)
        self.assertIn("x.shape == (256, 3, 224, 224)", result.stdout)
        self.assertIn("self, num_classes=1000", result.stdout)
        self.assertIn("940.3 us by the model", result.stderr)
        self.assertIn("code=sm_90a", self.ok(*self.document(), "--whole", "--format", "cuda", "--target", "h100").stdout)

    def test_a_class_file(self):
        text = self.ok(*self.document(), "--whole", *self.class_file()).stdout
        self.assertIn("self.stem = nn.Conv2d(", text)
        result = self.ok(*self.document(), "--whole", *self.class_file(CLASS.replace("256, 3", "128, 3")))
        self.assertIn("as the class file has it; but none of its configs launches the profiled grid", result.stderr)
        self.refused([*self.document(), "--whole", *self.class_file("")], 2, "no nn.Conv layer")

    def test_what_is_not_known(self):
        """A constructor of parameters, as documents have it: a class or a problem says the sizes."""
        change = ("out_channels=96", "out_channels=filters"), ("num_classes=1000", "filters")
        self.assertIn("'filters' is not known; --class FILE or --problem PROBLEM can say more", self.said(*change))
        self.refused([*self.document(*change), "--whole"], 2, "'filters' is not known")
        text = self.ok(*self.document(*change), "--whole", "--problem", "alexnet_conv1", "--format", "cuda").stdout
        self.assertIn("self, filters", text)
        self.assertIn("out_channels=filters", text)
        self.assertIn("these numbers alone", text)
        self.refused([*self.document(), "--whole", "--problem", "mb256ic3ih224oc64kh11sh4ph2"], 2, "out_channels is [96]")

    def test_what_is_not_written(self):
        self.refused([*self.document(("nn.Conv2d(", "nn.ConvTranspose2d(")), "--whole"], 2, "the size of its input is not known")
        self.assertIn("no whole kernel of ours: line ", self.said(("nn.Conv2d(", "nn.ConvTranspose2d(")))
        more = self.said(("tl.store(", "sums = tl.exp(sums)\n    tl.store("))
        self.assertIn("'conv_kernel' does more than convolutions: 'tl.exp(sums)'", more)
        self.refused([*self.document(("            return self.conv1(x)", "            return self.conv1(x) * self.scale")),
                      "--whole"], 2, "forward does more than convolutions: 'self.scale'")
        out = self.folder / "out.py"
        out.write_text("before\n")
        self.refused([*self.document(("48400", "48401")), "--whole", "-o", str(out)], 2, "grid")
        self.assertEqual(out.read_text(), "before\n")
        self.refused(["refine", str(out), "--whole"], 2, "--document")
        self.refused([*self.document(), "--format", "cuda"], 2, "--whole")


if __name__ == "__main__":
    main()
