"""Drives the real convtune command where a target stands for a GPU: sheets, profiles, Triton files.

Usage: refine_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
import importlib.util
import json
import os
import sys
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


class Terminal(CliTest):
    def test_words_wrap(self):
        """Every sentence is whole, and no line is wider than the terminal; the first of a config keeps its indent."""
        words = ["refine", CONV, "--metrics", METRICS, *ADA, "--no-compile", "-o", str(self.folder / "new.py")]
        said = self.ok(*words).stdout
        code, sent = self.on_terminal(80, *words)
        shown = [line.rpartition("\r")[2].removeprefix("\033[K") for line in sent.splitlines()]
        self.assertEqual(code, 0, sent)
        self.assertLessEqual(max(map(len, shown)), 80, sent)
        self.assertEqual(" ".join(shown).split(), said.split())
        self.assertGreater(max(map(len, said.splitlines())), 80)
        self.assertEqual([line for line in shown if line.startswith("  BLOCK")][0],
                         "  BLOCK_M=32 BLOCK_N=64 BLOCK_K=32 num_warps=4 num_stages=2: the original")


class Analyze(CliTest):
    def test_the_sample(self):
        text = self.ok("analyze", METRICS, *ADA, "--source", CONV).stdout
        for needle in ["BLOCK_M=32 BLOCK_N=64 BLOCK_K=32", "33.05 %", "94.5 waves", "may become 8 or 16", "35 % at most"]:
            self.assertIn(needle, text)
        self.assertIn("32x64", self.ok("analyze", METRICS, *ADA, "--problem", "alexnet_conv1").stdout)
        self.ok("analyze", METRICS, *ADA)

    def test_refusals(self):
        self.refused(["analyze", METRICS], 2, "--target")
        self.refused(["analyze", "none.json", *ADA], 2, "none.json")
        self.refused(["analyze", CONV, *ADA], 2, "conv.py", "not JSON")
        self.refused(["analyze", METRICS, *ADA, "--problem", "alexnet_conv9"], 2, "alexnet_conv9")
        self.assertIn("no kernel 'conv_kernel'", self.ok("analyze", METRICS, *ADA, "--source", METRICS).stdout)

    def test_what_ncu_printed(self):
        text = self.ok("analyze", str(SAMPLES / "ncu_direct_stem_sm90.csv"), "--target", "h100").stdout
        self.assertIn("direct_stem_sm90 on h100", text)


    def test_pages_and_files(self):
        page = self.folder / "page.txt"
        page.write_text("loss 0.5\n  gemm(float *) (64, 1, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.9\n"
                        "    Section: GPU Speed Of Light Throughput\n    Duration          us      117,25\n"
                        "    DRAM Throughput    %       31,50\n    Compute (SM) Throughput   %   44,75\n")
        saved, html = self.folder / "a.json", self.folder / "a.html"
        text = self.ok("analyze", str(page), *ADA, "--json", str(saved), "--html", str(html)).stdout
        self.assertIn("gemm(float *) on rtx4090", text)
        self.assertIn("44.8 % of their peak", text)
        kernel, = json.loads(saved.read_text())["analysis"]["kernels"]
        self.assertEqual(kernel["metrics"]["gpu__time_duration.sum"], 117250)
        self.assertEqual(kernel["findings"][0]["what"], "tail")
        self.assertEqual(kernel["findings"][-1]["what"], "not in the metrics")
        self.assertIn("Analysis of gemm(float *)", html.read_text())
        again = self.folder / "b.html"
        self.ok("report", str(saved), "--html", str(again))
        self.assertEqual(again.read_text(), html.read_text())
        self.refused(["report", str(saved), "--markdown", "-"], 2, "analyze has no table")
        on_stdout = self.ok("analyze", str(page), *ADA, "--json", "-")
        self.assertEqual(json.loads(on_stdout.stdout)["analysis"]["kernels"], [kernel])
        self.assertIn("not in the metrics", on_stdout.stderr)

    def test_nothing_known_is_an_error(self):
        for name, text in (("a.json", '{"k": {"l1tex__t_bytes.sum": 4}}'),
                           ("a.csv", '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"0","k","x","","1"\n')):
            path = self.folder / name
            path.write_text(text)
            self.refused(["analyze", str(path), *ADA], 2, name, "ncu --set full --csv --page raw")


PLAIN = ["--no-compile"]  # as where there is no Triton


class Refine(CliTest):
    def test_the_sample(self):
        out = self.folder / "refined.py"
        sample = ["refine", CONV, "--metrics", METRICS, *ADA, *PLAIN]
        report = self.ok(*sample, "-o", str(out)).stdout
        for rule in range(1, 7):
            self.assertIn(f"\nR{rule}: ", report)
        text = out.read_text()
        for _ in range(2):
            self.assertEqual(self.ok(*sample, "--set", "stage=micro").stdout, text)

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
            "triton.Config({'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=%d, num_stages=%d)" % pair
            for pair in ((4, 2), (4, 3), (8, 2), (8, 3), (16, 2))])

    def test_triton_compiles_what_is_offered(self):
        """If this Python has Triton: what each config needs, and which are the same machine code."""
        if importlib.util.find_spec("triton") is None:
            self.skipTest("no Triton here")
        args = ["refine", CONV, "--metrics", METRICS, *ADA, "--python", sys.executable, "--trust", "--no-import"]
        report = self.run_command(*args, "-o", str(self.folder / "out.py"))
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertIn("compiled by Triton", report.stdout)
        self.assertIn("registers a thread", report.stdout)

    def test_only_the_list_changes_unless_an_order_is_asked_for(self):
        metrics = self.folder / "m.json"
        metrics.write_text('{"pointwise": {"launch__grid_size": 196, '
                           '"sm__warps_active.avg.pct_of_peak_sustained_active": 30}}')
        args = ["refine", str(SAMPLES / "matmul_lambda.py"), "--metrics", str(metrics), *ADA, *PLAIN, "--original",
                "num_warps=4"]
        self.ok(*args)
        names = [getattr(node, "name", type(node).__name__) for node in ast.parse(self.ok(*args).stdout).body]
        self.assertEqual(names, ["Expr", "Import", "Import", "Import", "Import", "Assign", "wrapper", "pointwise",
                                 "ModelNew", "get_inputs", "If"])
        text = self.ok(*args, "--order", "seed").stdout
        names = [getattr(node, "name", type(node).__name__) for node in ast.parse(text).body]
        self.assertEqual(names, ["Expr", "Import", "Import", "Import", "Import", "Assign", "pointwise", "wrapper",
                                 "ModelNew"])

    def test_too_few_neighbours_are_an_answer(self):
        source, out = self.folder / "in.py", self.folder / "out.py"
        source.write_text(Path(CONV).read_text().replace("num_stages=3", "num_stages=6"))
        metrics = self.folder / "m.json"
        metrics.write_text('{"conv_kernel": {"launch__grid_size": 24200}}')
        args = ["refine", str(source), "--metrics", str(metrics), *ADA, *PLAIN, "--original", "BLOCK_K=16", "-o", str(out)]
        report = self.ok(*args).stdout
        self.assertIn("R4: keep: 1 nearby config is", report)
        self.assertIn("its list stays as it was", report)
        self.assertEqual(out.read_text(), source.read_text())
        self.ok(*args, "--only-original")
        self.assertEqual(out.read_text().count("triton.Config("), 1)

    def test_nothing_is_half_written(self):
        out, source = self.folder / "out.py", self.folder / "in.py"
        out.write_text("before\n")
        text = Path(CONV).read_text()
        for changed, needles in [
            (text.replace("configs=[", "configs=more + ["), ["line 7", "list of configs is not known", "--original"]),
            (text.replace("num_warps=4,\n            num_stages=2,\n        ),", "num_warps=4,\n"), ["this is no Python"]),
            (text.replace("kernel_size=11", "kernel_size=size"), ["--original"]),
        ]:
            source.write_text(changed)
            args = ["refine", str(source), "--metrics", METRICS, *ADA, *PLAIN, "-o", str(out)]
            self.refused(args, 2, "in.py: ", *needles)
            self.assertEqual(out.read_text(), "before\n")
            self.assertEqual(sorted(os.listdir(self.folder)), ["in.py", "out.py"])
        sample = ["refine", CONV, "--metrics", METRICS, *ADA, *PLAIN]
        self.refused([*sample, "--set", "stage=tiles"], 2, "stage=micro")
        self.refused([*sample, "--order", "mine"], 2, "--order", "seed")
        self.refused([*sample, "--let", "M"], 2, "--let", "M=4096")
        self.refused([*sample, "-o", str(self.folder / "no" / "out.py")], 2, "no")
        self.refused([*sample, "--original", "BLOCK_M=32"], 2, "fits 4 configs")
        self.refused([*sample, "--python", "no_such_python"], 2, "no_such_python", "--python")
        self.refused(["refine", CONV, *ADA], 2, "--metrics")
        self.refused(["refine", CONV, "--metrics", METRICS], 2, "--target")
        self.refused(["refine", *ADA, "--metrics", METRICS], 2, "FILE", "--document")

    def test_a_document(self):
        document, out = str(SAMPLES / "document.txt"), self.folder / "out.py"
        result = self.ok("refine", "--document", document, *PLAIN, "-o", str(out))
        self.assertEqual(result.stdout, "")
        for needle in ["the sheet is that of rtx4090", "bound: ", "ceiling: ", "R1: ", "R6: "]:
            self.assertIn(needle, result.stderr)
        self.assertEqual(self.ok("refine", "--document", document, *PLAIN).stdout, out.read_text())
        self.assertEqual(out.read_text().count("triton.Config("), 5)
        self.refused(["refine", "--document", CONV], 2, "conv.py", "Target GPU")


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
        text = self.ok("refine", str(source), "--metrics", str(metrics), *ADA, *PLAIN, "--keep").stdout
        self.assertEqual(ast.parse(text).body[4].name, "conv2d_kernel")

    def test_refusals(self):
        self.refused(["export", "alexnet_conv1", "--format", "ptx"], 2, "ptx", "triton", "cuda")
        self.refused(["export", "alexnet_conv1", "--target", "h100"], 2, "--format cuda")
        self.refused(["export", "--suite", "stem"], 2, "name one")
        self.refused(["export", "mb1ic3ih8oc4kh3", "layout=nhwc"], 2, "NCHW")
        self.refused(["export", "mb1ic3ih8oc4kh3ph0", "pad_bottom=1"], 2, "both ends")
        for name in ("class", "a b", "1st", "conv2d"):
            self.refused(["export", "alexnet_conv1", "--module-name", name], 2, "module's name")
        self.refused(["export", "alexnet_conv1", "--module-name", ""], 2, "--module-name", "is no name")


if __name__ == "__main__":
    main()
