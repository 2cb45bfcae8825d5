"""Problem lines as convtune reads and writes them: benchdnn's convolution grammar, then key=value words.

Used by peers.py, so that it asks for the same work in the same words where no convtune is installed.
include/convtune/problem.h tells the grammar; tests/bench/peers_test.py holds both to each other.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

LETTERS = ("mb", "g", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw")
WORDS = {"precision": ("auto", "fp32", "tf32", "fp16", "bf16"), "layout": ("nchw", "nhwc"),
         "dtype": ("f32", "f16", "bf16"), "act": ("none", "relu"), "bias": ("0", "1"),
         "pad_bottom": None, "pad_right": None}
CASES = Path(__file__).resolve().parent.parent / "cases"
SUITES = ("stem", "body", "depthwise", "edges")


class BadInput(ValueError):
    """What the user gave cannot be used; the message says what and why."""


@dataclass(frozen=True)
class Problem:
    """A forward 2-D convolution; dilations count from 1, as in convtune and PyTorch."""
    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    groups: int = 1
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0
    precision: str = "auto"
    layout: str = "nchw"
    dtype: str = "f32"
    act: str = "none"
    bias: bool = True
    name: str = ""

    @property
    def p(self):
        return (self.h + self.pad_top + self.pad_bottom - self.dilation_h * (self.r - 1) - 1) // self.stride_h + 1

    @property
    def q(self):
        return (self.w + self.pad_left + self.pad_right - self.dilation_w * (self.s - 1) - 1) // self.stride_w + 1

    @property
    def flops(self):
        return 2 * self.n * self.k * self.p * self.q * (self.c // self.groups) * self.r * self.s

    def key(self):
        """The shortest line for it, without the name: what convtune prints."""
        return to_line(replace(self, name=""))


def to_line(a):
    def pair(h, w, high, wide, usual):
        if high == wide == usual:
            return ""
        return f"{h}{high}" + (f"{w}{wide}" if wide != high else "")

    line = (f"g{a.groups}" if a.groups != 1 else "") + (f"mb{a.n}" if a.n != 2 else "") + f"ic{a.c}"
    line += pair("ih", "iw", a.h, a.w, None) + f"oc{a.k}" + pair("kh", "kw", a.r, a.s, None)
    line += pair("sh", "sw", a.stride_h, a.stride_w, 1) + pair("ph", "pw", a.pad_top, a.pad_left, 0)
    line += pair("dh", "dw", a.dilation_h - 1, a.dilation_w - 1, 0)
    line += f'n"{a.name}"' if a.name else ""
    for word, value, usual in (("precision", a.precision, "auto"), ("layout", a.layout, "nchw"),
                               ("dtype", a.dtype, "f32"), ("act", a.act, "none"), ("bias", int(a.bias), 1),
                               ("pad_bottom", a.pad_bottom, a.pad_top), ("pad_right", a.pad_right, a.pad_left)):
        line += f" {word}={value}" if value != usual else ""
    return line


def parse(line):
    def fail(why):
        raise BadInput(f"problem '{line.strip()}': {why}")

    numbers, words, name = {}, {}, ""
    rest = line.strip()
    head = re.match(r'(?:[A-Za-z]+\d+|n"[^"]*"|_)+', rest)
    if not head:
        fail("it does not begin with letters and numbers like mb256ic3ih224oc96kh11")
    for letters, digits, label in re.findall(r'([A-Za-z]+)(?:(\d+)|"([^"]*)")', head.group()):
        if letters == "n" and not digits:
            name = label
        elif letters not in LETTERS:
            fail(f"'{letters}' is none of {' '.join(LETTERS)} n\"name\"")
        elif letters in numbers:
            fail(f"'{letters}' is given twice")
        else:
            numbers[letters] = int(digits)
    rest = rest[head.end():]
    if rest and not rest[0].isspace():
        fail(f"'{rest}' is not understood")
    for word in rest.split():
        key, equals, value = word.partition("=")
        if not equals or key not in WORDS:
            fail(f"'{word}' is none of the words {' '.join(f'{k}=' for k in WORDS)}")
        if key in words:
            fail(f"'{key}' is given twice")
        if value not in WORDS[key] if WORDS[key] else not value.isdecimal():
            fail(f"{key} is not {value!r}" + (f"; it is one of {' '.join(WORDS[key])}" if WORDS[key] else ""))
        words[key] = value

    def pair(h, w, usual=None):
        high, wide = numbers.get(h, numbers.get(w, usual)), numbers.get(w, numbers.get(h, usual))
        if high is None:
            fail(f"{h} is missing, and has no default")
        return high, wide

    for letters in ("ic", "oc"):
        if letters not in numbers:
            fail(f"{letters} is missing, and has no default")
    (h, w), (r, s) = pair("ih", "iw"), pair("kh", "kw")
    (stride_h, stride_w), (top, left) = pair("sh", "sw", 1), pair("ph", "pw", 0)
    holes_h, holes_w = pair("dh", "dw", 0)
    problem = Problem(numbers.get("mb", 2), numbers["ic"], h, w, numbers["oc"], r, s, numbers.get("g", 1),
                      stride_h, stride_w, holes_h + 1, holes_w + 1, top, left,
                      int(words.get("pad_bottom", top)), int(words.get("pad_right", left)),
                      words.get("precision", "auto"), words.get("layout", "nchw"), words.get("dtype", "f32"),
                      words.get("act", "none"), words.get("bias", "1") == "1", name)
    if min(problem.c, h, w, problem.k, r, s, problem.groups, stride_h, stride_w) < 1:
        fail("every extent, stride and number of groups must be at least 1")
    if problem.c % problem.groups or problem.k % problem.groups:
        fail(f"groups (g) is {problem.groups}; it must divide {problem.c} and {problem.k}")
    if problem.p < 1 or problem.q < 1:
        fail(f"the output would have {problem.p} rows of {problem.q}")
    for letters, other, actual in (("oh", "ow", problem.p), ("ow", "oh", problem.q)):
        stated = numbers.get(letters, numbers.get(other, actual))
        if stated != actual:
            fail(f"{letters}{stated} is stated, but the other numbers give {letters}{actual}")
    return problem


def load_suite(name):
    """The problems of a built-in suite ('all': those that are timed), or of a file of lines."""
    if name == "all":
        return [problem for suite in SUITES if suite != "edges" for problem in load_suite(suite)]
    path = CASES / f"{name}.txt" if name in SUITES else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"suite '{name}' is none of {', '.join(SUITES)}, all, and no file that can be read: "
                       f"{error}") from None
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        line = re.match(r'(?:[^#"]|"[^"]*"?)*', line).group()
        if line.strip():
            try:
                problems.append(parse(line))
            except BadInput as error:
                raise BadInput(f"{path}:{number}: {error}") from None
    if not problems:
        raise BadInput(f"{path} holds no problem")
    return problems


def find(words):
    """Problems of command-line words: case names or lines, each with the key=value words after it."""
    named = {problem.name: problem for suite in SUITES for problem in load_suite(suite)}
    texts = []
    for word in words:
        if re.match(r'[a-z_]+=', word) and texts:
            texts[-1] += " " + word
        else:
            texts.append(word)
    problems = []
    for text in texts:
        head, _, extras = text.partition(" ")
        problems.append(parse(f"{to_line(named[head])} {extras}") if head in named else parse(text))
    return problems
