"""Problem lines as convtune reads and writes them: benchdnn's convolution grammar, then key=value words.

Used by peers.py, so that it asks for the same work in the same words where no convtune is installed.
include/convtune/problem.h tells the grammar; tests/bench/peers_test.py holds both to each other.
"""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

LETTERS = ("mb", "g", "ic", "id", "ih", "iw", "oc", "od", "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw",
           "pd", "ph", "pw", "dd", "dh", "dw")
HEAD = re.compile(r'(?P<numbers>(?:_|(?!n)[A-Za-z]+\d+)*)(?:n(?:"(?P<quoted>[^"]*)"|(?P<bare>[^"\s]*)))?(?=\s|$)')
NUMBER = r"-?\d+(\.\d+)?(e-?\d+)?"
ACTIVATIONS = ("none", "relu", f"clip:{NUMBER}:{NUMBER}", "silu", "gelu_erf", "gelu_tanh", "hardswish",
               f"leaky_relu:{NUMBER}", "sigmoid")
# The values of a word, as regular expressions.
WORDS = {"precision": ("auto", "fp32", "tf32", "fp16", "bf16"), "layout": ("nchw", "nhwc"),
         "dtype": ("f32", "f16", "bf16"), "act": ACTIVATIONS, "bias": ("0", "1"), "residual": ("0", "1"),
         "pad_bottom": (r"\d+",), "pad_right": (r"\d+",)}
CASES = Path(__file__).resolve().parent.parent / "cases"
SUITES = ("stem", "body", "depthwise", "edges")


class BadInput(ValueError):
    """Whatever the user gave cannot be used; the message says what and why."""


def end_with(main, codes=()):
    """Ends the program with what main(arguments) returns, or with a message and 2 where it is BadInput, or the code of another class of
    errors among `codes`: pairs of both."""
    try:
        sys.exit(main(sys.argv[1:]))
    except (BadInput, *(kind for kind, _ in codes)) as error:
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        sys.exit(next((code for kind, code in codes if isinstance(error, kind)), 2))


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
    residual: bool = False
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

    transposed = False
    x_shape = property(lambda self: (self.n, self.c, self.h, self.w))
    w_shape = property(lambda self: (self.k, self.c // self.groups, self.r, self.s))
    y_shape = property(lambda self: (self.n, self.k, self.p, self.q))
    strides = property(lambda self: (self.stride_h, self.stride_w))
    dilations = property(lambda self: (self.dilation_h, self.dilation_w))
    before = property(lambda self: (self.pad_top, self.pad_left))
    behind = property(lambda self: (self.pad_bottom, self.pad_right))

    @property
    def activation(self):
        """The activation's name and its parameters: ("clip", [0.0, 6.0])."""
        name, *parameters = self.act.split(":")
        return name, [float(parameter) for parameter in parameters]

    def line(self):
        return to_line(self)

    def key(self):
        """The shortest line for it, without the name: what convtune prints."""
        return to_line(replace(self, name=""))


def to_line(a):
    steps = ((a.stride_h, a.stride_w, 1), (a.pad_top, a.pad_left, 0), (a.dilation_h - 1, a.dilation_w - 1, 0))
    oblong = (a.h != a.w) + (a.r != a.s)
    unlike = [wide != usual for high, wide, usual in steps if high != wide]
    widths = oblong == 2 or (oblong == 0 and unlike and not any(unlike))  # benchdnn would copy none, or all

    def pair(h, w, high, wide, usual):
        if high == wide == usual:
            return ""
        return f"{h}{high}" + (f"{w}{wide}" if wide != high or widths else "")

    line = (f"g{a.groups}" if a.groups != 1 else "") + (f"mb{a.n}" if a.n != 2 else "") + f"ic{a.c}"
    line += pair("ih", "iw", a.h, a.w, None) + f"oc{a.k}" + pair("kh", "kw", a.r, a.s, None)
    line += "".join(pair(f"{what}h", f"{what}w", *step) for what, step in zip("spd", steps))
    line += f'n"{a.name}"' if a.name else ""
    for word, value, usual in (("precision", a.precision, "auto"), ("layout", a.layout, "nchw"),
                               ("dtype", a.dtype, "f32"), ("act", a.act, "none"), ("bias", int(a.bias), 1),
                               ("residual", int(a.residual), 0),
                               ("pad_bottom", a.pad_bottom, a.pad_top), ("pad_right", a.pad_right, a.pad_left)):
        line += f" {word}={value}" if value != usual else ""
    return line


def split(line, fail):
    """A line's numbers by their letters, its key=value words, and its name."""
    head = HEAD.match(line)
    if not head:
        fail("it does not begin with letters and numbers like mb256ic3ih224oc96kh11, or goes on after its name")
    numbers, words = {}, {}
    for letters, digits in re.findall(r"([A-Za-z]+)(\d+)", head["numbers"]):
        if letters not in LETTERS:
            fail(f"'{letters}' is none of {' '.join(LETTERS)} n\"name\"")
        if letters in numbers:
            fail(f"'{letters}' is given twice")
        numbers[letters] = int(digits)
    for word in line[head.end():].split():
        key, equals, value = word.partition("=")
        if not equals or key not in WORDS:
            fail(f"'{word}' is none of the words {' '.join(f'{k}=' for k in WORDS)}")
        if key in words:
            fail(f"'{key}' is given twice")
        if not any(re.fullmatch(form, value) for form in WORDS[key]):
            fail(f"{key} is not {value!r}; it is one of {' '.join(WORDS[key])}".replace(NUMBER, "N"))
        words[key] = value
    return numbers, words, head["quoted"] or head["bare"] or ""


def axes(numbers, fail):
    """Height and width as dicts of i image, k filter, o output, s stride, p padding (None: not written) and d
    dilation from 0, completed as benchdnn completes them; and whether the width is a copy."""
    usual = {"i": 0, "k": 0, "o": 0, "s": 1, "p": None, "d": 0}
    depth, height, width = ({what: numbers.get(what + axis, usual[what]) for what in usual} for axis in "dhw")
    has_depth, has_height, has_width = ({**axis, "p": axis["p"] or None} != usual for axis in (depth, height, width))
    if has_depth and (depth["i"] != 1 or depth["k"] != 1 or depth["o"] > 1 or depth["p"] or depth["s"] < 1):
        fail("a depth that is not 1 belongs to a 3-D convolution")
    if not has_height:
        if not has_width:
            height = dict(depth)
        elif not has_depth and width["i"] and width["k"]:
            height = {**usual, "i": 1, "k": 1}
    if not (height["i"] and height["k"]):
        fail("ih, kh, iw or kw is missing, and has no default")
    if not has_width:
        if has_height and has_depth:
            fail("iw is missing, and has no default")
        width = dict(height)
    elif not (width["i"] and width["k"]):  # the text that to_line writes where the image or the filter is square
        if numbers.keys() & {"oh", "ow", "id"}:
            fail("iw or kw is missing, and has no default")
        for what in "spd":
            if what + "w" in numbers and what + "h" not in numbers:
                fail(f"{what}w stands without {what}h")
        width = {what: (width[what] or height[what]) if what in "ik" else numbers.get(what + "w", height[what])
                 for what in usual}
    return height, width, not has_width


def derive(axis, after):
    """(before, after): the padding that is written, or what the stated output asks for; `after`: our own word."""
    needed = (axis["o"] - 1) * axis["s"] + (axis["k"] - 1) * (axis["d"] + 1) + 1 - axis["i"]
    derived = axis["o"] > 0 and after is None
    before = axis["p"] if axis["p"] is not None else max(needed, 0) // 2 if derived else 0
    if derived and not 0 <= 2 * before - needed < axis["s"]:
        return before, max(needed - before, 0)
    return before, before if after is None else int(after)


def parse(line):
    def fail(why):
        raise BadInput(f"problem '{line.strip()}': {why}")

    numbers, words, name = split(line.strip(), fail)
    for letters in ("ic", "oc"):
        if letters not in numbers:
            fail(f"{letters} is missing, and has no default")
    height, width, square = axes(numbers, fail)
    top, bottom = derive(height, words.get("pad_bottom"))
    left, right = derive(width, words.get("pad_right"))
    if square:  # benchdnn takes sw1, pw0 and dw0 for not written
        for letters, copied in (("sw", height["s"]), ("pw", top), ("dw", height["d"])):
            if numbers.get(letters, copied) != copied:
                fail(f"benchdnn reads {letters}{copied} where there is neither iw nor kw: write them too")
    problem = Problem(numbers.get("mb", 2), numbers["ic"], height["i"], width["i"], numbers["oc"], height["k"],
                      width["k"], numbers.get("g", 1), height["s"], width["s"], height["d"] + 1, width["d"] + 1,
                      top, left, bottom, right, words.get("precision", "auto"), words.get("layout", "nchw"),
                      words.get("dtype", "f32"), words.get("act", "none"), words.get("bias", "1") == "1",
                      words.get("residual", "0") == "1", name)
    if min(problem.c, problem.h, problem.w, problem.k, problem.r, problem.s, problem.groups, problem.stride_h,
           problem.stride_w) < 1:
        fail("every extent, stride and number of groups must be at least 1")
    if problem.c % problem.groups or problem.k % problem.groups:
        fail(f"groups (g) is {problem.groups}; it must divide {problem.c} and {problem.k}")
    if problem.p < 1 or problem.q < 1:
        fail(f"the output would have {problem.p} rows of {problem.q}")
    for letters, actual in (("oh", problem.p), ("ow", problem.q)):
        if numbers.get(letters, 0) not in (0, actual):
            fail(f"{letters}{numbers[letters]} is stated, but the other numbers give {letters}{actual}")
    return problem


def load_suite(name, left_out=None):
    """The problems of a built-in suite ('all': those that are timed), or of a file of lines. Lines that cannot be
    used go to the list `left_out` with their place and the reason, or are raised where there is none."""
    if name == "all":
        return [problem for suite in SUITES if suite != "edges" for problem in load_suite(suite)]
    path = CASES / f"{name}.txt" if name in SUITES else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"suite '{name}' is none of {', '.join(SUITES)}, all, and no file that can be read: "
                       f"{error}") from None
    problems, reasons = [], []
    for number, line in enumerate(text.splitlines(), 1):
        line = re.match(r'(?:[^#"]|"[^"]*"?)*', line).group().strip()
        if line:
            try:
                if line.startswith("--"):
                    raise BadInput(f"benchdnn's option '{line.split()[0]}' is not heeded")
                problems.append(parse(line))
            except BadInput as error:
                reasons.append(f"{path}:{number}: {error}")
    if not problems or (reasons and left_out is None):
        raise BadInput(reasons[0] if reasons else f"{path} holds no problem")
    if reasons:
        left_out.extend(reasons)
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
