"""Drives the real convtune command where several share their trials: ranks of one job, and what was killed.

Usage: trials_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import signal
import subprocess
import time
import unittest

from convtune_command import CliTest, main

SLOW = "mb8ic64ih56oc64kh3ph1"  # one run has milliseconds: a process can be stopped in the middle of it
TUNE = ["tune", SLOW, "--budget", "100ms", "--threads", "1"]
OUT = "is out of the contest"


class SharedTrials(CliTest):
    def setUp(self):
        super().setUp()
        if "onednn" not in self.ok("plan", SLOW, "--threads", "1").stdout:
            self.skipTest("built without oneDNN: there is no vendor")

    def start(self, *more):
        process = subprocess.Popen([self.convtune, *TUNE, *more], env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.kill()
        return process.communicate()

    def trials(self):
        return b"".join(file.read_bytes() for file in self.data.glob("trials/*.jsonl"))

    def stopped_in_a_vendors_way(self):
        """A search that stands still where it has begun one of the vendor's ways, and it did not come to an end."""
        before = len(self.trials())
        process = self.start()

        def is_begun():
            last = self.trials()[before:].splitlines()[-1:]
            return bool(last) and b"onednn" in last[0] and b"start" in last[0]

        deadline = time.monotonic() + 60
        while True:
            while not is_begun():
                self.assertIsNone(process.poll(), "ended before it could be stopped")
                self.assertLess(time.monotonic(), deadline, "never came to a way of the vendor's")
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            if is_begun():
                return process
            process.send_signal(signal.SIGCONT)

    def record(self):
        return json.loads(self.record_file().read_text())

    def test_searches_at_the_same_time_keep_all_of_the_vendors_ways(self):
        """Eight, as the ranks of a job begin: two are where the others look, and live."""
        processes = [self.stopped_in_a_vendors_way() for _ in range(2)]
        processes += [self.start() for _ in range(6)]
        for process in processes[2:]:
            _, stderr = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, stderr)
            self.assertNotIn(OUT, stderr)
        for process in processes[:2]:
            process.send_signal(signal.SIGCONT)
            _, stderr = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, stderr)
            self.assertNotIn(OUT, stderr)
        self.assertNotIn("left_out", self.record())

    def test_a_way_that_two_died_of_is_left_out_once_and_never_taken_for_beaten(self):
        for _ in range(2):
            self.end(self.stopped_in_a_vendors_way())
        without = self.ok(*TUNE, "--json", str(self.folder / "out.json"))
        self.assertIn(OUT, without.stderr)
        self.assertIn("without proof, since onednn", without.stdout)
        self.assertIn("onednn", self.record()["left_out"])
        tuning = json.loads((self.folder / "out.json").read_text())["rows"][0]["tuning"]
        self.assertFalse(tuning["proven"])
        self.assertIn("unproven", self.ok("plan", SLOW, "--threads", "1").stdout)

        again = self.ok(*TUNE)
        self.assertNotIn(OUT, again.stderr)
        self.assertNotIn("from the record", again.stdout)
        self.assertNotIn("left_out", self.record())

    def test_to_retune_forgets_who_died(self):
        for _ in range(2):
            self.end(self.stopped_in_a_vendors_way())
        self.assertNotIn(OUT, self.ok(*TUNE, "--retune").stderr)
        self.assertNotIn("left_out", self.record())

    def test_a_search_that_is_interrupted_leaves_no_death(self):
        for _ in range(2):
            process = self.stopped_in_a_vendors_way()
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
            _, stderr = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, stderr)
        self.assertNotIn(OUT, self.ok(*TUNE).stderr)


if __name__ == "__main__":
    main()
