"""A Triton file's bytes by the positions of its tree, its kernels, and what a kernel's body does."""

import ast
import re


class Refused(Exception):
    """Why a file cannot be read or edited; what a person is shown."""


def at_line(line, why):
    return Refused(f"line {line}: {why}")


def last_name(node):
    """`autotune` of triton.autotune, of autotune, of either called."""
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_jit(node):
    return last_name(node).endswith("jit")


def configs_of_call(call):
    """The expression of the list in `autotune(...)`, or in a project's own decorator with `configs=`."""
    for keyword in call.keywords:
        if keyword.arg == "configs":
            return keyword.value
    if last_name(call) == "autotune" and call.args and not isinstance(call.args[0], ast.Starred):
        return call.args[0]
    return None


class Text:
    """A file's bytes by the positions of its tree."""

    def __init__(self, source):
        self.bytes = source.encode()
        self.starts = [0] + [match.end() for match in re.finditer(rb"\r\n|\r|\n", self.bytes)]
        self.line_end = "\r\n" if b"\r\n" in self.bytes else "\n"

    def at(self, line, column):
        return self.starts[line - 1] + column

    def span(self, node):
        begin = self.at(node.lineno, node.col_offset)
        return begin, self.at(node.end_lineno, node.end_col_offset)

    def of(self, begin, end):
        return self.bytes[begin:end].decode()

    def indent(self, line):
        text = self.of(self.starts[line - 1], self.starts[line] if line < len(self.starts) else len(self.bytes))
        return text[:len(text) - len(text.lstrip(" \t"))]


class Kernel:
    """A jit function: with a list, or with none and launched with values of its own."""

    def __init__(self, name, line, node, chain):
        self.name, self.line, self.node, self.chain = name, line, node, chain
        self.call = self.list = None  # autotune(...), and the expression of its list
        self.anchor = line  # the line whose indentation the list has
        self.names = {name}  # by which it is launched
        self.configs, self.why, self.note = [], None, None
        self.blocks = {}  # without a list: sizes of its launch
        self.stages = None  # without a list whose num_warps is worked out: its num_stages


class KernelUse:
    """Summarises a kernel's body: its loops, and which parameters are pointers that it loads from or stores to."""

    def __init__(self, node, functions):
        self.node, self.functions = node, functions
        a = node.args
        self.params = [arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]]
        self.constexprs = {arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]
                           if arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation)}
        self.roots = {name: name for name in self.params if name not in self.constexprs}
        self.loaded, self.stored, self.atomics = set(), set(), set()
        for _ in range(2):
            for one in ast.walk(node):
                self.follow(one)

    def follow(self, node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            root = self.root(node.value)
            if root and node.targets[0].id not in self.params:
                self.roots[node.targets[0].id] = root
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            kept = {"load": self.loaded, "store": self.stored}.get(name)
            kept = self.atomics if name.startswith("atomic_") else kept
            if kept is None:
                return
            root = self.root(node.args[0]) if node.args else None
            base = self.root(node.func.value)
            root = base if base else root  # desc.load([...]) or tl.load(pointer)
            if root:
                kept.add(root)

    def root(self, node):
        if isinstance(node, ast.Name):
            return self.roots.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return self.root(node.left) or self.root(node.right)
        if isinstance(node, ast.Call):
            name = last_name(node)
            if name in ("make_block_ptr", "advance", "make_tensor_descriptor", "multiple_of", "max_contiguous"):
                words = {word.arg: word.value for word in node.keywords}
                first = node.args[0] if node.args else words.get("base", words.get("base_ptr"))
                return self.root(first) if first is not None else None
            if name == "to" and isinstance(node.func, ast.Attribute):
                return self.root(node.func.value)
        return None

    def pointers(self):
        return self.loaded | self.stored | self.atomics

    def loops(self, seen=None):
        """"none", "static" where each is unrolled before Triton pipelines, else "any"."""
        seen = seen if seen is not None else set()
        seen.add(self.node.name)
        found = "none"
        for node in ast.walk(self.node):
            if isinstance(node, (ast.While, ast.ListComp, ast.GeneratorExp)):
                return "any"
            if isinstance(node, ast.For):
                if last_name(node.iter) != "static_range":
                    return "any"
                found = "static"
            if isinstance(node, ast.Call):
                name = last_name(node)
                callee = self.functions.get(name)
                plain = isinstance(node.func, ast.Name) and name not in (
                    "range", "min", "max", "abs", "float", "int", "len", "print", "isinstance", "bool")
                if callee is not None and name not in seen and any(is_jit(one) for one in callee.decorator_list):
                    inner = KernelUse(callee, self.functions).loops(seen)
                    if inner == "any":
                        return "any"
                    found = inner if found == "none" else found
                elif plain and callee is None:
                    return "any"  # a function of another file
        return found

    def fixed(self, seen=None):
        """Why neither its warps nor its stages are the autotuner's to choose; empty where they are."""
        seen = seen if seen is not None else set()
        seen.add(self.node.name)
        if any(ast.unparse(one).split(".")[0] == "gluon" for one in self.node.decorator_list):
            return "it is a Gluon kernel, whose layouts name its warps and whose code is its pipeline"
        for node in ast.walk(self.node):
            if isinstance(node, ast.Call) and any(word.arg == "warps_per_cta" for word in node.keywords):
                return f"its layout of line {node.lineno} names its warps"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tlx":
                return f"it is written in TLX (line {node.lineno}), whose code names its warps and is its pipeline"
            callee = self.functions.get(last_name(node)) if isinstance(node, ast.Call) else None
            if callee is not None and callee.name not in seen and any(is_jit(one) for one in callee.decorator_list):
                found = KernelUse(callee, self.functions).fixed(seen)
                if found:
                    return found
        return ""

    def sizes(self):
        """The parameters that an autotuner would tell problems apart by."""
        pointers = self.pointers()
        return [name for name in self.params if name not in self.constexprs and name not in pointers and not re.search(
            r"ptr|stride|eps|scale|alpha|beta|seed|offset|slope|momentum|_s$|^p$|lr", name, re.IGNORECASE)]
