"""Writes this file with another list, byte for byte else; on request in the strict order."""

import ast

from triton_source import at_line, is_jit, KernelUse, last_name, Text

FIRST_IMPORTS = ["import torch", "import torch.nn as nn", "import triton", "import triton.language as tl"]


def config_text(config, maker):
    words = ["{" + ", ".join(f"'{name}': {text}" for name, text in config["meta"]) + "}",
             f"num_warps={config['warps']}", f"num_stages={config['stages']}",
             *[f"{name}={text}" for name, text in config["others"]]]
    return f"{maker}({', '.join(words)})"


class Edits:
    """Replacements of a file's bytes, each at its place."""

    def __init__(self, file):
        self.file, self.parts = file, []

    def add(self, begin, end, text):
        self.parts.append((begin, end, text.encode()))

    def entries(self, configs, maker, indent, line_end):
        inner = indent + "        "
        lines = []
        for config in configs:
            if config["comment"]:
                lines.append(f"{inner}# {config['comment']}")
            lines.append(f"{inner}{config_text(config, maker)},")
        return line_end.join(lines)

    def list(self, kernel, configs, keep):
        file, text = self.file, self.file.text
        maker = file.maker(kernel)
        if maker is None:
            raise at_line(kernel.anchor, "nothing in the file names triton, so that a config cannot be written there")
        indent, line_end = text.indent(kernel.anchor), text.line_end
        if kernel.call is None:
            return self.decorate(kernel, configs, maker, indent, line_end)
        if kernel.list is None:
            raise at_line(kernel.anchor, kernel.why or "there is no list of configs to replace")
        begin, end = text.span(kernel.list)
        entries = self.entries(configs, maker, indent, line_end)
        if not keep:
            return self.add(begin, end, f"[{line_end}{entries}{line_end}{indent}    ]")
        if isinstance(kernel.list, ast.List) and kernel.list.elts:
            last = text.span(kernel.list.elts[-1])[1]
            return self.add(last, last, f",{line_end}{entries[:-1]}")
        old = text.of(begin, end)
        return self.add(begin, end, f"[{line_end}{indent}        *({old}),{line_end}{entries}{line_end}{indent}    ]")

    def decorate(self, kernel, configs, maker, indent, line_end):
        """A list where there is none: above the kernel, and out of its launches."""
        file, text = self.file, self.file.text
        use = KernelUse(kernel.node, file.functions)
        above = next(one for one in kernel.node.decorator_list if is_jit(one) or last_name(one) == "heuristics")
        place = text.starts[above.lineno - 1]
        words = [f"configs=[{line_end}{self.entries(configs, maker, indent, line_end)}{line_end}{indent}    ],",
                 f"key={use.sizes()!r},"]
        harmed = file.repeats_harm(kernel, use)
        if harmed:
            words.append(f"restore_value={harmed!r},")
        body = "".join(f"{indent}    {word}{line_end}" for word in words)
        name = maker.rsplit(".", 1)[0] + ".autotune" if "." in maker else "triton.autotune"
        self.add(place, place, f"{indent}@{name}({line_end}{body}{indent}){line_end}")
        for call, _ in file.launches(kernel):
            ordered = sorted([*call.args, *call.keywords], key=lambda one: (one.lineno, one.col_offset))
            for at, one in enumerate(ordered):
                if isinstance(one, ast.keyword) and one.arg in ("num_warps", "num_stages"):
                    before = text.span(ordered[at - 1])[1] if at else None
                    begin, end = text.span(one)
                    if before is None:  # the first: up to the next
                        end = text.span(ordered[1])[0] if len(ordered) > 1 else end
                    self.add(begin if before is None else before, end, "")

    def text(self):
        result, done = [], 0
        for begin, end, new in sorted(self.parts, key=lambda part: part[:2]):
            result += [self.file.text.bytes[done:begin], new]
            done = max(done, end)
        result.append(self.file.text.bytes[done:])
        return ("\ufeff" if self.file.mark else "") + b"".join(result).decode()


# The strict order: imports, constants, kernels, other functions, classes; what only tests is left out.

def is_test(node):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.name in ("get_inputs", "get_init_inputs") or node.name.startswith("test_")
    return isinstance(node, ast.If) and "__name__" in ast.dump(node.test) and "__main__" in ast.dump(node.test)


def bound_names(node):
    """Returns the names that a top-level statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return inner.union(*[bound_names(one) for one in ast.walk(node) if one is not node and isinstance(
        one, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))])


def needed_names(node):
    """Returns the names that a statement needs while the file is loaded."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        a = node.args
        parts = [*node.decorator_list, *a.defaults, *[one for one in a.kw_defaults if one], node.returns,
                 *[arg.annotation for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs] if arg.annotation]]
        return set().union(*[loaded_names(part) for part in parts if part is not None])
    if isinstance(node, ast.ClassDef):
        return set().union(*[loaded_names(part) for part in [*node.decorator_list, *node.bases, *node.keywords]],
                           *[needed_names(part) for part in node.body])
    return loaded_names(node)


def loaded_names(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def import_rank(node):
    text = ast.unparse(node)
    if text.startswith("from __future__"):
        return -1
    return FIRST_IMPORTS.index(text) if text in FIRST_IMPORTS else len(FIRST_IMPORTS)


def section(node, first, kernels):
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and first:
        return (0, 0)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return (1, import_rank(node))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        jit = any(is_jit(one) or last_name(one) == "autotune" for one in node.decorator_list)
        return (3, 0) if jit or node.name in kernels else (4, 0)
    return (5, 0) if isinstance(node, ast.ClassDef) else (2, 0)


def in_order(source, notes):
    file_text = Text(source)
    tree = ast.parse(file_text.bytes)
    body = tree.body
    ends = []
    for at, node in enumerate(body):
        line = node.end_lineno
        ends.append(file_text.starts[line] if line < len(file_text.starts) else len(file_text.bytes))
        if at + 1 < len(body) and body[at + 1].lineno == node.end_lineno:
            raise at_line(node.lineno, "two statements in one line, which an order cannot part")
    pieces = {}  # with the comments and blank lines before each
    previous = 0
    for at in range(len(body)):
        pieces[at] = file_text.of(previous, ends[at])
        previous = ends[at]
    rest = file_text.of(previous, len(file_text.bytes))
    kept = []
    for at, node in enumerate(body):
        if is_test(node):
            notes.append(f"line {node.lineno}: left out, since it only tests")
        else:
            kept.append(at)
    owner = {}
    for at in kept:
        for name in bound_names(body[at]):
            owner.setdefault(name, []).append(at)
    kernels = {node.args[0].id for one in ast.walk(tree) for node in [one] if isinstance(node, ast.Call)
               and isinstance(node.func, ast.Call) and last_name(node.func) == "autotune" and node.args
               and isinstance(node.args[0], ast.Name)}
    place = {at: section(body[at], at == 0, kernels) for at in kept}
    done, order = set(), []

    def emit(at):
        if at in done:
            return
        done.add(at)
        needed, seen = needed_names(body[at]), set()
        loose = place[at] == (2, 0)
        while needed - seen:  # a function that it calls while it is loaded needs its own names, too
            name = (needed - seen).pop()
            seen.add(name)
            for other in owner.get(name, []):
                if other < at and (loose or isinstance(body[other], ast.ClassDef)):
                    needed |= loaded_names(body[other])
                if other < at:
                    emit(other)
        order.append(at)

    for at in sorted(kept, key=lambda one: (place[one], one)):
        emit(at)
    if order != kept:
        notes.append("the order is now: imports, constants, kernels, other functions, classes")
    ending = file_text.line_end
    parts = [pieces[at] if pieces[at].endswith(("\n", "\r")) else pieces[at] + ending for at in order]
    return "".join(parts) + rest
