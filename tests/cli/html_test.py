"""Drives the real convtune command where it makes pages: --html, and `convtune report`. Where Chromium is installed it
opens them; CONVTUNE_SCREENSHOTS names a folder that keeps what it saw.

Usage: html_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import json
import os
import tempfile
import unittest
from pathlib import Path

from convtune_command import TINY, CliTest, main
from html_page import Page, chromium, complaints, in_chromium, measured, requests, screenshots

SOURCES = Path(__file__).parent.parent.parent
SAMPLES = SOURCES / "tests" / "refine"
CASE = "mb1ic3ih32oc16kh3ph1"
# Two kinds of layers of a net, one of them run twice.
MODEL = {"schema": 1, "model": "net", "skipped": [], "convolutions": [
    {"problem": TINY, "count": 1, "layers": ["stem"]},
    {"problem": CASE, "count": 2, "layers": ["body.0 <b>", "body.1"]}]}


def as_measured(refined):
    """Returns the file that `refine --json` wrote without a GPU, as --measure writes it: times and contests by hand. One neighbour
    is proven faster, one slower, one fails."""
    def contest(challenger, share):
        before = [100 + 0.5 * (round_ % 3) for round_ in range(12)]
        return {"incumbent": kernel["original"], "challenger": challenger, "min_gain": 0.02, "confidence": 0.99,
                "accepted": share < 1, "undecided": False, "gain": 1 - share, "low": 0.99 - share, "high": 1.01 - share,
                "incumbent_us": before, "challenger_us": [us * (share + 0.002 * (i % 4)) for i, us in enumerate(before)]}

    kernel = refined["refine"]["kernels"][0]
    shares = [1, 0.9, 1.1, 0, *[1] * 9][:len(kernel["configs"])]
    kernel["measured"] = [
        {"config": config.partition(": ")[0], "reason": "the original" if i == 0 else "a neighbour", "time_us": 100 * share,
         "mad_us": share, "n": 20 if share else 0, "output": "equal", **({} if share else {"failure": "out of resources"})}
        for i, (config, share) in enumerate(zip(kernel["configs"], shares))]
    kernel["contests"] = [contest(kernel["measured"][i]["config"], shares[i]) for i in (1, 2)]
    kernel["place"], kernel["changed"] = "NVIDIA GeForce RTX 4090", True
    return refined


def speed_ups(saved):
    """Values of each row of a saved report, as a page has it."""
    return [f"{row['speedup']:.2f}×" for row in json.loads(saved)["rows"]]


class Html(CliTest):
    def page(self, path, *words, needles=()):
        html = path.read_text()
        self.assertEqual(complaints(html), [])
        page = Page(html)
        for needle in needles:
            self.assertIn(needle, page.text())
        return page

    def test_tune(self):
        out, saved = self.folder / "tune.html", self.folder / "tune.json"
        self.ok("tune", CASE, "--device", "cpu", "--budget", "12t", "--html", str(out), "--json", str(saved))
        row = json.loads(saved.read_text())["rows"][0]
        page = self.page(out, needles=["Roofline", "Decision", "Search", "Last stage", "Again", row["decision"],
                                       f"convtune bench {CASE}", "convtune tune mb1", "bound by"])
        self.assertGreater(row["roofline"]["flops_per_second"], 0)
        self.assertGreater(len(row["tuning"]["steps"]), 2)
        shapes = [attributes.get("class") for _, attributes, *_ in page.elements]
        for shape in ("own", "roof", "dots tried", "best-so-far", "floor" if "floor" in shapes else "own"):
            self.assertIn(shape, shapes)
        if contest := row["tuning"]["contest"]:
            self.assertIn("dots round", shapes)
            self.assertEqual(len(contest["incumbent_us"]), len(contest["challenger_us"]))
        again = self.folder / "again.html"
        self.ok("report", str(saved), "--html", str(again))
        self.assertEqual(again.read_text(), out.read_text())

    def test_bench_of_a_suite(self):
        suite, out, table = self.folder / "two.txt", self.folder / "bench.html", self.folder / "bench.json"
        suite.write_text(f"{TINY}n\"first\"\n{CASE}n\"second\"\n")
        self.ok("bench", "--suite", str(suite), "--device", "cpu", "--seconds", "0.1", "--html", str(out), "--json", str(table))
        page = self.page(out, needles=["Cases", "1. first", "2. second", "of 2 cases won"])
        links = [attributes["href"] for _, attributes, *_ in page.all("a")]
        self.assertEqual(links, ["#r1-1", "#r1-2"])
        for row in json.loads(table.read_text())["rows"]:
            self.assertIn(f"{100 * row['providers'][0]['roofline_fraction']:.1f} %", page.text())

    def refined(self, folder, measured=True):
        """A page of refine, and the report that it is of."""
        saved, out = folder / "refine.json", folder / "refine.html"
        self.ok("refine", str(SAMPLES / "conv.py"), "--metrics", str(SAMPLES / "metrics.json"), "--target", "rtx4090",
                "--no-compile", "--no-import", "-o", str(folder / "new.py"), "--html", str(out), "--json", str(saved))
        if measured:
            saved.write_text(json.dumps(as_measured(json.loads(saved.read_text()))))
            self.ok("report", str(saved), "--html", str(out))
        return out

    def of_model(self, folder):
        path, out = folder / "net.json", folder / "model.html"
        path.write_text(json.dumps(MODEL))
        self.ok("tune", "--model", str(path), "--device", "cpu", "--budget", "3t", "--html", str(out), "--json",
                str(folder / "model.json"))
        return out

    def test_a_model(self):
        page = self.page(self.of_model(self.folder), needles=["Where the time goes", "body.0 <b> and 1 more", "Tuning of 2 cases",
                                                              "a model's convolutions"])
        rows = json.loads((self.folder / "model.json").read_text())["rows"]
        total = sum(row["count"] * row["providers"][0]["time_us"] for row in rows)
        verdict = next(text for _, attributes, text, _ in page.all("p") if "All convolutions of a pass" in text)
        shown, unit = verdict.split(" by convtune")[0].split()[-2:]
        self.assertAlmostEqual(float(shown) * {"ms": 1e3, "µs": 1}[unit], total, delta=0.01 * total, msg=verdict)
        table = next(text for _, _, text, _ in page.all("table") if "most time first" in text)
        self.assertLess(table.index("body.0"), table.index("stem"), "the worst comes first")

    def test_a_refinement_that_was_measured(self):
        page = self.page(self.refined(self.folder), needles=["a neighbour is proven faster", "Measured", "90.00 µs ±1.0 %",
                                                             "failed: out of resources", "The new list"])
        shapes = [attributes.get("class") for _, attributes, *_ in page.elements]
        self.assertEqual(shapes.count("dots round"), 4)  # a chart for each of two widths

    def test_verify_and_refine(self):
        out = self.folder / "verify.html"
        self.ok("verify", TINY, "--device", "cpu", "--html", str(out))
        self.page(out, needles=["Verification", "answers were right"])
        self.page(self.refined(self.folder, measured=False), needles=["Refinement of conv_kernel on NVIDIA GeForce RTX 4090", "R1:", "R6:", "The new list",
                                "num_warps=8"])

    def test_old_reports(self):
        """Returns the runs of tune and bench that bench/results keeps, several on one page."""
        kept = [str(path) for path in sorted((SOURCES / "bench" / "results").glob("*/*.json"))
                if any(word in path.name for word in ("tuned", "stem-batch8", "alexnet", "half"))]
        self.assertGreater(len(kept), 4)
        for number, path in enumerate(kept):
            out = self.folder / f"{number}.html"
            self.ok("report", path, "--html", str(out))
            self.page(out, needles=["Roofline"])
            self.assertLess(out.stat().st_size, 500 * 1024)
        out = self.folder / "all.html"
        self.ok("report", *kept, "--html", str(out))
        self.page(out, needles=[f"{len(kept)} reports of convtune"])

    def test_refusals(self):
        """Before anything is measured, and nothing of a page is left behind."""
        nowhere = str(self.folder / "no" / "page.html")
        for args in (["tune", TINY], ["bench", TINY], ["verify", TINY],
                     ["refine", "conv.py", "--metrics", "m.json", "--target", "h100"]):
            if args[0] != "refine":
                self.refused([*args, "--html", nowhere], 2, "page.html", "No such file or directory")
            self.refused([*args, "--html", "-", "--json", "-"], 2)
        bad = self.folder / "bad.json"
        for text, why in [("", "not JSON"), ("{}", "none of rows"), ('{"rows": [{"problem": 1}]}', "rows[0].problem is number"),
                          ('{"rows": [{"problem": "mb0ic0"}]}', "rows[0].problem cannot be used")]:
            bad.write_text(text)
            out = self.folder / "bad.html"
            self.refused(["report", str(bad), "--html", str(out)], 2, "bad.json", why)
            self.assertFalse(out.exists())
        self.refused(["report", str(self.folder / "none.json"), "--html", str(self.folder / "x.html")], 2, "none.json")
        self.refused(["report", str(bad)], 2, "--html")
        self.refused(["report", "--html", str(self.folder / "x.html")], 2, "FILE")

    def test_markdown(self):
        saved, table = self.folder / "bench.json", self.folder / "bench.md"
        self.ok("bench", TINY, CASE, "--device", "cpu", "--seconds", "0.05", "--json", str(saved), "--markdown", str(table))
        lines = table.read_text().splitlines()
        self.assertEqual(len({line.count("|") for line in lines if line.startswith("|")}), 1, lines)
        self.assertEqual(sum(line.startswith("| mb1ic") for line in lines), 2, lines)
        self.assertEqual(self.ok("report", str(saved), "--markdown", "-").stdout, table.read_text())
        self.refused(["report", str(saved), "--markdown", "-", "--html", "-"], 2, "standard output")
        self.refused(["bench", TINY, "--markdown", "-", "--csv", "-"], 2, "standard output")
        checked = self.folder / "verify.json"
        self.ok("verify", TINY, "--device", "cpu", "--json", str(checked))
        self.refused(["report", str(checked), "--markdown", "-"], 2, "verify has no table")

    @unittest.skipUnless(chromium(), "Chromium is not installed")
    def test_on_a_telephone(self):
        """400 pixels wide: nothing is cut, text is legible, and tables show the speed-up."""
        stem = self.folder / "stem.html"
        self.ok("report", str(SOURCES / "bench/results/nvidia-h100/2026-11-21-stem-tuned.json"), "--html", str(stem))
        for page, tables in ((stem, 12), (self.of_model(self.folder), 4), (self.refined(self.folder), 0)):
            seen = measured(page, self.folder, 400)
            self.assertLessEqual(seen["page"], 400, page)
            self.assertEqual(seen["cut"], [], page)
            self.assertGreaterEqual(seen["letters"], 9, page)
            self.assertGreaterEqual(len(seen["speed_ups"]), tables, page)
            self.assertTrue(all(right <= 400 for right in seen["speed_ups"]), (page, seen["speed_ups"]))

    def test_hostile_text_is_text(self):
        bad = '</title><script>alert("x")</script><img src=x onerror=alert(1)>'
        saved, out = self.folder / "bad.json", self.folder / "bad.html"
        provider = {"name": bad, "algorithm": bad, "time_us": 5, "mad_us": 1, "n": 3, "failure": ""}
        saved.write_text(json.dumps({
            "environment": {"device": bad, "command": bad, "versions": {bad: bad}, "date": bad},
            "rows": [{"case": bad, "problem": TINY, "device": bad, "decision": bad, "best_peer": bad, "speedup": 1,
                      "providers": [provider, provider], "roofline": {"bound": bad, "floor_us": 1},
                      "tuning": {"warnings": [bad], "record": bad}}]}))
        self.ok("report", str(saved), "--html", str(out))
        self.page(out, needles=[bad])

    @unittest.skipUnless(chromium(), "Chromium is not installed")
    def test_in_chromium(self):
        """No complaint, no request but for the page, marks where they belong; pictures for a person's eye."""
        kept = os.environ.get("CONVTUNE_SCREENSHOTS")
        folder = Path(kept or tempfile.mkdtemp(dir=self.folder))
        folder.mkdir(exist_ok=True)
        tuned, stem = folder / "tune.html", folder / "stem.html"
        saved = self.ok("tune", "alexnet_conv1", "--batch", "1", "--device", "cpu", "--budget", "12t", "--html", str(tuned),
                        "--json", "-").stdout
        kept_stem = SOURCES / "bench/results/nvidia-h100/2026-11-21-stem-tuned.json"
        self.ok("report", str(kept_stem), "--html", str(stem))
        refined, model = self.refined(folder), self.of_model(folder)
        dots = '<circle class="own"'
        for page, shape, marks, numbers in (
                (tuned, dots, 1, speed_ups(saved)), (stem, dots, 11, speed_ups(kept_stem.read_text())),
                (model, dots, 2, speed_ups((folder / "model.json").read_text())),
                (refined, '<rect class="own"', 2, ["90.00 µs ±1.0 %", "median -10.0 %", "median 10.0 %"])):
            said, dom = in_chromium(page, folder, "--dump-dom")
            self.assertEqual(said, [])
            self.assertEqual(requests(folder), set())
            self.assertGreaterEqual(dom.count(shape), marks, page)
            for number in numbers:
                self.assertIn(number, dom, page)
            self.assertIn('<button type="button">', dom, "the script ran: headers sort")
            if kept:
                screenshots(page, folder)
        bad = folder / "bad.html"
        bad.write_text("<img src='http://elsewhere.test/a.png'><script>console.error('no')</script>")
        said, _ = in_chromium(bad, folder, "--dump-dom")
        self.assertIn("http://elsewhere.test/a.png", requests(folder), "this test can see a request")
        self.assertTrue(said, "this test can see a complaint")


if __name__ == "__main__":
    main()
