"""Drives `convtune tune --devices`: processes that are killed and interrupted, and packs made of lists by scripts/make_pack.

Usage: fleet_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
import unittest
from pathlib import Path

from convtune_command import CliTest, main

QUICK = ["--threads", "1", "--budget", "5t", "--min-gain", "99%"]
TWO = ["--devices", "cpu,cpu"]


def children(process):
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


class Fleets(CliTest):
    def setUp(self):
        super().setUp()
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two processes need two processors")

    def suite(self, count, images=8):
        path = self.folder / f"{count}.txt"
        lines = [f'mb1ic{2 + i % 3}ih{images + i}oc4kh3n"case {i}"' for i in range(count)]
        path.write_text("\n".join([*lines, lines[0].replace("case 0", "again")]) + "\n")
        return str(path)

    def environment(self):
        return {**super().environment(), "TMPDIR": str(self.folder)}

    def records(self):
        lines = self.ok("db", "export", "-").stdout.splitlines()
        return sorted(json.loads(line)["problem"] for line in lines)

    def assert_tidy(self):
        self.assertEqual(list(self.folder.glob("convtune-fleet-*")), [])

    def test_two_processes(self):
        out = self.folder / "out.json"
        result = self.ok("tune", "--suite", self.suite(4), *TWO, *QUICK, "--json", str(out))
        rows = json.loads(out.read_text())["rows"]
        self.assertEqual([row["case"] for row in rows], ["case 0", "case 1", "case 2", "case 3", "again"])
        self.assertEqual([row["tuning"]["from_record"] for row in rows], [False] * 5)
        self.assertTrue(all(row["tuning"]["last_stage"] for row in rows), "the whole of their reports comes back")
        self.assertEqual(rows[0]["providers"], rows[4]["providers"], "an equal problem is searched once")
        has_peers = any(len(row["providers"]) > 1 for row in rows)  # none without a vendor's library
        self.assertIn("5 cases" if has_peers else "no case has a peer to compare with", result.stdout)
        self.assertEqual(len(self.records()), 4)
        self.ok("tune", "--suite", self.suite(4), "--devices", "all", *QUICK, "--json", str(out))
        self.assertEqual([row["tuning"]["from_record"] for row in json.loads(out.read_text())["rows"]], [True] * 5)
        self.assert_tidy()

    def killing(self, kills, *args):
        """The result where processes of the fleet are killed, at random moments, `kills` times."""
        killed = []
        with subprocess.Popen([self.convtune, *args], env=self.environment(), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:

            def kill():
                while process.poll() is None and len(killed) < kills:
                    time.sleep(random.uniform(0, 0.2))
                    for one in random.sample(found := children(process.pid), len(found))[:1]:
                        if one not in killed:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(one, signal.SIGKILL)
                                killed.append(one)

            thread = threading.Thread(target=kill)
            thread.start()
            stdout, stderr = process.communicate(timeout=120)
            thread.join()
        self.assertEqual(len(killed), kills)
        return process.returncode, stdout, stderr

    def test_a_process_that_is_killed(self):
        suite = self.suite(12, 10)
        code, _, stderr = self.killing(2, "tune", "--suite", suite, *TWO, *QUICK)
        self.assertEqual(code, 0, stderr)
        fleet = self.records()
        self.assertEqual(len(fleet), 12)
        self.data = self.folder / "one"
        self.ok("tune", "--suite", suite, "--device", "cpu", *QUICK)
        self.assertEqual(self.records(), fleet, "one process of one machine has the same")
        self.assert_tidy()

    def test_what_ends_its_process_each_time_is_given_up(self):
        large = "mb8ic64ih56oc64kh3ph1"
        code, stdout, stderr = self.killing(3, "tune", large, "--devices", "cpu", "--threads", "1", "--budget", "100s")
        self.assertEqual(code, 4, stderr)
        self.assertEqual(stdout, "")
        self.assertIn("its process on cpu was ended by signal 9, the last of 3", stderr)
        self.assertEqual(self.records(), [])

    def test_an_interrupt_is_handed_on(self):
        begun = self.data / "trials"
        suite = self.folder / "large.txt"
        suite.write_text("mb8ic64ih56oc64kh3ph1\nmb8ic64ih56oc32kh3ph1\nmb8ic64ih56oc16kh3ph1\n")
        code, stderr = self.interrupt_when(lambda: begun.is_dir() and len(list(begun.iterdir())) >= 2, "tune", "--suite",
                                           str(suite), *TWO, "--threads", "1", "--budget", "100s")
        self.assertEqual(code, 130, stderr)
        self.assertIn("0 of 3 cases done; what was found and tried is kept", stderr)
        self.assertEqual(stderr.count("stopping"), 1, stderr)
        self.assert_tidy()

    def test_what_is_wrong_is_refused(self):
        suite = self.suite(1)
        for words, code, needle in [
            (["--devices", "cpu,cpu", "--threads", "1000"], 2, "2 times 1000 threads"), (["--devices", ""], 2, "no name"),
            (["--devices", "gpu"], 2, "gpu"), (["--devices", "cuda:77"], 3, "no device cuda:77"),
            (["--devices", "all", "--device", "cpu"], 2, "--device"), (["--devices", "all", "--no-save"], 2, "--no-save"),
            (["--devices", "all", "--budget", "1"], 2, "--budget"), (["--devices", "cpu,"], 2, "''"),
        ]:  # fmt: skip
            self.refused(["tune", "--suite", suite, *words], code, needle)
        result = self.run_command("tune", "mb0ic3ih8oc4kh3", "mb1ic3ih8oc4kh3", *TWO, *QUICK)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("mb0ic3ih8oc4kh3: a batch of 0 has nothing to tune", result.stderr)
        self.assertEqual(len(self.records()), 1)


class Packs(CliTest):
    script = Path(__file__).parents[2] / "scripts" / "make_pack"

    def make(self, *args):
        environment = {**self.environment(), "CONVTUNE": self.convtune, "PACKS": str(self.folder / "packs")}
        return subprocess.run([self.script, *map(str, args)], env=environment, text=True, timeout=120, capture_output=True)

    def test_a_pack_of_lists(self):
        pack, suite, model = self.folder / "cpu.jsonl", self.folder / "suite.txt", self.folder / "net.json"
        suite.write_text("mb1ic3ih8oc4kh3\nmb1ic3ih9oc4kh3\n")
        layers = [{"problem": f"mb1ic3ih{h}oc4kh3", "count": 2, "layers": ["a", "b"]} for h in (9, 10)]
        model.write_text(json.dumps({"schema": 1, "model": "net", "convolutions": layers, "skipped": []}))
        made = self.make(pack, suite, model, "--", *QUICK)
        self.assertEqual(made.returncode, 0, made.stderr)
        problems = [json.loads(line)["problem"].replace('n"a"', "") for line in pack.read_text().splitlines()]
        self.assertEqual(problems, [f"mb1ic3ih{h}oc4kh3 precision=fp32" for h in (10, 8, 9)])
        self.assertIn(f"3 records in {pack}; 0 without proof", made.stdout)
        self.assertIn("where the time goes", made.stdout)
        self.assertIn("3 imported", self.ok("db", "import", str(pack)).stdout)
        # A record without proof is left out, and no problem that has a record is searched again.
        record = next((self.folder / "packs" / "cpu").glob("*ih8*.json"))
        record.write_text(record.read_text().replace('"software":', '"undecided":1,"searched":"x","software":'))
        before = pack.read_text()
        unproven = self.make(pack, model, "--", *QUICK)
        self.assertIn(f"2 records in {pack}; 1 without proof", unproven.stdout)
        self.assertEqual(set(pack.read_text().splitlines()), {line for line in before.splitlines() if "ih8" not in line})

    def test_what_is_wrong_is_refused(self):
        pack = self.folder / "cpu.jsonl"
        for words, needle in [([pack], "LIST"), ([pack, "--", "x"], "there is no LIST"), (["pack.txt", "stem"], ".jsonl"),
                              ([pack, "no-such-suite", "--", *QUICK], "no-such-suite")]:  # fmt: skip
            result = self.make(*words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(needle, result.stderr)
        self.assertFalse(pack.exists())


if __name__ == "__main__":
    main()
