"""Drives the real convtune command where a target stands for a GPU: sheets, profiles, Triton files.

Usage: refine_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
import json
import os
from pathlib import Path

from convtune_command import CliTest, main

SAMPLES = Path(__file__).parent.parent / "refine"
CONV, METRICS = str(SAMPLES / "conv.py"), str(SAMPLES / "metrics.json")
ADA = ["--target", "rtx4090"]


class Targets(CliTest):
    def test_the_sheet(self):
        sheet = self.ok("devices", *ADA).stdout
        for line in ["Compute capability 8.9", "Number of SMs 128", "Memory bandwidth 1008 GB/s",
                     "TF32 tensor core TFLOPS 82.6 dense", "BFLOAT16 tensor core TFLOPS 165.2 dense",
                     "FP16 tensor core TFLOPS 165.2 dense", "Maximum number of registers per thread 255",
                     "Maximum threads per block 1024", "Maximum threads per SM 1536", "Warp size 32",
                     "Maximum concurrent warps per SM 48", "Shared memory capacity per SM 100 KB",
                     "Maximum shared memory per thread block 99 KB", "L2 cache (global, all SMs share it) 72 MB"]:
            self.assertIn(line, " ".join(sheet.split()))

    def test_a_target_file_comes_back(self):
        file = self.folder / "mine.json"
        self.ok("devices", "--target", "h100", "--json", str(file))
        self.assertEqual(self.ok("devices", "--target", str(file)).stdout, self.ok("devices", "--target", "h100").stdout)
        text = json.loads(file.read_text())
        file.write_text(json.dumps({**text, "multiprocessors": 0}))
        self.refused(["devices", "--target", str(file)], 2, "mine.json", "multiprocessors")
        self.refused(["devices", "--target", str(self.folder / "none.json")], 2, "none.json")
        self.refused(["devices", "--target", "rtx4091"], 2, "rtx4091", "rtx4090", "b200")


class Plan(CliTest):
    def test_for_a_gpu_that_is_elsewhere(self):
        line = "mb2ic3ih32oc32kh3ph1"
        self.refused(["plan", line, *ADA, "--device", "cpu"], 2, "--device")
        self.refused(["plan", line, "--target", "none"], 2, "none", "rtx4090")
        self.refused(["plan", line, *ADA, "--candidates", "0"], 2, "--candidates")
        if not any(line.split()[:2] == ["NVRTC", "yes"] for line in self.ok("doctor").stdout.splitlines()):
            self.skipTest("no NVRTC here")
        text = self.ok("plan", line, *ADA, "--candidates", "2").stdout
        for needle in ["estimates of a model", "registers", "occupancy", "limiter", "steps aside", "not compiled"]:
            self.assertIn(needle, text)


class Analyze(CliTest):
    def test_the_sample(self):
        text = self.ok("analyze", METRICS, *ADA, "--source", CONV).stdout
        for needle in ["BLOCK_M=32 BLOCK_N=64 BLOCK_K=32", "33.05 %", "94.5 waves", "stays 4"]:
            self.assertIn(needle, text)
        self.assertIn("32x64", self.ok("analyze", METRICS, *ADA, "--problem", "alexnet_conv1").stdout)
        self.ok("analyze", METRICS, *ADA)

    def test_refusals(self):
        self.refused(["analyze", METRICS], 2, "--target")
        self.refused(["analyze", "none.json", *ADA], 2, "none.json")
        self.refused(["analyze", CONV, *ADA], 2, "conv.py", "not JSON")
        self.refused(["analyze", METRICS, *ADA, "--problem", "alexnet_conv9"], 2, "alexnet_conv9")
        self.refused(["analyze", METRICS, *ADA, "--source", METRICS], 2, "no kernel")


class Refine(CliTest):
    def test_the_sample(self):
        out = self.folder / "refined.py"
        report = self.ok("refine", CONV, "--metrics", METRICS, *ADA, "-o", str(out)).stdout
        for rule in range(1, 7):
            self.assertIn(f"\nR{rule}: ", report)
        text = out.read_text()
        for _ in range(3):
            self.assertEqual(self.ok("refine", CONV, "--metrics", METRICS, *ADA, "--set", "stage=micro").stdout, text)

        def parts(source):
            """Every top-level statement, with the list's configs apart from the rest."""
            configs, rest = [], []
            for node in ast.parse(source).body:
                for decorator in getattr(node, "decorator_list", []):
                    for keyword in getattr(decorator, "keywords", []):
                        if keyword.arg == "configs":
                            configs = [ast.unparse(config) for config in keyword.value.elts]
                            keyword.value.elts = []
                rest.append(ast.unparse(node))
            return configs, rest

        old, new = parts(Path(CONV).read_text()), parts(text)
        self.assertEqual(new[1], old[1])
        self.assertEqual(new[0], [
            "triton.Config({'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=%d)" % stages
            for stages in (2, 3, 1)])

    def test_order_and_tests_left_out(self):
        metrics = self.folder / "m.json"
        metrics.write_text('{"pointwise": {"launch__grid_size": 196}}')
        text = self.ok("refine", str(SAMPLES / "matmul_lambda.py"), "--metrics", str(metrics), *ADA,
                       "--problem", "mb1ic64ih56oc256kh1 bias=0").stdout
        names = [getattr(node, "name", type(node).__name__) for node in ast.parse(text).body]
        self.assertEqual(names, ["Expr", "Import", "Import", "Import", "Import", "Assign", "pointwise", "wrapper",
                                 "ModelNew"])

    def test_too_few_neighbours(self):
        source = self.folder / "in.py"
        source.write_text(Path(CONV).read_text().replace("num_stages=3", "num_stages=4"))
        metrics = self.folder / "m.json"
        metrics.write_text('{"conv_kernel": {"launch__grid_size": 24200}}')
        result = self.refused(["refine", str(source), "--metrics", str(metrics), *ADA, "--original", "BLOCK_K=16",
                               "-o", str(self.folder / "out.py")], 2, "no list", "R4: no list")
        self.assertFalse((self.folder / "out.py").exists(), result.stderr)

    def test_nothing_is_half_written(self):
        out, source = self.folder / "out.py", self.folder / "in.py"
        out.write_text("before\n")
        text = Path(CONV).read_text()
        for changed, needles in [
            (text.replace("configs=[", "configs=more + ["), ["line 8", "literal"]),
            (text.replace("num_warps=4,\n            num_stages=2,\n        ),", "num_warps=4,\n"), ["closes the '('"]),
            (text.replace("@triton.autotune", "@triton.heuristics"), ["line 7", "autotune"]),
            (text.replace("kernel_size=11", "kernel_size=size"), ["--original"]),
        ]:
            source.write_text(changed)
            args = ["refine", str(source), "--metrics", METRICS, *ADA, "-o", str(out)]
            self.refused(args, 2, "in.py: ", *needles)
            self.assertEqual(out.read_text(), "before\n")
            self.assertEqual(sorted(os.listdir(self.folder)), ["in.py", "out.py"])
        self.refused(["refine", CONV, "--metrics", METRICS, *ADA, "--set", "stage=tiles"], 2, "stage=micro")
        self.refused(["refine", CONV, "--metrics", METRICS, *ADA, "-o", str(self.folder / "no" / "out.py")], 2, "no")
        self.refused(["refine", CONV, "--metrics", METRICS, *ADA, "--original", "BLOCK_M=32"], 2, "fits 4 configs")


class Export(CliTest):
    def test_triton(self):
        for line in (["alexnet_conv1"], ["mb2ic3ih9oc5kh3kw2sh2dh1ph1pw0", "act=relu", "bias=0", "dtype=f16"]):
            text = self.ok("export", *line, "--format", "triton").stdout
            body = ast.parse(text).body
            rounding = [] if "dtype=f16" in line else ["round_kernel", "round_tf32"]
            self.assertEqual([getattr(node, "name", None) for node in body],
                             [None] * 4 + ["conv2d_kernel", *rounding, "conv2d", "ModelNew"])
            self.assertNotIn("@", text.replace("@triton.", ""))
            for word in ("try", "except", "pass", "thread"):
                self.assertNotIn(word, text.split())
        self.assertIn("class Stem(nn.Module)", self.ok("export", "resnet_stem", "--module-name", "Stem").stdout)

    def test_what_is_exported_can_be_refined(self):
        source, metrics = self.folder / "conv.py", self.folder / "m.json"
        self.ok("export", "alexnet_conv1", "-o", str(source))
        metrics.write_text('{"conv2d_kernel": {"launch__grid_size": 18150, "launch__block_size": 128}}')  # 6050 x 3
        text = self.ok("refine", str(source), "--metrics", str(metrics), *ADA).stdout
        self.assertEqual(text.count("triton.Config("), 3)
        self.assertEqual(text.count("'BLOCK_M': 128, 'BLOCK_N': 32, 'BLOCK_K': 32"), 3)

    def test_refusals(self):
        self.refused(["export", "alexnet_conv1", "--format", "ptx"], 2, "ptx", "triton", "cuda")
        self.refused(["export", "alexnet_conv1", "--target", "h100"], 2, "--format cuda")
        self.refused(["export", "--suite", "stem"], 2, "name one")
        self.refused(["export", "g8mb1ic8ih8oc8kh3"], 2, "one group")
        self.refused(["export", "mb1ic3ih8oc4kh3", "layout=nhwc"], 2, "NCHW")
        self.refused(["export", "mb1ic3ih8oc4kh3ph0", "pad_bottom=1"], 2, "both ends")
        for name in ("class", "a b", "", "1st", "conv2d"):
            self.refused(["export", "alexnet_conv1", "--module-name", name], 2, "module's name")


if __name__ == "__main__":
    main()
