"""Drives the real convtune command where it starts other programs: a profiler, and Python with PyTorch. Both are
stand-ins here, so that no GPU is needed.

Usage: measure_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import ast
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from convtune_command import CliTest, main

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "refine"
CONV, METRICS = str(SAMPLES / "conv.py"), str(SAMPLES / "metrics.json")


class Stand(CliTest):
    """Programs of the test's own before all others on PATH."""

    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.variables = {}

    def environment(self):
        return {**super().environment(), "PATH": f"{self.bin}:{os.environ['PATH']}", **self.variables}

    def program(self, name, *command):
        file = self.bin / name
        file.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        file.chmod(0o755)
        return str(file)

    def assert_alone(self, *processes):
        """None of these runs any more."""
        for process in processes:
            with self.assertRaises(ProcessLookupError):
                os.kill(process, 0)


class Profile(Stand):
    """`profile`, with what ncu printed on an H100 and a stand-in that prints it again."""

    def setUp(self):
        super().setUp()
        self.out, self.started = self.folder / "metrics.json", self.folder / "started"

    def ncu(self, **settings):
        self.program("ncu", sys.executable, str(HERE / "fake_ncu.py"),
                     json.dumps({"started": str(self.started), **settings}))

    def profile(self, *more):
        return ["profile", "alexnet_conv1", "-o", str(self.out), *more]

    def test_the_metrics(self):
        self.ncu(plan="direct_stem_sm90 rows=1", table=str(SAMPLES / "ncu_direct_stem_sm90.csv"))
        result = self.ok(*self.profile("--algorithm", "direct_stem_sm90", "--config", "rows=1", "--device", "cuda"))
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr, "direct_stem_sm90 rows=1\n")
        _, *command = json.loads(self.started.read_text())
        self.assertEqual(command[1:], ["--device", "cuda:0", "--algorithm", "direct_stem_sm90", "--config", "rows=1"])
        self.assertTrue(command[0].startswith("mb256ic3ih224"), command)
        kernels = json.loads(self.out.read_text())
        self.assertEqual(list(kernels), ["direct_stem_sm90"])
        self.assertEqual(list(kernels["direct_stem_sm90"])[:5],
                         list(json.loads(Path(METRICS).read_text())["conv_kernel"]))
        report = self.ok("analyze", str(self.out), "--target", "h100", "--problem", "alexnet_conv1").stdout
        self.assertIn("of the roofline", report)
        self.assertIn("registers allow", report)
        self.assertEqual(self.ok("profile", "alexnet_conv1").stdout, self.out.read_text())

    def test_where_sigchld_is_ignored(self):
        """As some that start programs leave it: then how a child ended would never be told."""
        self.ncu(plan="direct_stem_sm90 rows=1", table=str(SAMPLES / "ncu_direct_stem_sm90.csv"))
        done = subprocess.run([self.convtune, *self.profile()], env=self.environment(), timeout=60,
                              capture_output=True, check=False,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(done.returncode, 0)
        self.assertTrue(self.out.exists())

    def test_the_vendors_longest_kernel(self):
        self.ncu(plan="cudnn engine=1", table=str(SAMPLES / "ncu_cudnn.csv"))
        result = self.ok(*self.profile())
        self.assertIn("cudnn has no kernel of its own name: of ", result.stderr)
        self.ok("analyze", str(self.out), "--target", "h100")

    def test_refusals(self):
        """The device is asked for only where something else went wrong: that there is none is the better answer."""
        gpu = "cuda" in self.ok("devices").stdout
        table = str(SAMPLES / "ncu_direct_stem_sm90.csv")
        for settings, needles in [
            ({"says": "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU",
              "plan": "direct_stem_sm90", "exit": 1}, ["NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN"]),
            ({"says": "==ERROR== Failed to prepare", "exit": 9}, ["ncu: Failed to prepare"]),
            ({"exit": 9}, ["ended with exit code 9"]),
            ({"plan": "direct_stem_sm90", "table": METRICS}, ["ended with exit code 0"]),
            ({"complains": "convtune: error: as the child says", "exit": 2}, ["as the child says"]),
            ({"run": 1}, []),
            ({"plan": "x", "says": '"ID","Kernel Name"\n"","","%"'}, ["2"]),
            ({"table": table}, ["ncu"]),  # nobody says what was launched
        ]:
            self.ncu(**settings)
            result = self.refused(self.profile(), 2 if gpu else 3)
            for needle in needles if gpu else ["there is no device cuda:0"]:
                self.assertIn(needle, result.stderr)
            self.assertFalse(self.out.exists())
        self.refused(["profile"], 2, "no problem given")
        self.refused(["profile", "alexnet_conv1", "vgg_conv1_1"], 2, "2 problems")
        self.refused(self.profile("--device", "cpu"), 2, "--device cpu", "GPUs alone")
        self.refused(self.profile("--config", "rows=1"), 2, "--algorithm")
        self.refused(["profile", "alexnet_conv1", "-o", str(self.folder / "no" / "m.json")], 2, "m.json")

    def test_without_ncu(self):
        self.variables = {"PATH": "/nowhere", "CUDA_HOME": "/nowhere", "CUDA_PATH": "/nowhere"}
        if not os.path.exists("/usr/local/cuda/bin/ncu"):
            result = self.run_command(*self.profile())
            self.assertIn(result.returncode, (2, 3), result.stderr)
            self.assertIn("ncu" if result.returncode == 2 else "there is no device cuda:0", result.stderr)

    def test_interrupted(self):
        self.ncu(sleep=1000)
        self.out.write_text("before\n")
        code, stderr = self.interrupt_when(self.started.exists, *self.profile())
        self.assertEqual((code, "nothing is written" in stderr), (130, True), stderr)
        self.assertEqual(self.out.read_text(), "before\n")
        time.sleep(0.1)
        self.assert_alone(json.loads(self.started.read_text())[0])

    def test_help_hides_what_ncu_starts(self):
        self.assertNotIn("launch-for-profiler", self.ok("--help").stdout)


class Measure(Stand):
    """`refine --measure` of the sample's last config, num_stages=3; 4 and 2 are its neighbours."""

    def setUp(self):
        super().setUp()
        self.out, self.starts, self.metrics = self.folder / "out.py", self.folder / "starts", self.folder / "m.json"
        self.metrics.write_text(json.dumps({"conv_kernel": {
            "launch__grid_size": 24200, "sm__warps_active.avg.pct_of_peak_sustained_active": 80}}))

    def args(self, modes, *more):
        python = self.program("python3", sys.executable, str(HERE / "fake_python.py"),
                              json.dumps({**modes, "starts": str(self.starts)}))
        return ["refine", CONV, "--metrics", str(self.metrics), "--target", "rtx4090", "--original", "BLOCK_K=16",
                "--measure", "--no-import", "--no-compile", "--python", python, "-o", str(self.out), *more]

    def started(self):
        return [tuple(map(int, line.split())) for line in self.starts.read_text().splitlines()]

    def stages(self):
        """The list of the file that was written."""
        for node in ast.walk(ast.parse(self.out.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "configs":
                return [{k.arg: k.value.value for k in config.keywords}["num_stages"] for config in node.value.elts]
        return None

    def reverted(self, report):
        self.assertIn("\nreverted: the list is written as it was\n", report)
        self.assertEqual(self.out.read_text(), Path(CONV).read_text())

    def test_a_neighbour_that_is_faster(self):
        report = self.ok(*self.args({"4": {"us": 900}})).stdout
        self.assertIn("R6: num_warps=4 num_stages=4 (one stage more) against the original: takes 10.", report)
        self.assertIn("a second contest agrees", report)
        self.assertIn("the same bit for bit", report)
        self.assertIn("on Fake GPU, PyTorch 2, Triton 3\n", report)
        self.assertEqual(self.stages(), [3, 4, 2])
        self.assertIn("# one stage more, measured faster than the original\n", self.out.read_text())
        for rule in range(1, 7):
            self.assertEqual(report.count(f"\nR{rule}: "), 1)
        # Triton's choice; all three; the original and its best neighbour, afresh for each contest.
        self.assertEqual([stage for _, _, stage in self.started()][:1], [0])
        self.assertEqual(sorted(stage for _, _, stage in self.started()), [0, 2, 3, 3, 3, 4, 4, 4])
        self.assertEqual({config for _, config, _ in self.started()}, {0, 8})
        self.assert_alone(*(process for process, _, _ in self.started()))

    def test_slower_or_equal_or_too_little(self):
        for us in (1100, 1000, 985):
            report = self.ok(*self.args({"4": {"us": us}, "2": {"us": 1200}})).stdout
            self.assertIn("R6: num_warps=4 num_stages=4 (one stage more) against the original: gain ", report)
            self.assertIn("the incumbent stays", report)
            self.reverted(report)
        report = self.ok(*self.args({"4": {"us": 985}, "2": {"us": 1200}}, "--min-gain", "1%")).stdout
        self.assertRegex(report, r"takes 1\.[456] % less time")
        self.assertEqual(self.stages(), [3, 4, 2])

    def test_an_old_list_with_another_winner_here(self):
        winner = "BLOCK_M=32 BLOCK_N=64 BLOCK_K=32 num_warps=4 num_stages=2"
        for us, written in [(700, [1, 2, 1, 2, 1, 2, 1, 2, 3]), (890, [1, 2, 1, 2, 1, 2, 1, 2, 3]), (950, [3, 4, 2])]:
            report = self.ok(*self.args({"picked": 5, "4": {"us": 900}, "the 32x64 tile": {"us": us}})).stdout
            self.assertIn(f"on this GPU the old list's winner is line 21, {winner}, and not what was profiled", report)
            self.assertEqual(self.stages(), written, report)
        self.assertIn(f"; against the old list's winner here, {winner}: takes 5.", report)
        report = self.ok(*self.args({"picked": 5, "4": {"us": 900}, "the 32x64 tile": {"crash": 1}})).stdout
        self.assertIn("FAILED: its process ended", report)
        self.assertEqual(self.stages(), [3, 4, 2])
        report = self.ok(*self.args({"picking": {"crash": 1}, "4": {"us": 900}})).stdout
        self.assertIn("the old list's winner on this GPU is not known: its process ended with exit code 1", report)
        self.assertEqual(self.stages(), [3, 4, 2])
        report = self.ok(*self.args({"picked": 9})).stdout
        self.assertIn("is not known: it picked config 9 of 9", report)
        report = self.ok(*self.args({"picked": 8, "4": {"us": 900}})).stdout
        self.assertNotIn("the old list's winner", report)
        self.assertEqual(self.stages(), [3, 4, 2])

    def test_times_that_scatter(self):
        report = self.ok(*self.args({"4": {"us": 700, "noise": 0.06}})).stdout
        self.assertIn("not stable", report)
        self.reverted(report)

    def test_a_run_that_is_too_slow(self):
        report = self.ok(*self.args({"3": {"us": 400_000}})).stdout
        self.assertIn("R6: not measured: 40 runs of 400 ms", report)
        self.reverted(report)

    def test_wrong_outputs(self):
        for mode, needle in [({"wrong": 5}, "an output is 2.25 and the original's 1.25"),
                             ({"infinite": 1}, "no finite number")]:
            report = self.ok(*self.args({"4": {"us": 500, **mode}})).stdout
            self.assertIn("FAILED: " + ("its output holds" if "infinite" in mode else needle), report)
            self.assertIn("R6: 2 of 3 configs ran and were right", report)
            self.reverted(report)
        report = self.ok(*self.args({"4": {"us": 900, "bits": 8}})).stdout
        self.assertIn("the same but for rounding", report)
        self.assertEqual(self.stages(), [3, 4, 2])

    def test_a_neighbour_that_fails(self):
        for mode, needle in [({"crash": 1}, "ended with exit code 1: 'RuntimeError: out of shared memory'"),
                             ({"dies_after": 30}, "was ended by signal 6"),
                             ({"garbage": "no JSON"}, "it answered 'no JSON'"),
                             ({"garbage": '{"time_us": -3}'}, "'time_us' is -3"),
                             ({"garbage": '{"time": 3}'}, "no fit 'time_us'")]:
            report = self.ok(*self.args({"4": mode})).stdout
            self.assertIn(needle, report)
            self.assertIn("R6: 2 of 3 configs ran and were right, fewer than 3", report)
            self.reverted(report)
        report = self.ok(*self.args({"4": {"silent": 1}}, "--timeout", "5")).stdout
        self.assertIn("it gave no answer within 5 s", report)
        self.assert_alone(*(process for process, _, _ in self.started()))

    def test_what_stops_it(self):
        for modes, code, needles in [
            ({"3": {"refused": "device"}}, 3, ["nothing was measured", "as the test asked"]),
            ({"3": {"refused": "modules"}}, 2, ["nothing was measured"]),
            ({"3": {"refused": "file"}}, 2, ["conv.py: nothing was measured"]),
            ({"3": {"crash": 1}}, 2, ["the original config fails", "out of shared memory"]),
            ({"3": {"infinite": 1}}, 2, ["the original config fails", "finite"]),
            ({"3": {"dies_after": 3}}, 2, ["the original config fails", "signal 6"]),
        ]:
            self.refused(self.args(modes), code, *needles)
            self.assertFalse(self.out.exists())
            self.assert_alone(*(process for process, _, _ in self.started()))
        args = self.args({})
        args[args.index("--python") + 1] = "no_such_python"
        self.refused(args, 2, "no_such_python", "--python")
        args[args.index("--python") + 1] = str(self.folder)
        self.refused(args, 2, "cannot be started")
        self.refused(self.args({}, "--min-gain", "0.5%"), 2, "--min-gain")
        args = [word for word in self.args({}) if word != "--measure"]
        self.refused([*args, "--min-gain", "3%"], 2, "--min-gain", "--measure")
        self.refused([*args, "--call", "f()"], 2, "--call", "--measure")

    def test_this_python_has_no_pytorch_or_no_gpu(self):
        args = self.args({})
        args[args.index("--python") + 1] = sys.executable
        result = self.run_command(*args)
        if result.returncode != 0:
            self.assertIn("nothing was measured", result.stderr)
            self.assertIn(result.returncode, (2, 3), result.stderr)

    def test_interrupted(self):
        self.out.write_text("before\n")
        for modes in ({"3": {"silent": 1}}, {"3": {"sleep": 0.05}}):
            code, stderr = self.interrupt_when(
                lambda: self.starts.exists() and len(self.started()) >= 2 and not time.sleep(0.3), *self.args(modes))
            self.assertEqual((code, "nothing is written" in stderr), (130, True), stderr)
            self.assertEqual(self.out.read_text(), "before\n")
            self.assert_alone(*(process for process, _, _ in self.started()))
            self.starts.unlink()
        self.assertEqual(sorted(os.listdir(self.folder)), ["bin", "m.json", "out.py"])

    def test_any_call_and_all_its_outputs(self):
        report = self.ok(*self.args({"call": "f(1)", "4": {"us": 900}}, "--call", "f(1)")).stdout
        self.assertIn("the new list is written", report)
        report = self.ok(*self.args({"4": {"us": 900, "outputs": 1}})).stdout
        self.assertIn("FAILED: it has 1 outputs and the original 2", report)
        # A list that is not known runs as the file that it stood in, and has to be beaten as well.
        for us, written in [(850, [1, 2, 1, 2, 1, 2, 1, 2, 3]), (960, [3, 4, 2])]:
            modes = {"picked": 2, "of": 7, "4": {"us": 900}, "the file as it was": {"us": us}}
            self.assertIn("winner is as Triton says it, and not", self.ok(*self.args(modes)).stdout)
            self.assertEqual(self.stages(), written)


if __name__ == "__main__":
    main()
