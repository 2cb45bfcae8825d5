"""Drives the real convtune command where its standard streams are closed, full, or read by nobody.

Usage: streams_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import subprocess
import unittest

from convtune_command import TINY, CliTest, main

SLOW = "mb8ic64ih56oc64kh3ph1"  # its search lasts until a log has its first line of progress


class Streams(CliTest):
    def shell(self, line):
        """Exit code, standard output and standard error of a line in which $convtune is the command."""
        environment = {**self.environment(), "convtune": self.convtune}
        ran = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=120,
                             stdin=subprocess.DEVNULL)
        return ran.returncode, ran.stdout, ran.stderr

    def test_a_message_that_nobody_hears_changes_no_exit_code(self):
        for nowhere in ("2>&-", "2>/dev/full"):
            with self.subTest(nowhere):
                self.assertEqual(self.shell(f"$convtune nosuch {nowhere}"), (2, "", ""))
                self.assertEqual(self.shell(f"$convtune plan {TINY} --device cuda:97 {nowhere}"), (3, "", ""))
                self.assertEqual(self.shell(f"$convtune cases >/dev/full {nowhere}"), (2, "", ""))
        self.assertEqual(self.shell("$convtune cases >/dev/full 2>&1"), (2, "", ""))

    def test_a_closed_standard_output_is_an_error(self):
        code, _, stderr = self.shell("$convtune cases >&-")
        self.assertEqual(code, 2, stderr)
        self.assertIn("standard output", stderr)

    def test_a_reader_that_saw_enough_hears_no_complaint(self):
        code, stdout, stderr = self.shell("{ sleep 0.5; $convtune cases; echo $? >&2; } | true")
        self.assertEqual((code, stdout, stderr), (0, "", "2\n"))

    def test_no_file_takes_the_number_of_a_closed_stream(self):
        out = self.folder / "out.json"
        code, _, _ = self.shell(f"$convtune bench mb0ic3ih8oc4kh3ph1 {TINY} --seconds 0.1 --json {out} 1>&- 2>&-")
        self.assertEqual(code, 2)
        self.assertEqual(len(json.loads(out.read_text())["rows"]), 2)

    @unittest.skipIf("TSAN_OPTIONS" in os.environ, "an instrumented search is not done in the time")
    def test_a_search_outlives_the_streams_that_it_tells(self):
        """The result is recorded, the report written, and only standard output is worth an error."""
        unread = "{ $convtune $tune 2>&1; echo $? >code; } | true; exit $(cat code)"
        lines = {"closed": ("$convtune $tune 2>&-", 0),
                 "full": ("$convtune $tune 2>/dev/full", 0),
                 "unread": (unread, 2),
                 "ignored": ("trap '' PIPE; " + unread, 2)}
        running = {}
        for name, (line, _) in lines.items():
            folder = self.folder / name
            folder.mkdir()
            environment = {**os.environ, "convtune": self.convtune, "CONVTUNE_DATA_DIR": str(folder / "data"),
                           "tune": f"tune {SLOW} --budget 6s --threads 1 --json out.json"}
            running[folder] = subprocess.Popen(["sh", "-c", line], env=environment, cwd=folder,
                                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                               stderr=subprocess.DEVNULL)
        for folder, process in running.items():
            with self.subTest(folder.name):
                process.communicate(timeout=120)
                self.assertEqual(process.returncode, lines[folder.name][1])
                self.assertEqual(len(list((folder / "data").glob("*.json"))), 1, "no record")
                self.assertEqual(len(json.loads((folder / "out.json").read_text())["rows"]), 1)


if __name__ == "__main__":
    main()
