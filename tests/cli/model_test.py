"""Drives the real convtune command with models that are lists, and with Pythons that answer for an ONNX file as they
should not. What is read of ONNX files tests/python/test_onnx_model.py shows.

Usage: model_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import random
import stat
from unittest import mock

from convtune_command import TINY, CliTest, main

CONVOLUTION = {"problem": TINY, "count": 2, "layers": ["first", "second"]}
MODEL = {"schema": 1, "model": "net", "convolutions": [CONVOLUTION], "skipped": []}


class Lists(CliTest):
    def path(self, model=None, name="net.json"):
        path = self.folder / name
        path.write_text(json.dumps(model or MODEL))
        return str(path)

    def test_every_command_takes_one(self):
        here = ["--model", self.path(), "--device", "cpu", "--threads", "1"]
        shown = self.ok("cases", "--model", self.path()).stdout
        self.assertIn("first and 1 more     2", shown)
        self.assertIn("all of net", shown)
        again = self.folder / "again.json"
        self.ok("cases", "--model", self.path(), "--batch", "4", "--dtype", "f16", "--layout", "nhwc", "--json", str(again))
        self.assertEqual(json.loads(again.read_text())["convolutions"][0]["problem"],
                         "mb4ic3ih8oc4kh3ph1 layout=nhwc dtype=f16")
        self.assertIn("1 kind has no recorded time", self.ok("plan", *here).stdout)
        self.assertIn("0 mismatches", self.ok("verify", *here, "--algorithm", "reference").stdout)
        out = self.folder / "out.json"
        table = self.ok("bench", *here, "--seconds", "0.05", "--json", str(out)).stdout
        self.assertRegex(table, r"first and 1 more +2 +100.0 %")
        report = json.loads(out.read_text())
        self.assertEqual((report["rows"][0]["count"], report["rows"][0]["layers"]), (2, ["first", "second"]))
        self.assertAlmostEqual(report["model_times"]["time_us"], 2 * report["rows"][0]["providers"][0]["time_us"], places=3)

    def test_tables_in_a_terminal(self):
        for command in (["cases"], ["plan", "--device", "cpu"], ["bench", "--device", "cpu", "--seconds", "0.05"]):
            for columns in (80, 200):
                code, sent = self.on_terminal(columns, *command, "--model", self.path())
                shown = [line for line in sent.splitlines() if "\r" not in line and "\033" not in line]
                self.assertEqual(code, 0, sent)
                self.assertTrue(any("first and 1 more" in line for line in shown), sent)
                self.assertLessEqual(max(map(len, shown)), columns, sent)
                if columns == 200:
                    self.assertTrue(any(TINY in line and "first and 1 more" in line for line in shown), sent)

    def test_long_names_fit_and_differ(self):
        """As ONNX files have them."""
        names = [f"/features/features.{i}/conv/conv.{i % 3}/conv.{i % 3}.0/Conv" for i in range(12)]
        problems = [f"mb8ic{16 + i}ih112oc96kh3ph1 act=clip:0:6" for i in range(12)]
        path = self.path({**MODEL, "convolutions": [{"problem": problem, "count": 1, "layers": [name]}
                                                    for name, problem in zip(names, problems)]})
        for command in ("cases", "plan"):
            code, sent = self.on_terminal(80, command, "--model", path, *(["--device", "cpu"] if command == "plan" else []))
            self.assertEqual(code, 0, sent)
            lines = [line for line in sent.splitlines() if "conv." in line and "names are without" not in line]
            self.assertLessEqual(max(map(len, sent.splitlines())), 80, sent)
            self.assertEqual(len({line.split()[0] for line in lines}), 12, sent)
            if command == "cases":
                self.assertEqual(len(lines), 12, sent)
                self.assertTrue(all("mb8ic" in line for line in lines), "the problem stands in its layer's line")
        for name in names:
            self.assertIn(name, self.ok("cases", "--model", path).stdout)

    def test_what_nothing_runs_here_is_skipped(self):
        """A residual beside a stride of backward data, say; the rest is tuned."""
        eager = {"problem": "mb1ic3ih9oc4kh3sh2ph1 dtype=bf16 dir=bwd_d residual=1 rounding=eager", "count": 1, "layers": ["up"]}
        path = self.path({**MODEL, "convolutions": [CONVOLUTION, eager]})
        for command in (["tune", "--budget", "2t"], ["bench", "--seconds", "0.05"]):
            out, page = self.folder / f"{command[0]}.json", self.folder / f"{command[0]}.html"
            result = self.ok(*command, "--model", path, "--device", "cpu", "--json", str(out), "--html", str(page))
            self.assertIn("skipped up: ", self.warnings(result)[0])
            self.assertIn("1 kind is skipped", result.stdout)
            self.assertRegex(result.stdout, "all convolutions +2 +100.0 %")
            self.assertEqual([row["layers"] for row in json.loads(out.read_text())["rows"]], [["first", "second"]])
            self.assertIn("Where the time goes", page.read_text())
            only = self.path({**MODEL, "convolutions": [eager]}, "only.json")
            self.refused([*command, "--model", only, "--device", "cpu"], 2, "none of the convolutions of net")

    def test_types_and_layout_are_of_every_problem(self):
        self.assertIn("layout=nhwc dtype=bf16", self.ok("plan", TINY, "--dtype", "bf16", "--layout", "nhwc", "--device",
                                                        "cpu").stdout)
        self.refused(["plan", TINY, "--dtype", "int8"], 2, "int8", "bf16")
        self.refused(["plan", TINY, "--layout", "hwcn"], 2, "hwcn", "nhwc")

    def test_directions(self):
        """--dir of every problem, and --train: what a step runs of each layer of a model, transposed ones among them."""
        self.assertIn("dir=bwd_w", self.ok("plan", f"{TINY} act=relu", "--dir", "bwd_w", "--device", "cpu").stdout)
        shown = self.ok("bench", TINY, "--dir", "bwd_d", "--device", "cpu", "--seconds", "0.05", "--csv", "-").stdout
        self.assertIn(f"{TINY} precision=fp32 dir=bwd_d", shown)
        second = {"problem": "mb2ic8ih6oc8kh3ph1n\"two\" act=relu residual=1", "count": 3, "layers": ["two"]}
        up = {"problem": "mb2ic8ih3oc4kh2sh2n\"up\" dir=transposed", "count": 1, "layers": ["up"]}
        path, listed = self.path({**MODEL, "convolutions": [CONVOLUTION, second, up]}), self.folder / "list.json"
        self.ok("cases", "--model", path, "--train", "--json", str(listed))
        found = json.loads(listed.read_text())["convolutions"]
        self.assertEqual([(one["problem"], one["count"], one["layers"][0]) for one in found], [
            (TINY, 2, "first"), (f"{TINY} dir=bwd_w", 2, "first_w"),
            ("ic8ih6oc8kh3ph1", 3, "two"), ("ic8ih6oc8kh3ph1 dir=bwd_d", 3, "two_d"), ("ic8ih6oc8kh3ph1 dir=bwd_w", 3, "two_w"),
            ("ic4ih6oc8kh2sh2 dir=bwd_d bias=1", 1, "up"), ("ic4ih6oc8kh2sh2 bias=0", 1, "up_y"),
            ("ic4ih6oc8kh2sh2 dir=bwd_w bias=0", 1, "up_w")])
        tuned = self.ok("tune", "--model", path, "--train", "--device", "cpu", "--threads", "1", "--budget", "1t").stdout
        for name in ("two_d", "two_w", "up_y", "up_w"):
            self.assertIn(name, tuned)
        self.refused(["tune", "--model", path, "--train", "--dir", "bwd_d"], 2, "--train", "--dir")
        self.refused(["bench", TINY, "--dir", "back"], 2, "back", "bwd_w")

    def test_what_does_not_go_together(self):
        path = self.path()
        self.refused(["plan", TINY, "--model", path], 2, "cannot be given together")
        self.refused(["plan", "--suite", "stem", "--model", path], 2, "cannot be given together")
        self.refused(["cases", "stem", "--model", path], 2, "cannot be given together")
        self.refused(["plan", TINY, "--shape", "x=1x3"], 2, "--shape")
        self.refused(["cases", "stem", "--json", "-"], 2, "--json")
        self.refused(["plan", "--model", path, "--shape", "x=1x3"], 2, "no inputs")
        self.refused(["plan", "--model", path, "--batch", str(10**18)], 2, str(10**18))

    def test_lists_that_are_none(self):
        for change, needle in [({"schema": 2}, "schema"), ({"more": 1}, "'more'"), ({"convolutions": []}, "no convolution"),
                               ({"convolutions": [{**CONVOLUTION, "count": 0}]}, "count of convolution 1"),
                               ({"convolutions": [{**CONVOLUTION, "problem": "mb1ic3"}]}, "problem of convolution 1")]:
            self.refused(["plan", "--model", self.path({**MODEL, **change})], 2, "net.json", needle)
        self.refused(["plan", "--model", str(self.folder / "no.json")], 2, "there is no model file")

    def test_changed_lists(self):
        """A sentence and exit code 2, or a list. tests/unit/onnx changes 10,000 of them."""
        text, path, seen = json.dumps(MODEL).encode(), self.folder / "net.json", set()
        for number in range(40):
            draw = random.Random(number)
            changed = bytearray(text)
            for _ in range(draw.choice((1, 1, 2, 5))):
                at = draw.randrange(len(changed))
                changed[at:at + draw.choice((0, 1, 9))] = draw.choice((b"", b"9", b"-", b'"', b"}", b"[" * 999, b"\xff\0"))
            path.write_bytes(changed)
            result = self.run_command("cases", "--model", str(path))
            seen.add(result.returncode)
            self.assertIn(result.returncode, (0, 2), result.stderr)
            self.assertEqual(result.stderr.count("convtune: error: "), int(result.returncode == 2), changed)
        self.assertIn(2, seen)


class Pythons(CliTest):
    def answered(self, script):
        """Returns the command's output where that is the Python that reads the file."""
        python = self.folder / "python"
        python.write_text("#!/bin/sh\n" + script)
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        (self.folder / "net.onnx").write_bytes(b"x")
        return ["cases", "--model", str(self.folder / "net.onnx"), "--python", str(python)]

    def test_answers_that_are_none(self):
        for script, needle in [
            ("exit 3", "ended with exit code 3"),
            ("kill -9 $$", "ended by signal 9"),
            ("echo nonsense", "nonsense"),
            ("echo '{}'", "no field 'convolutions'"),
            ("echo '{\"convolutions\": [{}], \"skipped\": []}'", "no field 'count'"),
            ("echo '{\"refused\": \"no model of mine\"}'", "net.onnx': no model of mine"),
            ("echo '{\"missing\": \"No module named onnx\"}'", "-m pip install onnx"),
        ]:
            self.refused(self.answered(script), 2, needle)
        self.refused(["cases", "--model", str(self.folder / "net.onnx"), "--python", "no_such_python"], 2, "no_such_python")

    def test_the_environment_names_one(self):
        net = self.answered("exit 3")[:3]
        with mock.patch.dict(os.environ, CONVTUNE_PYTHON="python_of_the_environment"):
            self.refused(net, 2, "python_of_the_environment")
            self.assertIn("python_of_the_environment", self.ok("refine", "--help").stdout)
            self.refused([*net, "--python", "another"], 2, "another")
        with mock.patch.dict(os.environ, CONVTUNE_PYTHON=""):
            self.assertIn("python3", self.ok("cases", "--help").stdout)

    def test_a_good_answer(self):
        answer = {"convolutions": [CONVOLUTION, {**CONVOLUTION, "problem": "mb1ic3ih8oc4kh9"}],
                  "skipped": [{"what": "ConvInteger", "why": "its tensors are integers", "count": 2, "layers": ["a\x1b[2J", "b"]}]}
        (self.folder / "answer").write_text(json.dumps(answer))
        result = self.ok(*self.answered(f"cat '{self.folder}/answer'; echo"))
        self.assertIn("all of net", result.stdout)
        self.assertIn("skipped 2 of ConvInteger", result.stderr)
        self.assertIn("skipped 2 of convolution (first and 1 more): ", result.stderr)
        self.assertNotIn("\x1b", result.stderr)


if __name__ == "__main__":
    main()
