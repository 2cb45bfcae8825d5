"""The command with foreign files under mutations: reports, records, files of cases, lists of a model's convolutions. For
whatever they hold it ends with 0, or with one sentence and 2, writes no page for what it refuses, sends no escape to a
terminal, and takes less than 20 s. onnx_fuzz.py does so for ONNX files.

Usage: command_fuzz.py CONVTUNE [FILES [KIND...]]: so many files of each kind (100): report, record, stored, cases, list.
Exit code 1 and the file in crash-KIND at the first failure. Standard library only.
"""

import collections
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from mutated_bytes import bytes_mutated

ROOT = Path(__file__).parent.parent.parent
CASE = "mb1ic3ih8oc4kh3ph1"
VALUES = [0, 1, -1, 0.5, 2**31, 2**62, -(2**63), 2**64, 10**30, 1e308, -1e-308, True, None, "", "x", "x" * 70_000, "\x1b[2J",
          "\u0000", "é\u2028", "</script><script>", "NaN", [], {}, [[]] * 3, [0] * 5000, "mb0ic0", CASE, {"problem": CASE}]


def places(value, found=None):
    """Every (container, key) in it."""
    found = [] if found is None else found
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key))
        places(value[key], found)
    return found


def json_mutated(text, draw):
    """Another value, or none, at some places; else other bytes."""
    if draw.random() < 0.4:
        return bytes_mutated(text, draw)
    value = json.loads(text)
    for _ in range(draw.choice((1, 1, 2, 5))):
        if not (every := places(value)):
            break
        where, key = draw.choice(every)
        kind = draw.randrange(4)
        if kind == 0:
            del where[key]
        elif kind == 1:
            other, of_other = draw.choice(every)
            where[key] = json.loads(json.dumps(other[of_other])) if of_other in other or isinstance(other, list) and (
                of_other < len(other)) else None
        else:
            where[key] = json.loads(json.dumps(draw.choice(VALUES)))
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
    return bytes_mutated(text, draw) if draw.random() < 0.1 else text


class Files:
    """Everything that is mutated, by its kind; records and reports are the command's own."""

    def __init__(self, convtune, folder):
        self.convtune, self.folder = convtune, folder
        self.data = folder / "data"
        report, rows = folder / "own.json", []
        self.run(["tune", CASE, "--device", "cpu", "--budget", "3t", "--json", str(report)])
        self.record = next(self.data.glob("*.json"))
        reports = [report, ROOT / "bench/results/amd-epyc-zen5-2-threads/2026-11-24-peers-alexnet-batch256.json"]
        convolutions = [{"problem": line, "count": 2, "layers": ["a", "b"]} for line in (CASE, "mb2ic8ih7oc8kh1 act=relu")]
        model = {"schema": 1, "model": "net", "convolutions": convolutions,
                 "skipped": [{"what": "Conv", "why": "no", "count": 1, "layers": ["c"]}]}
        rows += [path.read_bytes() for path in sorted((ROOT / "cases").glob("*.txt"))]
        record = [self.record.read_bytes()]
        self.texts = {"report": [path.read_bytes() for path in reports], "record": record, "stored": record, "cases": rows,
                      "list": [json.dumps(model).encode()]}

    def run(self, args):
        environment = {**os.environ, "CONVTUNE_DATA_DIR": str(self.data)}
        ran = subprocess.run([self.convtune, *args], capture_output=True, timeout=20, stdin=subprocess.DEVNULL, env=environment)
        return ran.returncode, ran.stdout, ran.stderr

    def mutated(self, kind, draw):
        text = draw.choice(self.texts[kind])
        return bytes_mutated(text, draw) if kind == "cases" else json_mutated(text, draw)

    def judge(self, kind, data):
        """The exit code. Of a record that is stored: plan does without one that it cannot read, with a warning."""
        path, page = self.folder / "file.json", self.folder / "page.html"
        page.unlink(missing_ok=True)
        (self.record if kind == "stored" else path).write_bytes(data)
        args = {"report": ["report", str(path), "--html", str(page)], "record": ["db", "import", str(path)],
                "stored": ["plan", CASE, "--device", "cpu"], "cases": ["cases", str(path)],
                "list": ["cases", "--model", str(path)]}[kind]
        code, out, err = self.run(args)
        sentences = err.count(b"convtune: error: ")
        if kind == "record":  # one a line of the file that is no record
            sentences = min(1, sentences + err.count(b"convtune: warning: ")) if code else sentences
        assert (code, sentences) in ((0, 0), (2, 1)), (code, err[-2000:])
        assert b"\x1b" not in out + err, "an escape"
        assert kind != "report" or page.exists() == (code == 0), "a page of what was refused"
        return code


def main():
    convtune, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as folder:
        files = Files(convtune, Path(folder))
        for kind in sys.argv[3:] or files.texts:
            codes = collections.Counter()
            for number in range(count):
                data = files.mutated(kind, random.Random(number))
                try:
                    codes[files.judge(kind, data)] += 1
                except BaseException:
                    Path(f"crash-{kind}").write_bytes(data)
                    print(f"{kind} {number} fails: crash-{kind}", file=sys.stderr)
                    raise
            print(f"{kind}: {count} files: {codes[0]} read, {codes[2]} refused with a sentence, no crash")


if __name__ == "__main__":
    main()
