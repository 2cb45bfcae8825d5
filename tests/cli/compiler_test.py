"""Drives the real convtune command where `refine` asks Triton's compiler, with a stand-in for Triton: what the compiler
is told of a launch, and what is made of its answers.

Usage: compiler_test.py PATH_OF_CONVTUNE [unittest options]. Standard library only.
"""

import sys

from convtune_command import CliTest, main

# As Triton: a loop is pipelined, which costs shared memory, where rows begin at multiples of 16 bytes. A constant that is
# True costs some, too.
TRITON = {
    "__init__.py": """
__version__ = "9.9"
def jit(function): return function
def compile(source, target, options):
    import hashlib, types
    apart = any(["tt.divisibility", 16] in found and source.fn.__code__.co_varnames[at] == "stride"
                for (at,), found in source.attrs.items())
    more = 2048 * sum(value is True for value in source.constexprs.values())
    code = f"{options['num_warps']} {options['num_stages'] if apart else 0} {more}"
    shared = (4096 * options["num_stages"] if apart else 4096) + more
    return types.SimpleNamespace(asm={"cubin": code.encode()}, metadata=types.SimpleNamespace(shared=shared))
""",
    "language/__init__.py": """
from . import core
from .core import *
""",
    "language/core.py": """
import builtins
class constexpr:
    def __init__(self, value): self.value = value
    def to(self): pass
def load(): pass
def store(): pass
def program_id(): pass
""",
    "compiler.py": """
class ASTSource:
    def __init__(self, fn, signature, constexprs, attrs): self.fn, self.constexprs, self.attrs = fn, constexprs, attrs
""",
    "backends/__init__.py": "",
    "backends/compiler.py": "def GPUTarget(*words): return words\n",
}
SOURCE = """
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({'B': 64}, num_warps=4, num_stages=3)], key=['n'])
@triton.jit
def kernel(x_ptr, n, stride, B: tl.constexpr):
    for i in range(n):
        tl.store(x_ptr + tl.program_id(0) * stride + i, tl.load(x_ptr + i))


def run(x):
    %s
    kernel[(8,)](x, x.shape[1], %s)
"""


class Compiler(CliTest):
    def environment(self):
        return {**super().environment(), "PYTHONPATH": str(self.folder / "modules")}

    def refined(self, stride, *words, shape="rows, columns = x.shape", source=SOURCE, trust=("--trust", "--no-import")):
        for name, text in TRITON.items():
            file = self.folder / "modules" / "triton" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        file = self.folder / "in.py"
        file.write_text(source % (shape, stride))
        return self.ok("refine", str(file), "--target", "h100", "--kernel", "kernel", "--python", sys.executable, *trust,
                       "-o", str(self.folder / "out.py"), *words).stdout

    def test_nothing_of_the_file_is_run_untold(self):
        """The marker is a file that each form makes where it is run."""
        marker = self.folder / "marker"
        run = f"__import__('os').system('touch {marker}')"
        body = "    for i in range(n):"
        form = {
            "a constant": SOURCE.replace("@triton.autotune", f"SIZE = {run} * 0 + 128\n@triton.autotune").replace(
                "tl.load(x_ptr + i)", "tl.load(x_ptr + i + SIZE)"),
            "a list": SOURCE.replace("configs=[", f"configs={run} or ["),
            "a config's value": SOURCE.replace("{'B': 64}", "{'B': (lambda: %s * 0 + 64)()}" % run),
            "another argument": SOURCE.replace("num_stages=3", f"num_stages=3, maxnreg=(lambda: {run} * 0 + 64)()"),
            "a default": SOURCE.replace("B: tl.constexpr)", f"B: tl.constexpr = {run})"),
            "an annotation": SOURCE.replace("x_ptr, n", f"x_ptr: {run}, n"),
            "an answer's annotation": SOURCE.replace("tl.constexpr):", f"tl.constexpr) -> {run}:"),
            "a decorator": SOURCE.replace("@triton.jit", f"@({run} or triton).jit"),
            "another's decorator": SOURCE.replace("@triton.autotune", f"@({run} or triton).jit\ndef other(x):\n    pass\n"
                                                  "@triton.autotune").replace(body, "    other(n)\n" + body),
            "a statement": SOURCE.replace("@triton.autotune", f"SIZE = 3\nif {run} == 0:\n    SIZE = 4\n@triton.autotune").replace(
                "tl.load(x_ptr + i)", "tl.load(x_ptr + SIZE)"),
            "a function": SOURCE.replace("@triton.autotune", f"def size():\n    return {run}\n@triton.autotune").replace(
                body, "    size()\n" + body),
            "an import": "import convtune_marker\n" + SOURCE.replace(body, "    convtune_marker.f()\n" + body),
            "the language's own imports": SOURCE.replace(body, f"    tl.core.builtins.exec({run!r})\n" + body),
            "an attribute": SOURCE.replace(body, "    (1).__class__.__base__.__subclasses__()\n" + body),
            "a built-in function": SOURCE.replace(body, "    getattr(tl, 'core')\n" + body),
            "the module's built-ins": SOURCE.replace(body, f"    __builtins__['exec']({run!r})\n" + body),
        }
        (self.folder / "convtune_marker.py").write_text(f"{run}\ndef f(): pass\n")
        named = ["--original", "num_warps=4 num_stages=3"]
        for name, source in form.items():
            for trust in ((), ("--trust", "--no-import")):
                with self.subTest(name, trust=trust):
                    report = self.refined("x.stride(0)", *named, source=source, trust=trust)
                    self.assertFalse(marker.exists())
                    self.assertEqual("--trust lets Triton compile the kernel" in " ".join(report.split()), not trust, report)
        unknown = form["a constant"].replace("configs=[", "configs=unknown or [")  # its list is not read: it is imported
        self.refined("x.stride(0)", *named, source=unknown, trust=("--trust",))
        self.assertTrue(marker.exists())  # the purpose --trust is for, and that the forms can be run

    def test_what_is_refused_is_named(self):
        for line, needle in (("tl.core.builtins.exec('1')", "'triton.language.core.builtins' is not Triton's language"),
                             ("(1).__class__", "'.__class__' is not Triton's language"),
                             ("getattr(tl, 'core')", "'getattr' is not Triton's language")):
            report = self.refined("x.stride(0)", source=SOURCE.replace("    for i", f"    {line}\n    for i"))
            self.assertIn("Triton 9.9 does not compile it: Failed: " + needle, " ".join(report.split()))

    def test_strides_but_the_last_lead_from_row_to_row(self):
        for stride, shape in (("x.stride(0)", ""), ("x.stride(0) // 1", ""), ("x.stride(0)", "rows, columns = x.shape"),
                              ("x.stride(1)", "batch, rows, columns = x.shape"),
                              ("x.stride(-2)", "rows, columns = x.size()")):
            report = self.refined(stride, shape=shape or "pass")
            self.assertIn("compiled by Triton 9.9", report)
            self.assertIn("R2: num_stages 3 -> 4 and 2", report, (stride, shape))
        for stride, shape in (("x.stride(1)", ""), ("x.stride(-1)", "batch, rows, columns = x.shape"),
                              ("x.stride(0)", "n, = x.shape"), ("x.stride(2)", "batch, rows, columns = x.size()")):
            self.assertIn("is the same machine code as", self.refined(stride, shape=shape or "pass"), (stride, shape))

    def test_what_is_not_known_is_named_in_order(self):
        constants = ", ".join(f"C{number}: tl.constexpr" for number in range(5))
        for _ in range(3):  # each Python hashes texts in a way of its own
            report = self.refined("x.stride(0)", source=SOURCE.replace("B: tl.constexpr", f"{constants}, B: tl.constexpr"))
            self.assertIn("the value of C0, C1, C2, C3, C4 is not known", report)

    def test_truth_values_that_are_not_known_are_compiled_both_ways(self):
        source = SOURCE.replace("B: tl.constexpr", "HAS: tl.constexpr, B: tl.constexpr").replace(
            "    for i", "    if HAS:\n        tl.store(x_ptr, 0)\n    for i").replace("%s)", "%s, HAS=unknown(x))")
        report = " ".join(self.refined("x.stride(0)", source=source).split())
        self.assertIn("compiled with HAS=False and HAS=True, which the source does not tell: the larger needs count", report)
        metrics = self.folder / "m.json"
        for bytes_, value in ((3 * 4096, "False"), (3 * 4096 + 2048, "True")):
            metrics.write_text('{"kernel": {"launch__shared_mem_per_block": %d}}' % bytes_)
            report = " ".join(self.refined("x.stride(0)", "--metrics", str(metrics), source=source).split())
            self.assertIn(f"compiled with HAS={value}, which the source does not tell, as was profiled", report)
        # A name that a number is computed from is no truth value.
        report = self.refined("x.stride(0)", source=source.replace("tl.store(x_ptr, 0)", "tl.store(x_ptr, HAS + 1)"))
        self.assertIn("the value of HAS is not known", report)
        # The type of tensors is assumed, and what depends on it follows.
        known = source.replace("HAS=unknown(x)", "HAS=x.dtype in (torch.float32, torch.float16)")
        self.assertNotIn("HAS", self.refined("x.stride(0)", source="import torch\n" + known))

    def test_a_launch_that_the_source_does_not_show(self):
        metrics = self.folder / "m.json"
        for bytes_, same in ((4096, True), (5120, True), (12288, False)):
            metrics.write_text('{"kernel": {"launch__shared_mem_per_block": %d}}' % bytes_)
            report = self.refined("x.stride(1)", "--metrics", str(metrics))
            self.assertEqual("is the same machine code as" in report, same, report)
            other = "a block has 4096 bytes of shared memory, and 12288 were profiled" in report
            self.assertEqual(other, not same, report)


if __name__ == "__main__":
    main()
