"""Drives the real convtune command where it measures: reports, records, faults and Ctrl-C.

Usage: tuning_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import signal
import time
import unittest
from pathlib import Path

from convtune_command import TINY, CliTest, main, no_file_may_grow

LARGER = "mb1ic16ih56oc32kh3ph1"  # its search has seconds of work, one run has microseconds
SLOW = "mb8ic64ih56oc64kh3ph1"  # one run has milliseconds: what measures it can be interrupted
QUICK = ["--budget", "20t", "--min-gain", "99%"]  # which is decided at once, however busy the machine

SCHEMA_TOP = {"schema", "environment", "rows", "geomean_speedup", "wins", "ties", "losses"}
SCHEMA_ROW = {"case", "problem", "device", "roofline", "providers", "best_peer", "speedup", "machine",
              "check"}
SCHEMA_PROVIDER = {"name", "algorithm", "config", "time_us", "mad_us", "n", "roofline_fraction", "max_error"}


class Measuring(CliTest):
    def check_report(self, report, row_keys):
        self.assertEqual(set(report), SCHEMA_TOP)
        self.assertEqual(report["schema"], 1)
        self.assertLessEqual({"device", "threads", "versions", "date"}, set(report["environment"]))
        for row in report["rows"]:
            self.assertEqual(set(row) - {"decision", "incumbent", "verdict"}, row_keys)
            self.assertEqual(set(row["machine"]), {"load", "processors", "busy", "finding"})
            self.assertIn(f"on {row['machine']['processors']} processor", row["machine"]["finding"])
            self.assertEqual(set(row["roofline"]), {"floor_us", "bound", "flops_per_second", "bytes_per_second"})
            self.assertEqual(row["providers"][0]["name"], "convtune")
            for provider in row["providers"]:
                self.assertEqual(set(provider) - {"interrupted"}, SCHEMA_PROVIDER)
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
        for needle in ("first: ", "second: ", "speed-up", "GFLOP/s", "GB/s", "roofline", "decision: "):
            self.assertIn(needle, result.stdout)
        self.assertIn("(±2 %)", result.stdout)
        self.assertEqual(sorted(os.listdir(self.folder)), ["out.csv", "out.json", "suite.txt"])

    def test_bench_json_on_standard_output_moves_the_table(self):
        result = self.ok("bench", TINY, "--seconds", "0.1", "--json", "-")
        self.check_report(json.loads(result.stdout), SCHEMA_ROW)
        self.assertIn("speed-up", result.stderr)

    def test_a_case_that_cannot_be_measured_does_not_stop_the_others(self):
        result = self.run_command("bench", "mb0ic3ih8oc4kh3ph1", TINY, "--seconds", "0.1", "--json", "-")
        self.assertEqual(result.returncode, 2, result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertIn("failure", rows[0])
        self.assertEqual(rows[0]["providers"], [])
        self.assertNotIn("failure", rows[1])
        self.assertEqual(result.stderr.count("convtune: error: "), 1, result.stderr)


class Records(CliTest):
    more_environment = {}

    def environment(self):
        return {**super().environment(), **self.more_environment}

    def test_life_of_a_record(self):
        # Without an incumbent: on a busy machine a contest may stay undecided, and the next `tune` holds it again.
        self.more_environment = {"CONVTUNE_ONEDNN": str(self.folder / "none.so")}
        out = self.folder / "out.json"
        first = self.ok("tune", TINY, *QUICK, "--verbose", "--json", str(out))
        self.assertIn("decision: ", first.stdout)
        tuning = json.loads(out.read_text())["rows"][0]["tuning"]
        self.assertFalse(tuning["from_record"])
        self.assertGreater(tuning["trials"], 0)
        self.assertIn(f"search: {tuning['trials']} of {tuning['candidates']} candidates tried", first.stdout)
        self.assertEqual(tuning["record"], str(self.record_file()))
        self.assertIn(f"Python's convtune.conv2d use it from now on\n  {self.record_file()}\n", first.stdout)
        self.check_last_stage(tuning["last_stage"], first.stdout)

        again = self.ok("tune", TINY, "--json", str(out))
        self.assertIn("from the record of 20", again.stdout)
        self.assertIn("nothing was measured", again.stdout)
        tuning = json.loads(out.read_text())["rows"][0]["tuning"]
        self.assertTrue(tuning["from_record"])
        self.assertEqual(tuning["record"], str(self.record_file()))
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

    def test_a_vendors_library_that_does_not_load_proves_nothing(self):
        broken = self.folder / "libdnnl.so.3"
        broken.write_text("no library")
        self.more_environment = {"CONVTUNE_ONEDNN": str(broken)}
        result = self.ok("tune", TINY, "--device", "cpu", *QUICK)
        self.assertIn("without proof, since oneDNN, which is installed and could not be loaded,", result.stdout)
        record = json.loads(self.record_file().read_text())
        self.assertIn("oneDNN", record["left_out"])
        self.assertIn("without proof", self.ok("plan", TINY, "--device", "cpu").stdout)

        broken.unlink()  # a library that is not there has no part in the promise
        self.ok("tune", TINY, "--device", "cpu", *QUICK)
        self.assertNotIn("left_out", json.loads(self.record_file().read_text()))

    def check_last_stage(self, stage, text):
        """The last stage's verdict, in the file and on the screen: no algorithm of the CPU has a list."""
        self.assertEqual(set(stage) - {"contests"}, {"original", "kept", "changed", "tried", "verdicts"})
        self.assertIn(f"last stage, of {stage['original']}\n", text)
        algorithm = stage["original"].split()[0]
        self.assertEqual(stage["verdicts"], [f"no list: {algorithm} has no parameters that this stage may change"])
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
        out = self.folder / "out.json"
        result = self.run_command("tune", TINY, *QUICK, "--json", str(out))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("convtune: error: the result is not recorded: /proc/convtune", result.stderr)
        self.assertIn("decision: ", result.stdout)
        self.assertIn("/proc/convtune", json.loads(out.read_text())["rows"][0]["tuning"]["not_recorded"])
        self.assertEqual(self.run_command("tune", TINY, *QUICK, "--no-save").returncode, 0)
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
        self.assertIn("convtune: error: the result is not recorded", result.stderr)
        self.assertIn("decision: ", result.stdout)
        self.assertEqual(out.read_text(), "what was there before")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])
        self.assertEqual(list(self.data.rglob("*.json")), [])
        self.assertIn("no records", self.ok("db", "list").stdout)


class Terminal(CliTest):
    def test_a_search_fits_80_columns(self):
        code, text = self.on_terminal(80, "tune", TINY, "--budget", "100t")
        self.assertEqual(code, 0, text)
        drawn, table = text[:text.rindex("\033[K")], text[text.rindex("\033[K"):].splitlines()[1:]
        self.assertNotIn(" left", drawn, "a budget in trials says nothing of time")
        for line in drawn.replace("\033[K", "").split("\r"):
            self.assertLess(len(line), 80, line)
        for line in table:
            if str(self.data) not in line:  # a path is not broken
                self.assertLessEqual(len(line), 80, line)
        self.assertRegex("\n".join(table), r"convtune is \d+\.\d\dx (fast|slow)er|equally fast|convtune runs the fastest"
                                           r"|no peer ran here")
        self.assertEqual(sum(line.startswith("last stage: ") for line in table), 1)
        self.assertNotIn("R1: ", text)

    def test_the_time_left_stands_first(self):
        _, text = self.on_terminal(80, "tune", LARGER, "--budget", "5s", "--no-save")
        self.assertRegex(text, rf"\r\d+ s left, {LARGER}: (vendor|screen) 1/")


class Interrupts(CliTest):
    def trials_kept(self):
        """The best of our own candidates, and with a result: what a search goes on from."""
        return sum(b'"failure":""' in line and b'"onednn' not in line
                   for file in self.data.glob("trials/*") for line in file.read_bytes().splitlines())

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "instrumented ceilings come out so low that nearly all is pruned")
    def test_a_search_goes_on_where_it_was_stopped(self):
        code, stderr = self.interrupt_when(lambda: self.trials_kept() >= 5, "tune", LARGER)
        self.assertEqual(code, 130, stderr)
        self.assertRegex(stderr, r"interrupted: 0 of 1 case done; \d+ trials of .* are kept")
        self.assertIn("convtune: stopping", stderr)
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

    def test_what_a_killed_run_has_measured_stays(self):
        out, csv = self.folder / "out.json", self.folder / "out.csv"
        code, stderr = self.interrupt_when(csv.exists, "bench", TINY, SLOW, "--seconds", "3", "--json", str(out),
                                           "--csv", str(csv), with_signal=signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL, stderr)
        report = json.loads(out.read_text())
        self.assertTrue(report["interrupted"])
        self.assertEqual([row["problem"].split()[0] for row in report["rows"]], [TINY])
        self.assertTrue(report["environment"]["command"].startswith("convtune bench "), report["environment"])
        self.ok("report", str(out), "--html", str(self.folder / "page.html"))
        self.assertIn(TINY, csv.read_text())

    def test_a_measurement_that_is_stopped_claims_nothing(self):
        out = self.folder / "out.json"
        start = time.monotonic()
        code, stderr = self.interrupt_when(lambda: time.monotonic() - start > 1,
                                           "bench", SLOW, "--seconds", "50", "--json", str(out))
        self.assertEqual(code, 130, stderr)
        self.assertIn("interrupted: 0 of 1 case done", stderr)
        self.assertFalse(out.exists())
        self.assertLess(time.monotonic() - start, 20)

    def test_what_a_terminated_run_has_checked_is_told(self):
        """As `timeout` and containers end a process."""
        out, start = self.folder / "out.json", time.monotonic()
        code, stderr = self.interrupt_when(lambda: time.monotonic() - start > 1, "verify", "--random", "20000", "--json",
                                           str(out), with_signal=signal.SIGTERM)
        self.assertEqual(code, 130, stderr)
        self.assertIn("convtune: stopping", stderr)
        self.assertIn("interrupted: the numbers are those of what was checked", stderr)


if __name__ == "__main__":
    main()
