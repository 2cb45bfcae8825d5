"""The Python reader of Triton files under mutations: for whatever text an answer or a reason, an edit that parses, and
never an exception of another kind, nor more than some seconds.

Usage: reader_fuzz.py SECONDS [FILE...]. Texts begin as FILE... (tests/refine/*.py). Exit code 1 and the text in
crash-reader.py at the first failure.
"""

import ast
import contextlib
import random
import re
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "src" / "triton" / "runner"))
import triton_reader as reader  # noqa: E402

PIECES = ["[", "]", "(", ")", "{", "}", ",", ":", "=", "*", "**", "\n", "    ", "'", '"', "\\", "#", "lambda", "for", "in", "if",
          "else", "def", "class", "return", "yield", "@", "0", "1", "999999999999", "-1", "None", "True", "x", "configs",
          "triton.autotune", "triton.Config", "triton.jit", "num_warps", "while True:", "import", "from . import",
          "range(10**9)", "[0] * 10**9", "10 ** 10 ** 10", "'a' * 10**9", "<<", "%", "f'{x}'", "max", "sorted", "filter",
          "itertools.product", "\ufeff", "\u2028", "\x0c", "é", "\r\n", "\t"]


def mutated(text, draw):
    for _ in range(draw.choice((1, 1, 2, 3, 8))):
        at = draw.randrange(len(text) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            text = text[:at] + draw.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + draw.randrange(1, 30):]
        elif kind == 2:
            other = draw.randrange(len(text) + 1)
            text = text[:at] + text[other:other + draw.randrange(1, 200)] + text[at:]
        elif kind == 3:
            words = list(re.finditer(r"\w+", text))
            if words:
                word = draw.choice(words)
                text = text[:word.start()] + draw.choice([draw.choice(words)[0], draw.choice(PIECES)]) + text[word.end():]
        else:
            text = text[:at] + draw.choice("([{") * draw.choice((1, 5, 300)) + text[at:]
    return text[:200_000]


def judge(text, draw):
    state = {}
    try:
        answer = reader.answer(state, {"do": "read", "source": text, "path": "", "target": {"major": 8, "minor": 9}})
    except (reader.Refused, RecursionError, MemoryError):
        return 0
    for of_kernels in (False, True):
        for name in ("Model", "ModelNew"):
            with contextlib.suppress(reader.Refused, RecursionError, MemoryError):
                reader.answer(state, {"do": "class", "source": text, "class": name, "of_kernels": of_kernels})
    for kernel in answer["kernels"]:
        reader.answer(state, {"do": "grids", "kernel": kernel["at"], "tensors": {"x": [2, 3, 8, 8]}, "values": {"M": 64}})
        configs = [config for config in kernel["configs"] if not config["hidden"]][:3] or [
            {"meta": [["B", "1"]], "others": [], "warps": 4, "stages": 2}]
        for config in configs:
            config["comment"] = "a reason"
        edits = [{"kernel": kernel["at"], "configs": configs, "keep": draw.random() < 0.3}]
        try:
            ast.parse(reader.answer(state, {"do": "edit", "edits": edits, "order": draw.random() < 0.5})["source"].lstrip(
                "\ufeff"))
        except reader.Refused:
            pass
    return len(answer["kernels"])


def main():
    seconds = float(sys.argv[1])
    files = [Path(name) for name in sys.argv[2:]] or sorted((HERE.parent / "refine").glob("*.py"))
    texts = [file.read_text() for file in files]
    sys.setrecursionlimit(4000)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("one text took 60 s")))
    begun, count, kernels = time.monotonic(), 0, 0
    while time.monotonic() - begun < seconds:
        draw = random.Random(count)
        text = mutated(draw.choice(texts), draw)
        signal.alarm(60)
        try:
            kernels += judge(text, draw)
        except BaseException:
            Path("crash-reader.py").write_text(text)
            print(f"number {count} fails: crash-reader.py", file=sys.stderr)
            raise
        signal.alarm(0)
        count += 1
    print(f"{count} texts, {kernels} kernels read and edited, no crash")


if __name__ == "__main__":
    main()
