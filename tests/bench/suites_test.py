"""bench/suites.py: its lists, and what it says of runs that were cut short. Usage: suites_test.py. Standard library only."""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import suites  # noqa: E402


def row(line, speedup, us, algorithm="ours"):
    return {"case": line.name, "problem": line.text, "speedup": speedup,
            "providers": [{"name": "convtune", "algorithm": algorithm, "time_us": us, "roofline_fraction": 0.5}]}  # fmt: skip


class Suites(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name)

    def said(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            suites.told(self.out)
        return text.getvalue().splitlines()

    def test_lists_have_each_row_once(self):
        command = [sys.executable, str(ROOT / "bench/suites.py"), str(self.out), "gradients", "transposed", "audio"]
        self.assertIn("rows: ", subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        lines = [line for file in self.out.glob("rows_*.txt") for line in suites.lines_of(file)]
        self.assertEqual(len({line.name for line in lines}), len(lines))
        found = {cell for line in lines for cell in suites.cells(line)}
        for cell in ("dx bf16 NHWC, dense", "dw bf16 NHWC, 3x3 of 128 channels and more", "3-D dw bf16 NCHW", "dx halves NCHW",
                     "dw tf32 NCHW", "audio, bf16 NCHW", "transposed"):  # fmt: skip
            self.assertIn(cell, found)

    def test_depthwise_layers_are_no_wide_ones(self):
        line = suites.Line('g256mb64ic256ih14oc256kh3ph1n"train_dw_256_d" layout=nhwc dtype=bf16 dir=bwd_d bias=0')
        self.assertTrue(line.narrow and not line.wide)

    def test_what_was_cut_short_is_told(self):
        lines = [one for one in suites.suite("training") if one.direction == "bwd_d"][:3]
        (self.out / "rows_0.txt").write_text("".join(f"{one.text}\n" for one in lines))
        (self.out / "tuned_0.json").write_text(json.dumps({"rows": [row(lines[0], 2.0, 5.0), row(lines[1], 0.5, 7.0, "cudnn")]}))
        call = {"name": lines[0].name, "problem": lines[0].text, "direction": "bwd_d", "us": {"ours": 2.0, "free": 3.0}, "unlike": 0}
        (self.out / "calls.json").write_text(json.dumps({"rows": [call | {"signature": [1, 2]}]}))
        (self.out / "second.json").write_text(json.dumps({"rows": [  # one more row than before, and one that failed
            call | {"signature": [1, 3]}, {"name": "more", "problem": lines[1].text, "signature": [0, 0]},
            {"name": "failed", "problem": lines[0].text}]}))  # fmt: skip
        whole, *_, calls, bits = self.said()
        self.assertIn("dx bf16 NHWC: 1.000x of 2, least 0.50 " + lines[1].name + "; vendor's kept 1", whole)
        self.assertIn("below 0.98: " + lines[1].name + " 0.50", whole)
        self.assertIn("over free 1.500x of 1", calls)
        self.assertIn(f"1 rows, unlike in 20 runs: []; a second process 1 rows, other: ['{lines[0].name}']", bits)

    def test_nothing_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no row"):
            suites.told(self.out)


if __name__ == "__main__":
    unittest.main()
