"""Drives `convtune export --format cuda` without a GPU: the file's order, KernelBench's rules, exit codes, and, where
nvcc is, that the device code compiles for exactly the target.

Usage: export_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import unittest

from convtune_command import CliTest, main, no_file_may_grow

EXPORT = ["export", "--format", "cuda"]
# Lists each of our algorithms with its abilities and GPUs.
EXPORTS = [
    ("alexnet_conv1", "h100", "direct_stem_sm90"),
    ("resnet_3x3_128", "h100", "direct_body_sm90"),
    ("alexnet_conv1", "rtx4090", "direct_stem_sm80"),
    ("mobilenet_dw_3x3_144", "a100", "direct_fma_sm80"),
    ("resnet_1x1_64_256", "a100", "implicit_gemm_sm80"),
]


def without_comments(text):
    return "\n".join(re.split("#|//", line)[0] for line in text.splitlines())


def source_of(text):
    """The values of CUDA_SOURCE and CPP_SOURCE."""
    values = {node.targets[0].id: node.value.value for node in ast.parse(text).body
              if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)}
    return values["CUDA_SOURCE"], values["CPP_SOURCE"]


class Export(CliTest):
    def export(self, problem, target, algorithm, *more):
        return self.ok(*EXPORT, problem, "--target", target, "--algorithm", algorithm, *more).stdout

    def test_order(self):
        body = ast.parse(self.export(*EXPORTS[0])).body
        kinds = [(type(node).__name__,
                  node.targets[0].id if isinstance(node, ast.Assign) else getattr(node, "name", None)) for node in body]
        self.assertEqual(kinds, [("Import", None), ("Import", None), ("ImportFrom", None), ("Assign", "CUDA_SOURCE"),
                                 ("Assign", "CPP_SOURCE"), ("Assign", "extension"), ("FunctionDef", "pack"),
                                 ("FunctionDef", "conv2d"), ("FunctionDef", "packed_weights"), ("ClassDef", "ModelNew")])
        imported = [name.name for node in body[:2] for name in node.names] + [body[2].module]
        self.assertEqual(imported, ["torch", "torch.nn", "torch.utils.cpp_extension"])
        model = body[-1]
        self.assertEqual([function.name for function in model.body], ["__init__", "forward"])
        first = ast.unparse(model.body[1].body[0])
        self.assertEqual(first, "if not x.is_cuda:\n    return self.conv1(x)")

    def test_rules(self):
        for problem, target, algorithm in EXPORTS:
            with self.subTest(algorithm=algorithm):
                text = self.export(problem, target, algorithm)
                imports = [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]
                self.assertNotIn("convtune", ast.unparse(imports))
                cuda, cpp = source_of(text)
                self.assertIn("__global__", without_comments(cuda))
                self.assertIn("load_inline(", text)
                self.assertIn(f"convtune::{algorithm}::{algorithm}<<<", cuda)
                self.assertIn("at::Tensor conv2d_run(", cpp)
                # As KernelBench's checker goes by words; here in comments too.
                for word in ("try", "except", "pass", "eval", "exec", "threading", "multiprocessing"):
                    self.assertNotRegex(text, rf"\b{word}\b")
                for pattern in (r"torch\.nn\.(?!Module)\w", r"torch\.(relu|conv2d|matmul)\b", r"\bF\.",
                                r"\.wait_stream", r"cuda\.Stream\(", r"\.half\s*\(", r"_make_subclass",
                                r"Event\.record\s*="):
                    self.assertNotRegex(without_comments(text), pattern)

    def test_words(self):
        text = self.ok(*EXPORT, "mb2ic3ih64oc32kh7sh2ph3", "act=relu", "bias=0", "--target", "rtx4090", "--module-name",
                       "Stem").stdout
        self.assertIn("class Stem(nn.Module)", text)
        self.assertIn("self.conv1(x).relu()", text)
        self.assertIn("code=sm_89", text)
        config = "consumers=2 units=5 filters=96"
        text = self.export("alexnet_conv1", "h100", "direct_stem_sm90", "--config", config)
        self.assertIn(f"direct_stem_sm90 {config}", text)
        self.assertIn("code=sm_90a", text)

    def test_says_when_it_is_a_guess(self):
        result = self.ok(*EXPORT, "alexnet_conv1", "--target", "h100")
        self.assertIn("first guess", result.stderr)
        self.assertIn("first guess", result.stdout)

    def test_the_file_is_written_whole_or_not_at_all(self):
        out = self.folder / "out.py"
        command = [*EXPORT, "alexnet_conv1", "--target", "h100", "-o", str(out)]
        self.ok(*command)
        whole = out.read_text()
        ast.parse(whole)
        out.write_text("before\n")
        self.refused([*command, "--module-name", "class"], 2, "module's name")
        self.assertEqual(self.run_command(*command, preexec_fn=no_file_may_grow).returncode, 2)
        self.assertEqual(out.read_text(), "before\n")
        self.assertEqual([file for file in os.listdir(self.folder) if file != "data"], ["out.py"])
        self.ok(*command)
        self.assertEqual(out.read_text(), whole)

    def test_refusals(self):
        on = ["--target", "h100"]
        self.refused([*EXPORT, "alexnet_conv1", "--target", "h1000"], 2, "h1000")
        self.refused([*EXPORT, "alexnet_conv1", "--device", "cpu"], 2, "cpu", "--target")
        self.refused([*EXPORT, "--suite", "stem", *on], 2, "name one")
        self.refused([*EXPORT, "mb1ic3ih8oc4kh3ph0", "pad_bottom=1", *on], 2, "both ends")
        self.refused([*EXPORT, "mb1ic3ih8oc4kh3", "dtype=f16:f16:f32", *on], 2, "one type")
        self.refused([*EXPORT, "alexnet_conv1", *on, "--algorithm", "direct"], 2, "direct_stem_sm90")
        self.refused([*EXPORT, "alexnet_conv1", *on, "--algorithm", "direct_stem_sm90", "--config", "units=5"], 2,
                     "consumers")
        self.refused([*EXPORT, "alexnet_conv1", "--target", "a100", "--algorithm", "direct_stem_sm90"], 2,
                     "compute capability 9.0")

    def test_a_config_fits_the_capability_of_the_target(self):
        target = json.loads(self.ok("devices", "--target", "rtx5090", "--json", "-").stdout)
        target.update(name="gb10", product="NVIDIA GB10", capability="12.1")
        file = self.folder / "gb10.json"
        file.write_text(json.dumps(target))
        large = "rows=4 filters=4 down=1 units=1 chunks=8 passes=2 kept=0 uniform=0 staged=1"  # 119 KiB
        command = [*EXPORT, "mb1ic3ih224oc64kh3ph1", "--algorithm", "direct_fma_sm80", "--config", large, "--target"]
        self.refused([*command, str(file)], 2, "101376 bytes of shared memory")
        self.assertIn("code=sm_80", self.ok(*command, "a100").stdout)

    @unittest.skipUnless(shutil.which("nvcc"), "there is no nvcc here")
    def test_nvcc_compiles_the_device_code(self):
        problem, target, algorithm = EXPORTS[0]
        text = self.export(problem, target, algorithm)
        source = self.folder / "kernel.cu"
        source.write_text(source_of(text)[0].split("// ---- The host's part ----")[0])
        flags = [flag for flag in re.findall(r"'(-[^']+)'", text) if flag.startswith(("-gencode", "-std"))]
        done = subprocess.run(["nvcc", *sorted(set(flags)), "--expt-relaxed-constexpr", "-Xptxas", "-v", "-c", source,
                               "-o", self.folder / "kernel.o"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(re.findall(r"(\d+) bytes spill", done.stderr)), {"0"})


if __name__ == "__main__":
    main()
