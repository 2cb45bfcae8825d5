"""Triton files that would take a machine's memory or a day of its processor: each is read within 1 GB and 10 s.

Usage: hostile_test.py [unittest options]. Standard library only.
"""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

RUNNER = Path(__file__).resolve().parents[2] / "src" / "triton" / "runner"
MOST_KB, MOST_SECONDS = 1 << 20, 10.0
HURRY = 1.5  # seconds that the reader gives itself here, in place of 8: it is the same clock that ends it
KERNEL = """
import itertools, math, copy
import triton, torch
import triton.language as tl
{text}
@triton.autotune(configs=[triton.Config({{'B': 64}}, num_warps=len(str(found)) if found else 4)], key=['n'])
@triton.jit
def kernel(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + n, B)
"""
LONG = "l = list(range(90000))\n"
HOSTILE = {
    "a list added to itself": "found = [1]\n" + "found = found + found\n" * 40,
    "a list added to itself in place": "found = [1]\n" + "found += found\n" * 40,
    "a list extended by itself": "found = [1]\nfor i in range(60): found.extend(found)",
    "a list extended by itself, line by line": "found = [1]\n" + "found.extend(found)\n" * 60,
    "a list unpacked twice": "found = [1]\n" + "found = [*found, *found]\n" * 40,
    "a tuple times a number": "found = (1,)\n" + "found = found * 90000\n" * 4,
    "a text in a text": "found = 'abc'\n" + "found = f'{found}{found}'\n" * 50,
    "a text added to itself": "found = 'abc'\n" + "found = found + found\n" * 50,
    "a text replaced by itself": "found = 'a' * 90000\nfound = found.replace('a', found)\nfound = found.replace('a', found)",
    "a text joined by itself": "t = 'a' * 90000\nfound = t.join([t] * 90000)",
    "a repeated product": "found = itertools.product([1, 2, 3], repeat=10**10)",
    "a product of many": "found = itertools.product(*[[1, 2]] * 90000)",
    "combinations": "found = itertools.combinations(list(range(90000)), 45000)",
    "a product of one number each": "found = math.prod([2 ** 255] * 90000)",
    "powers": "found = 2\n" + "found = found ** 255\n" * 20,
    "products": "found = 3\n" + "found = found * found\n" * 60,
    "shifts": "found = 1\n" + "found = found << 255\n" * 10_000,
    "copies": LONG + "for i in range(100000): found = l.copy()",
    "copies by list": LONG + "for i in range(100000): found = list(l)",
    "copies by a slice": LONG + "for i in range(100000): found = l[:]",
    "sorted again and again": LONG + "for i in range(100000): found = sorted(l)",
    "looked for again and again": LONG + "for i in range(100000): found = -1 in l",
    "an index again and again": LONG + "for i in range(100000): found = l.index(89999)",
    "equal lists": LONG + "for i in range(100000): found = l == l[:]",
    "a sum of lists": "found = sum([[1] * 90000] * 90000, [])",
    "sums": LONG + "for i in range(100000): found = sum(l)",
    "a dict updated": "d = {i: i for i in range(90000)}\nfor i in range(100000): d.update(d)\nfound = d",
    "dicts in a dict": "d = {i: i for i in range(90000)}\nfor i in range(100000): found = {**d, 'a': i}",
    "lists of one list": "found = [1]\n" + "found = [found, found]\n" * 60 + "other = [1]\n" + "other = [other, other]\n" * 60
                         + "found = 1 if found == other else 2",
    "a text of lists of one list": "found = [1]\n" + "found = [found, found]\n" * 60 + "found = str(found)",
    "a copy of lists of one list": "found = [1]\n" + "found = [found, found]\n" * 60 + "found = copy.deepcopy(found)",
    "a key of tuples of one tuple": "found = (1,)\n" + "found = (found, found)\n" * 60 + "found = {found: 1}",
    "a set of tuples of one tuple": "found = (1,)\n" + "found = (found, found)\n" * 60 + "found = {found}",
    "a list within itself": "found = [1]\nfound.append(found)\nfound = str(found)",
    "an unknown text twice": "found = torch.a\n" + "found = found + found\n" * 60,
    "an unknown text within itself": "found = torch.a\n" + "found = found[found]\n" * 60,
    "an unknown call of itself": "found = torch.a\n" + "found = torch.b(found, found)\n" * 60,
    "loops in loops": "found = 0\n" + "".join("    " * i + f"for i{i} in range(90000):\n" for i in range(8)) + "    " * 8 + "found += 1",
    "a loop without an end": "found = 0\nwhile True:\n    found = 1 - found",
    "functions that call two": "def f0(): return 1\n" + "".join(f"def f{i}(): return f{i - 1}() + f{i - 1}()\n" for i in range(1, 39))
                               + "found = f38()",
    "a long function that ends at once": "def f():\n    return 1\n" + "    x = 1\n" * 50_000 + "found = [f() for i in range(90000)]",
    "many configs of many names": "m = {f'a{i}': i for i in range(90000)}\nfound = [triton.Config(m) for i in range(90000)]",
    "a deep expression": "found = " + "(" * 90 + "1" + ")" * 90 + "\nfound = " + "-" * 3000 + "1",
    "a wide expression": "found = [" + "1, " * 1_000_000 + "]",
    "a grid": "def run(x):\n    kernel[(lambda meta: tuple(sum([[1] * 90000] * 90000, [])))](x)\nfound = 0",
    "a model that calls itself": "class ModelNew(torch.nn.Module):\n    def __init__(self):\n        self.b = torch.empty([1 << 4000] * 60)\n"
                                 "    def forward(self, x):\n        while True:\n            kernel[(triton.cdiv(self.b.numel(), 2),)](x)\n"
                                 "            self.forward(x); self.forward(x)\nfound = 0",
    "a tensor of many axes": "def run(x):\n    y = torch.empty(*([1 << 4000] * 90000))\n    kernel[(y.numel(),)](x)\nfound = 0",
    "many kernels": "found = 0\n" + "".join(
        f"@triton.autotune(configs=[triton.Config({{'B': i}}) for i in range(90000)], key=[])\n@triton.jit\ndef k{i}(x): pass\n"
        for i in range(100)),
}


def read(text, hurry=None):
    """The reader's answers to a text and to a question about its grid, and the memory and time that it took.

    `hurry`: the processor's seconds that it has for them, in place of those of the product.
    """
    source = KERNEL.format(text=text)
    asked = [{"do": "read", "source": source, "path": "", "target": {}}, {"do": "grids", "kernel": 0, "values": {}}]
    program = f"import triton_reader; triton_reader.SECONDS = {hurry} or triton_reader.SECONDS; triton_reader.main()"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               cwd=RUNNER)
    process.stdin.write("".join(json.dumps(one) + "\n" for one in asked))
    process.stdin.close()
    answers = process.stdout.read().splitlines()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return [json.loads(line) for line in answers], process.returncode, usage.ru_maxrss, usage.ru_utime + usage.ru_stime


class Hostile(unittest.TestCase):
    def test_each_is_read_within_limits(self):
        for name, text in HOSTILE.items():
            with self.subTest(name):
                hurry = None if name == "loops in loops" else HURRY
                answers, status, kilobytes, seconds = read(text, hurry)
                self.assertEqual((len(answers), status), (2, 0))
                self.assertLess(kilobytes, MOST_KB)
                self.assertLess(seconds, MOST_SECONDS)

    def test_what_is_long_and_not_hostile_is_read(self):
        text = """
sizes = [16 * 2 ** i for i in range(5)]
kept = []
for m, n, k, w in itertools.product(sizes, sizes, sizes[:3], [2, 4, 8, 16]):
    one = {'M': m, 'N': n, 'K': k, 'w': w}
    if one not in kept and m * n <= 128 * 128:
        kept.append(one)
found = None
@triton.autotune(configs=sum([[triton.Config({'M': o['M'], 'N': o['N'], 'K': o['K']}, num_warps=o['w'], num_stages=s)
                               for s in range(1, 6)] for o in sorted(kept, key=lambda o: o['M'])], []), key=['n'])
@triton.jit
def many(x_ptr, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    tl.store(x_ptr + n, M)
"""
        answers, _, _, _ = read(text)
        self.assertEqual([len(kernel["configs"]) for kernel in answers[0]["kernels"]], [22 * 3 * 4 * 5, 1])


if __name__ == "__main__":
    unittest.main()
