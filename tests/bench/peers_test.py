"""bench/peers.py without PyTorch: what it refuses, how it reads problem lines, and the shape of its JSON.

Usage: peers_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import peers  # noqa: E402
from problem_lines import BadInput, find, load_suite, parse, to_line  # noqa: E402
from torch_peers import Provider  # noqa: E402

CONVTUNE = ""


def run(*args, **environment):
    return subprocess.run([sys.executable, str(BENCH / "peers.py"), *args], env={**os.environ, **environment},
                          text=True, capture_output=True, timeout=60)


class Lines(unittest.TestCase):
    def keys(self, suite):
        """Returns convtune's problems of a suite or a file: the last column of its table."""
        done = subprocess.run([CONVTUNE, "cases", suite], text=True, capture_output=True, check=True)
        return [line.split("  ")[-1].strip() for line in done.stdout.splitlines()[1:]]

    def test_the_suites_are_read_as_convtune_reads_them(self):
        for suite in ("stem", "body", "depthwise", "edges", "all"):
            self.assertEqual([problem.key() for problem in load_suite(suite)], self.keys(suite))

    def test_unusual_lines_too(self):
        lines = ['ic3ih8oc4kh3', 'mb2_ic3_iw8oc4kw3ow6', 'g2mb7ic4ih9iw5oc6kh3kw1sh2sw3ph1pw0dh1dw2n"a # name"  # text',
                 'mb1ic3ih8oc4kh3sh2 pad_bottom=1 pad_right=1 act=relu bias=0 precision=fp32 layout=nhwc',
                 'ic3ih16iw16oc8kh3kw3sh2', 'ic3ih9iw14oc5kh9kw14ph1', 'ic3ih9iw11oc4kh3sh2ph1',
                 'ic3ih9iw9oc5kh5kw5sh2sw1', 'ic3ih8oc4oh8kh4', 'ic3ih300oc4oh150kh3sh2', 'ic3ih7oc4oh1kh11sh2ph5',
                 'ic3ih8oc4oh4kh3sh2 pad_bottom=1', 'ic3id1ih9iw8oc4od1oh9ow8kd1kh3kw3sd2pd0dd1ph1pw1',
                 'ic3id1oc4kd1', 'ic3ih8oc4kh3n', 'ic3ih8oc4kh3na=b act=relu',
                 'ic3ih8oc4kh3 act=clip:0:6', 'ic3ih8oc4kh3 act=leaky_relu:0.1 residual=1', 'ic3ih8oc4kh3 act=gelu_erf']
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# a comment\n\n" + "\n".join(lines) + "\n")
            file.flush()
            problems = load_suite(file.name)
            self.assertEqual([problem.key() for problem in problems], self.keys(file.name))
        for problem in problems:
            self.assertEqual(parse(to_line(problem)), problem)
        self.assertEqual(problems[2].name, "a # name")

    def test_what_convtune_refuses_is_refused(self):
        for line in ("", "mb1", "mb1ic3oc4kh3", "ic3ih8oc4kh9", "ic3ih8oc4kh3ic3", "ic3id8oc4kh3", "g2ic3ih8oc4kh3",
                     "ic3ih8oc4kh3oh4", "ic3ih8oc4kh3 bias=2", "ic3ih8oc4kh3 what=1", "ic3ih8oc4kh3 act",
                     "ic3ih16oc4kh3sw2", "ic3ih8oc4ow8kh3ph1", "ic3ih8oc4kh3sh2sw1", "ic3iw8oc4", "ic3ih10oc4oh4kh3",
                     "ic3id1kd1ih8kh3oc4", 'ic3ih8oc4kh3n"x"sh2', "--dir=FWD_B",
                     "ic3ih8oc4kh3 pad_right=x", "ic3ih8oc4kh0", "ic3ih8oc4kh3!", "ic3ih8oc4kh3 act=relu act=relu",
                     "ic3ih8oc4kh3 act=clip:0", "ic3ih8oc4kh3 act=swish", "ic3ih8oc4kh3 residual=2"):
            with self.subTest(line=line), tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write(line + "\n")
                file.flush()
                done = subprocess.run([CONVTUNE, "cases", file.name], text=True, capture_output=True)
                self.assertEqual(done.returncode, 2, done.stdout)
                with self.assertRaises(BadInput):
                    load_suite(file.name)

    def test_what_peers_have_no_like_of_is_refused(self):
        for line in ("ic3id1ih5iw5oc4od1kd3kh3kw3pd1", "ic3id8oc4kd3", "ic3ih8oc4kh3 dir=bwd_d", "ic3ih8oc4kh3 dtype=bf16:bf16:f32", "ic3ih8oc4kh3 rounding=eager"):
            with self.subTest(line=line), self.assertRaises(BadInput):
                parse(line)

    def test_lines_that_cannot_be_used_are_left_out(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("--reset\nic3ih8oc4kh3\nic3id8oc4kd3\n")
            file.flush()
            left_out = []
            self.assertEqual([problem.key() for problem in load_suite(file.name, left_out)], ["ic3ih8oc4kh3"])
            self.assertEqual(len(left_out), 2)
            self.assertIn(":3: problem 'ic3id8oc4kd3': a depth", left_out[1])

    def test_words_belong_to_the_case_before(self):
        first, second = find(["alexnet_conv1", "precision=fp32", "act=relu", "mb1ic3ih8oc4kh3"])
        self.assertEqual((first.precision, first.act, first.name), ("fp32", "relu", "alexnet_conv1"))
        self.assertEqual(second.act, "none")


class Command(unittest.TestCase):
    def refused(self, args, *needles):
        result = run(*args)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertNotIn("Traceback", result.stderr)
            for needle in needles:
                self.assertIn(needle, result.stderr)

    def test_bad_input(self):
        self.refused([], "no problem given")
        self.refused(["winograd9"], "winograd9")
        self.refused(["--suite", "stems"], "stems")
        self.refused(["alexnet_conv1", "--seconds", "0"], "--seconds")
        self.refused(["alexnet_conv1", "--seconds", "nan"], "--seconds")
        self.refused(["alexnet_conv1", "--batch", "0"], "--batch")
        self.refused(["alexnet_conv1", "--peers", "eager,jax"], "jax", "fused")
        self.refused(["alexnet_conv1", "--triton", "/nonexistent/kernel.py"], "/nonexistent/kernel.py")
        under_a_file = os.path.join(__file__, "out.json")  # root may make any folder, but none in a file
        self.refused(["alexnet_conv1", "--json", under_a_file], under_a_file)
        self.refused(["alexnet_conv1", "--frobnicate"], "--frobnicate")

    def test_help(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("Exit codes", result.stdout)

    def test_without_pytorch_it_says_so_and_touches_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text('raise ImportError("not on this machine")\n')
            out = Path(folder) / "out.json"
            out.write_text("what was there before")
            result = run("alexnet_conv1", "--json", str(out), PYTHONPATH=folder)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("not on this machine", result.stderr)
            self.assertEqual(out.read_text(), "what was there before")
            self.assertFalse((Path(folder) / "out.json.new").exists())


class Report(unittest.TestCase):
    PROVIDERS = (Provider("torch_eager", "nhwc=0", time_us=300.0, mad_us=1.0, n=9),
                 Provider("torch_eager", "nhwc=1 conversions=0", answers=False, time_us=20.0, n=9),
                 Provider("triton_file", failure="ValueError: no"))

    def test_rows_are_shaped_as_convtunes_own(self):
        done = subprocess.run([CONVTUNE, "bench", "mb1ic3ih8oc4kh3ph1", "--device", "cpu", "--seconds", "0.1",
                               "--json", "-"], text=True, capture_output=True, check=True)
        own = json.loads(done.stdout)
        problem = parse("mb1ic3ih8oc4kh3ph1")
        row = peers.row_json(problem, "a device", self.PROVIDERS)
        self.assertEqual(set(row), set(own["rows"][0]) - {"decision", "incumbent", "verdict", "machine", "check"})
        # Nobody measured the roofs, nor is there a vendor whose version is known.
        self.assertEqual(set(row["roofline"]), set(own["rows"][0]["roofline"]) - {"flops_per_second", "bytes_per_second"})
        self.assertEqual(set(row["providers"][0]), set(own["rows"][0]["providers"][0]) - {"interrupted"})
        self.assertEqual(set(row["providers"][2]) - {"failure"}, set(row["providers"][0]))
        self.assertEqual((row["best_peer"], row["speedup"]), ("torch_eager nhwc=0", None))
        report = peers.report_json([row], own["environment"])
        self.assertEqual(set(report), set(own))
        json.dumps(report)

        merged = peers.row_json(problem, "a device", self.PROVIDERS, own["rows"][0])
        self.assertEqual(merged["providers"][0]["name"], "convtune")
        self.assertEqual(len(merged["providers"]), len(own["rows"][0]["providers"]))
        self.assertGreater(merged["speedup"], 0)

    def test_the_best_peer_is_one_that_answers_the_problem(self):
        bench = {"case": "", "problem": "", "device": "", "roofline": {"floor_us": 30.0, "bound": "memory"},
                 "best_peer": "cudnn", "speedup": 10.0,
                 "providers": [{"name": "convtune", "time_us": 50.0}, {"name": "cudnn", "time_us": 500.0}]}
        row = peers.row_json(parse("ic3ih8oc4kh3"), "a device", self.PROVIDERS, bench)
        self.assertEqual((row["best_peer"], row["speedup"]), ("torch_eager nhwc=0", 6.0))
        self.assertEqual(row["providers"][2]["roofline_fraction"], 0.1)
        report = peers.report_json([row, {**row, "speedup": 1.01}, {**row, "speedup": 0.5}], {})
        self.assertEqual([report[key] for key in ("wins", "ties", "losses")], [1, 1, 1])


if __name__ == "__main__":
    CONVTUNE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
