"""The limits of a process in which Triton compiles: of processor time, and by the clock.

Usage: compiling_test.py [unittest options]. Standard library only.
"""

import itertools
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "triton" / "runner"))
from triton_compiler import in_child, result_of  # noqa: E402


def waits():
    time.sleep(1.5)
    return {"done": True}


class Limits(unittest.TestCase):
    def test_waiting_for_a_turn_is_not_compiling(self):
        self.assertEqual(result_of(in_child(waits, 60, 1)), {"done": True})

    def test_what_computes_for_ever_ends(self):
        found = result_of(in_child(lambda: sum(itertools.repeat(1)), 60, 1))
        self.assertEqual(found, {"failed": "it took too long"})

    def test_what_waits_for_ever_ends(self):
        found = result_of(in_child(lambda: time.sleep(3600), 1, 60))
        self.assertEqual(found, {"failed": "it took too long"})


if __name__ == "__main__":
    unittest.main()
