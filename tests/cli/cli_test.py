"""Drives the real convtune command: exit codes, messages, records, faults and Ctrl-C.

Usage: cli_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

CONVTUNE = ""
TINY = "mb1ic3ih8oc4kh3ph1"
LARGER = "mb1ic16ih56oc32kh3ph1"  # its search has seconds of work, one run has microseconds
SLOW = "mb8ic64ih56oc64kh3ph1"  # one run has milliseconds: what measures it can be interrupted
QUICK = ["--budget", "20t"]

SCHEMA_TOP = {"schema", "environment", "rows", "geomean_speedup", "wins", "ties", "losses"}
SCHEMA_ROW = {"case", "problem", "device", "roofline", "providers", "best_peer", "speedup"}
SCHEMA_PROVIDER = {"name", "algorithm", "config", "time_us", "mad_us", "n", "roofline_fraction", "max_error"}


def no_file_may_grow():
    """A full disk, as far as this process can tell."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convtune_cli_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "data"

    def environment(self):
        return {**os.environ, "CONVTUNE_DATA_DIR": str(self.data)}

    def run_command(self, *args, **options):
        return subprocess.run([CONVTUNE, *args], env=self.environment(), text=True, timeout=120,
                              stdin=subprocess.DEVNULL,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def ok(self, *args, **options):
        result = self.run_command(*args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("\033", result.stdout or "", "colour in a pipe")
        return result

    def refused(self, args, code, *needles):
        """One error line that names the thing, nothing on standard output, the exact exit code."""
        result = self.run_command(*args)
        with self.subTest(args=args):
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, "")
            errors = [line for line in result.stderr.splitlines() if line.startswith("convtune: error: ")]
            self.assertEqual(len(errors), 1, result.stderr)
            for needle in needles:
                self.assertIn(needle, result.stderr)
        return result

    def warnings(self, result):
        return [line for line in result.stderr.splitlines() if line.startswith("convtune: warning: ")]

    def record_file(self):
        files = list(self.data.glob("*.json"))
        self.assertEqual(len(files), 1, files)
        return files[0]

    def interrupt_when(self, ready, *args, with_signal=signal.SIGINT):
        """Starts the command, sends the signal once ready() is true, and returns (exit code, stderr)."""
        with subprocess.Popen([CONVTUNE, *args], env=self.environment(), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                deadline = time.monotonic() + 60
                while not ready():
                    self.assertIsNone(process.poll(), "ended before it could be interrupted")
                    self.assertLess(time.monotonic(), deadline, "never got far enough to be interrupted")
                    time.sleep(0.02)
                process.send_signal(with_signal)
                _, stderr = process.communicate(timeout=60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return process.returncode, stderr


class BadInput(CliTest):
    def test_the_command_line(self):
        self.refused([], 2, "no command", "--help")
        self.refused(["tuna"], 2, "tuna")
        self.refused(["--frobnicate"], 2, "--help")
        self.refused(["tune", TINY, "--frobnicate"], 2, "--frobnicate", "convtune tune --help")
        self.refused(["db"], 2, "convtune db --help")
        self.refused(["db", "frobnicate"], 2)
        self.refused(["db", "show"], 2, "PROBLEM")
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command], 2, "no problem given")

    def test_problems(self):
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command, "mb1ic3ih8oc4kh3zz9"], 2, "zz9")
        for line, needle in [
            ("", "problem"),
            ("mb1ic3ih8oc4", "kh"),  # a field is missing
            ("mb1ic3ihoc4kh3", "ih"),  # a number is missing
            ("mb1ic3ih8oc4kh9", "9"),  # the filter does not fit
            ("mb1ic3ih8oh99oc4kh3", "99"),  # the output size is wrong
            ("g2mb1ic3ih8oc4kh3", "group"),
            ("mb1ic3ih8oc4kh3sh0", "0"),
            ("mb1ic99999999999999999999ih8oc4kh3", "99999999999999999999"),
            ("mb1000000000000ic1000000ih1000000oc4kh3", "bytes"),
            ("alexnet_conv11", "alexnet_conv1"),
        ]:
            self.refused(["plan", line], 2, needle)
        self.refused(["plan", TINY, "act=sigmoid"], 2, "sigmoid", "relu")
        self.refused(["plan", TINY, "precision=fp8"], 2, "fp8", "tf32")
        self.refused(["plan", "act=relu"], 2, "act=relu")
        self.refused(["plan", "alexnet_conv1", "--batch", "-1"], 2, "--batch", "-1")
        self.refused(["plan", "alexnet_conv1", "--batch", "many"], 2, "many")
        self.refused(["plan", "alexnet_conv1", "--batch", str(10**18)], 2, str(10**18), "too large")

    def test_suites(self):
        self.refused(["bench", "--suite", "steam"], 2, "steam", "stem")
        self.refused(["cases", "steam"], 2, "steam")
        self.refused(["bench", "--suite", str(self.folder)], 2, str(self.folder))
        bad = self.folder / "bad.txt"
        bad.write_text(f"# fine\n{TINY}\nmb1ic3nonsense\n")
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt:3", "nonsense")
        bad.write_bytes(bytes(range(256)) * 16)
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")
        bad.write_text("# nothing\n")
        self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")
        if os.geteuid() != 0:
            bad.chmod(0)
            self.refused(["bench", "--suite", str(bad)], 2, "bad.txt")

    def test_devices(self):
        self.refused(["plan", TINY, "--device", "tpu"], 2, "tpu")
        for command in ("tune", "bench", "verify", "plan"):
            self.refused([command, TINY, "--device", "cuda:97"], 3, "cuda:97", "cpu")
        for threads in ("0", "-3", "two", "1000000"):
            self.refused(["plan", TINY, "--threads", threads], 2, threads)

    def test_algorithms_and_configs(self):
        for command in ("plan", "verify"):
            self.refused([command, TINY, "--algorithm", "winograd9"], 2, "winograd9", "direct")
            self.refused([command, TINY, "--config", "a=1"], 2, "--algorithm")
            self.refused([command, TINY, "--algorithm", "direct", "--config", "nonsense"], 2, "nonsense")
            self.refused([command, TINY, "--algorithm", "direct", "--config", "a=1 b=2"], 2, "a=1")

    def test_numbers(self):
        for budget in ("60", "-1s", "0t", "fast", "1.5t"):
            self.refused(["tune", TINY, "--budget", budget], 2, budget)
        for gain in ("2", "-1%", "much"):
            self.refused(["tune", TINY, "--min-gain", gain], 2, gain)
        for seconds in ("0", "-1", "nan", "long"):
            self.refused(["bench", TINY, "--seconds", seconds], 2, "seconds")
        for count in ("0", "-1", "many", "5x", "99999999999999999999"):
            self.refused(["verify", "--random", count], 2, "--random")
        for seed in ("-1", "99999999999999999999"):
            self.refused(["verify", "--random", "5", "--seed", seed], 2, "--seed", seed)
        self.refused(["verify", "--random", "5", TINY], 2, "--random")
        self.refused(["verify", "--random", "5", "--batch", "3"], 2, "--batch")

    def test_output_paths_are_tried_before_anything_is_measured(self):
        missing = str(self.folder / "none" / "out.json")
        for option in ("--json", "--csv"):
            for command in ("tune", "bench"):
                self.refused([command, TINY, option, missing], 2, missing)
                self.refused([command, TINY, option, str(self.folder)], 2, str(self.folder))
        self.refused(["bench", TINY, "--json", "-", "--csv", "-"], 2, "--json", "--csv")
        self.assertFalse(self.data.exists())


class Information(CliTest):
    def test_help_of_everything(self):
        commands = ["tune", "bench", "verify", "plan", "cases", "db", "devices", "doctor"]
        text = self.ok("--help").stdout
        for command in commands:
            self.assertIn(command, text)
            help_text = self.ok(command, "--help").stdout
            self.assertIn(f"convtune {command}", help_text)
            self.assertIn("Example", help_text)
        for command in ("list", "show", "export", "import", "clean"):
            self.assertIn("Usage", self.ok("db", command, "--help").stdout)
        self.assertRegex(self.ok("--version").stdout, r"^convtune \d+\.\d+\.\d+\n$")

    def test_the_examples_of_the_help_are_understood(self):
        """Every example is parsed; what it would measure is left out by a device that is not there."""
        for command in ("tune", "bench", "plan"):
            examples = [line.split("#")[0].split(">")[0].split() for line in
                        self.ok(command, "--help").stdout.splitlines() if line.startswith("  convtune ")]
            self.assertGreaterEqual(len(examples), 2)
            for example in examples:
                if "--target" in example:
                    continue  # for a GPU that need not be here; it asks for NVRTC and takes no device
                result = self.run_command(*example[1:], "--device", "cuda:97", cwd=self.folder)
                self.assertEqual(result.returncode, 3, f"{example}: {result.stderr}")

    def test_cases(self):
        text = self.ok("cases").stdout
        for name in ("alexnet_conv1", "resnet_3x3_64", "mobilenet_dw_3x3_144"):
            self.assertIn(name, text)
        stem = self.ok("cases", "stem").stdout
        self.assertIn("alexnet_conv1", stem)
        self.assertNotIn("resnet_3x3_64", stem)

    def test_devices_and_doctor(self):
        self.assertIn("cpu", self.ok("devices").stdout)
        devices = json.loads(self.ok("devices", "--json", "-").stdout)
        self.assertEqual(devices["devices"][-1]["device"], "cpu")
        self.assertGreaterEqual(devices["devices"][-1]["units"], 1)
        doctor = self.ok("doctor").stdout
        self.assertIn("oneDNN", doctor)
        self.assertIn(str(self.data), doctor)
        self.assertFalse(self.data.exists(), "looking made a folder")

    def test_plan(self):
        text = self.ok("plan", TINY, "act=relu").stdout
        for needle in ("direct", "reference", "chosen", "act=relu"):
            self.assertIn(needle, text)
        self.assertIn("mb10ic3", self.ok("plan", "alexnet_conv1", "--batch", "010").stdout)
        forced = self.ok("plan", TINY, "--algorithm", "reference").stdout
        self.assertIn("forced", forced)
        self.assertEqual(self.ok("plan", TINY + " act=relu").stdout, text)

    def test_a_full_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = self.run_command("cases", stdout=full)
        self.assertEqual(result.returncode, 2)
        self.assertIn("standard output", result.stderr)


class Verify(CliTest):
    def test_random_sweep(self):
        result = self.ok("verify", "--random", "200", "--seed", "1")
        self.assertRegex(result.stdout, r"^200 problems, \d+ checks, 0 mismatches\n$")

    def test_one_problem_and_one_algorithm(self):
        every = self.ok("verify", TINY).stdout
        self.assertRegex(every, r"^1 problem, \d+ checks, 0 mismatches\n$")
        one = self.ok("verify", TINY, "--algorithm", "reference").stdout
        self.assertLess(int(one.split()[2]), int(every.split()[2]))


class Measuring(CliTest):
    def check_report(self, report, row_keys):
        self.assertEqual(set(report), SCHEMA_TOP)
        self.assertEqual(report["schema"], 1)
        self.assertLessEqual({"device", "threads", "versions", "date"}, set(report["environment"]))
        for row in report["rows"]:
            self.assertEqual(set(row) - {"decision"}, row_keys)
            self.assertEqual(set(row["roofline"]), {"floor_us", "bound"})
            self.assertEqual(row["providers"][0]["name"], "convtune")
            for provider in row["providers"]:
                self.assertEqual(set(provider), SCHEMA_PROVIDER)
                self.assertGreater(provider["time_us"], 0)

    def test_bench(self):
        suite = self.folder / "suite.txt"
        suite.write_text(f'{TINY}n"first"\n{LARGER}n"second" act=relu  # two\n')
        out, csv = self.folder / "out.json", self.folder / "out.csv"
        result = self.ok("bench", "--suite", str(suite), "--seconds", "0.2", "--threads", "1",
                         "--json", str(out), "--csv", str(csv))
        report = json.loads(out.read_text())
        self.check_report(report, SCHEMA_ROW)
        self.assertEqual([row["case"] for row in report["rows"]], ["first", "second"])
        self.assertEqual(report["environment"]["threads"], 1)
        compared = sum(row["speedup"] is not None for row in report["rows"])
        self.assertEqual(report["wins"] + report["ties"] + report["losses"], compared)
        lines = csv.read_text().splitlines()
        self.assertEqual(len(lines), 1 + sum(len(row["providers"]) for row in report["rows"]))
        for needle in ("first: ", "second: ", "vs best peer", "GFLOP/s", "GB/s", "roofline", "decision: "):
            self.assertIn(needle, result.stdout)
        self.assertIn("(±2 %)", result.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), ["out.csv", "out.json", "suite.txt"])

    def test_bench_json_on_standard_output_moves_the_table(self):
        result = self.ok("bench", TINY, "--seconds", "0.1", "--json", "-")
        self.check_report(json.loads(result.stdout), SCHEMA_ROW)
        self.assertIn("vs best peer", result.stderr)

    def test_a_case_that_cannot_be_measured_does_not_stop_the_others(self):
        result = self.run_command("bench", "mb0ic3ih8oc4kh3ph1", TINY, "--seconds", "0.1", "--json", "-")
        self.assertEqual(result.returncode, 2, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertIn("failure", rows[0])
        self.assertEqual(rows[0]["providers"], [])
        self.assertNotIn("failure", rows[1])
        self.assertEqual(result.stderr.count("convtune: error: "), 1, result.stderr)


class Records(CliTest):
    def test_life_of_a_record(self):
        out = self.folder / "out.json"
        first = self.ok("tune", TINY, *QUICK, "--json", str(out))
        self.assertIn("decision: ", first.stdout)
        tuning = json.loads(out.read_text())["rows"][0]["tuning"]
        self.assertFalse(tuning["from_record"])
        self.assertGreater(tuning["trials"], 0)
        self.check_last_stage(tuning["last_stage"], first.stdout)

        start = time.monotonic()
        again = self.ok("tune", TINY, "--json", str(out))
        self.assertLess(time.monotonic() - start, 1)
        self.assertIn("from the record of 20", again.stdout)
        self.assertIn("nothing was measured", again.stdout)
        tuning = json.loads(out.read_text())["rows"][0]["tuning"]
        self.assertTrue(tuning["from_record"])
        self.assertIsNone(tuning["last_stage"], "a recorded search has it behind it")
        self.assertNotIn("last stage", again.stdout)
        self.assertIn("tuned", self.ok("plan", TINY).stdout)

        self.assertIn(TINY, self.ok("db", "list").stdout)
        shown = self.ok("db", "show", TINY).stdout
        self.assertIn(str(self.record_file()), shown)
        self.refused(["db", "show", "mb1ic1ih9oc1kh3"], 2, "no record", "mb1ic1ih9oc1kh3")

        pack = self.folder / "pack.jsonl"
        self.ok("db", "export", str(pack))
        self.assertEqual(self.ok("db", "export", "-").stdout, pack.read_text())
        self.assertEqual(len(pack.read_text().splitlines()), 1)
        self.refused(["db", "export", str(self.folder / "none" / "x")], 2, "none")

        self.refused(["db", "clean"], 2, "1 record in", "--yes")
        self.record_file()  # still there
        self.assertIn("1 record deleted", self.ok("db", "clean", "--yes").stdout)
        self.assertEqual(list(self.data.glob("*.json")), [])
        self.assertIn("no records", self.ok("db", "list").stdout)

        self.assertIn("1 imported", self.ok("db", "import", str(pack)).stdout)
        self.assertIn("1 kept", self.ok("db", "import", str(pack)).stdout)
        self.assertEqual(self.ok("db", "show", TINY).stdout, shown)

        pack.write_text("garbage\n" + pack.read_text() + '{"schema":')
        mixed = self.run_command("db", "import", str(pack))
        self.assertEqual(mixed.returncode, 2)
        self.assertIn("2 rejected", mixed.stdout)
        self.assertIn(f"{pack}:1: ", mixed.stderr)
        self.assertIn(f"{pack}:3: ", mixed.stderr)
        self.assertEqual(self.ok("db", "show", TINY).stdout, shown)
        self.refused(["db", "import", str(self.folder / "none")], 2, "none")

        self.damaged_records()

    def check_last_stage(self, stage, text):
        """Every rule's verdict, in the file and on the screen."""
        self.assertEqual(set(stage), {"original", "kept", "changed", "tried", "verdicts"})
        self.assertIn(f"last stage, of {stage['original']}\n", text)
        self.assertEqual([verdict[:4] for verdict in stage["verdicts"]],
                         ["R1: ", "R2: ", "R3: ", "R4: ", "R5: ", "R6: "])
        for verdict in stage["verdicts"]:
            self.assertIn(f"  {verdict}\n", text)
        self.assertEqual(stage["changed"], stage["kept"] != stage["original"])
        for one in stage["tried"]:
            self.assertEqual(set(one), {"config", "reason", "time_us"})
            self.assertIn(one["reason"], text)

    def damaged_records(self):
        """Garbage and truncation: one warning that names the file, and everything goes on."""
        file = self.record_file()
        whole = file.read_bytes()
        for damage in (b"garbage", b"", whole[: len(whole) // 2], bytes(range(256)), b"[" * 100000):
            file.write_bytes(damage)
            for args in (["db", "list"], ["plan", TINY]):
                result = self.ok(*args)
                self.assertEqual(len(self.warnings(result)), 1, result.stderr)
                self.assertIn(file.name, result.stderr)
        result = self.ok("tune", TINY, *QUICK)
        self.assertEqual(len(self.warnings(result)), 1, result.stderr)
        self.assertNotIn("from the record", result.stdout)
        # Mended by the new record.
        self.assertIn("from the record", self.ok("tune", TINY).stdout)

    def test_a_home_that_cannot_be_written(self):
        self.data = Path("/proc/convtune")
        result = self.ok("tune", TINY, *QUICK)
        self.assertIn("decision: ", result.stdout)
        told = self.warnings(result)
        self.assertEqual(len(told), len(set(told)), result.stderr)
        self.assertLessEqual(1, len(told), result.stderr)
        for warning in told:
            self.assertIn("/proc/convtune", warning)

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "ThreadSanitizer writes a file of its own at start and dies of the limit")
    def test_a_full_disk(self):
        out = self.folder / "out.json"
        out.write_text("what was there before")
        result = self.run_command("tune", TINY, *QUICK, "--json", str(out), preexec_fn=no_file_may_grow)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"convtune: error: cannot write '{out}'", result.stderr)
        self.assertGreaterEqual(len(self.warnings(result)), 1)  # the record was not kept either
        self.assertIn("decision: ", result.stdout)
        self.assertEqual(out.read_text(), "what was there before")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])
        self.assertEqual(list(self.data.rglob("*.json")), [])
        self.assertIn("no records", self.ok("db", "list").stdout)


class Interrupts(CliTest):
    def trials_kept(self):
        """Of our own candidates, and with a result: what a search goes on from."""
        return sum(b'"failure":""' in line and b'"direct' in line
                   for file in self.data.glob("trials/*") for line in file.read_bytes().splitlines())

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "instrumented ceilings come out so low that nearly all is pruned")
    def test_a_search_goes_on_where_it_was_stopped(self):
        code, stderr = self.interrupt_when(lambda: self.trials_kept() >= 5, "tune", LARGER)
        self.assertEqual(code, 130, stderr)
        self.assertRegex(stderr, r"interrupted: 0 of 1 case done; \d+ trials of .* are kept")
        self.assertEqual(list(self.data.glob("*.json")), [])
        kept = self.trials_kept()
        self.assertGreaterEqual(kept, 5)
        report = json.loads(self.ok("tune", LARGER, "--budget", "3t", "--json", "-").stdout)
        tuning = report["rows"][0]["tuning"]
        self.assertGreater(tuning["resumed"], 0)
        self.assertLessEqual(tuning["trials"], 3)

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "instrumented ceilings come out so low that nearly all is pruned")
    def test_a_search_goes_on_where_it_was_killed(self):
        code, stderr = self.interrupt_when(lambda: self.trials_kept() >= 5, "tune", LARGER, with_signal=signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL, stderr)
        kept = self.trials_kept()
        report = json.loads(self.ok("tune", LARGER, "--budget", "3t", "--json", "-").stdout)
        tuning = report["rows"][0]["tuning"]
        self.assertGreater(tuning["resumed"], 0)
        self.assertLessEqual(tuning["resumed"], kept)
        self.assertEqual(tuning["wrong"], 0)

    def test_a_measurement_that_is_stopped_claims_nothing(self):
        out = self.folder / "out.json"
        start = time.monotonic()
        code, stderr = self.interrupt_when(lambda: time.monotonic() - start > 1,
                                           "bench", SLOW, "--seconds", "50", "--json", str(out))
        self.assertEqual(code, 130, stderr)
        self.assertIn("interrupted: 0 of 1 case done", stderr)
        self.assertFalse(out.exists())
        self.assertLess(time.monotonic() - start, 20)


if __name__ == "__main__":
    CONVTUNE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
