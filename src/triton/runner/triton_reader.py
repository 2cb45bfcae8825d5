"""Reads and edits a Triton file for `convtune refine`: its autotuned kernels and their lists, what a launch's grid
comes to, the same file with another list. By `ast` and its positions: nothing of the file is run.

Requests are lines of JSON on standard input, answers lines of JSON on standard output.
"""

import ast
import importlib.util
import json
import math
import re
import sys

from python_values import Config, Function, Imported, Meta, Named, NotKnown, Pair, PLAIN, Scope, Tensor, Values

MOST_CONFIGS = 20_000
FIRST_IMPORTS = ["import torch", "import torch.nn as nn", "import triton", "import triton.language as tl"]


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


class File:
    def __init__(self, source, path, target):
        self.path = path
        self.text = Text(source[1:] if source.startswith("\ufeff") else source)
        self.mark = source.startswith("\ufeff")
        try:
            self.tree = ast.parse(self.text.bytes)
        except SyntaxError as error:
            raise at_line(error.lineno or 1, f"this is no Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"this is no Python: {error}") from None
        self.known = known_on(target)
        self.values = Values(self.known)
        self.module = self.values.module(self.tree, path)
        self.functions = {}  # by name: the last of it
        self.all_launches = None
        self.kernels = []
        self.find(self.tree.body, [])
        self.find_assigned()
        self.kernels.sort(key=lambda kernel: kernel.line)
        listed = {id(kernel.node) for kernel in self.kernels if kernel.call}
        self.kernels = [kernel for kernel in self.kernels if kernel.call or id(kernel.node) not in listed]

    # Kernels

    def find(self, body, chain):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
                self.find_decorated(node, chain)
                self.find(node.body, [*chain, node])
            elif isinstance(node, ast.ClassDef):
                self.find(node.body, [*chain, node])
            else:
                for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                    inner = getattr(node, field, None)
                    if isinstance(inner, list):
                        self.find([item for item in inner if isinstance(item, ast.stmt)], chain)
                        for item in inner:
                            if not isinstance(item, ast.stmt):
                                self.find(item.body, chain)

    def find_decorated(self, node, chain):
        calls = [one for one in node.decorator_list if isinstance(one, ast.Call) and last_name(one) != "heuristics"
                 and configs_of_call(one) is not None]
        tuned = [one for one in node.decorator_list if last_name(one) == "autotune"]
        jit = any(is_jit(one) for one in node.decorator_list)
        if not jit and not tuned:
            return
        if not jit:
            calls = []
        kernel = Kernel(node.name, node.decorator_list[0].lineno, node, chain)
        call = calls[0] if calls else tuned[0] if tuned else None
        if call is not None:
            kernel.call, kernel.anchor = call, call.lineno
            if isinstance(call, ast.Call):
                kernel.list = configs_of_call(call)
            if not jit:
                kernel.list, kernel.why = None, f"'{node.name}' is autotuned and no @triton.jit"
        self.kernels.append(kernel)

    def find_assigned(self):
        """`tuned = triton.autotune(...)(kernel)`."""
        for owner in ast.walk(self.tree):
            if not isinstance(owner, (ast.Assign, ast.Expr, ast.Return, ast.AnnAssign)) or owner.value is None:
                continue
            for node in ast.walk(owner.value):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and node.args
                        and last_name(node.func) == "autotune" and configs_of_call(node.func) is not None):
                    continue
                inner = node.args[0]
                while isinstance(inner, ast.Call) and inner.args:
                    inner = inner.args[0]
                name = last_name(inner)
                definition = self.functions.get(name)
                kernel = Kernel(name or "?", owner.lineno, definition, self.chain_of(owner.lineno))
                kernel.call, kernel.list, kernel.anchor = node.func, configs_of_call(node.func), owner.lineno
                if isinstance(owner, ast.Assign):
                    kernel.names |= {last_name(target) for target in owner.targets} - {""}
                self.kernels.append(kernel)

    def chain_of(self, line):
        found, body = [], self.tree.body
        while True:
            inside = [node for node in body if hasattr(node, "body") and isinstance(node.body, list)
                      and node.lineno <= line <= node.end_lineno]
            if not inside:
                return found
            if isinstance(inside[0], (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append(inside[0])
            parts = [getattr(inside[0], field, []) for field in ("body", "orelse", "finalbody")]
            body = [item for part in parts for item in part]

    def scope_of(self, kernel):
        scope = self.module
        for at, node in enumerate(kernel.chain):
            inner = Scope(scope)
            if isinstance(node, ast.ClassDef):
                if at + 1 < len(kernel.chain):
                    continue  # a function within does not see the names of its class
            else:
                for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg,
                            node.args.kwarg]:
                    if arg is not None:
                        inner.names[arg.arg] = Named(arg.arg, None, frozenset([inner]),
                                                     f"'{arg.arg}' is a parameter of '{node.name}'")
            self.values.follow([one for one in node.body if one.lineno < kernel.anchor and one.end_lineno < kernel.line],
                               inner)
            scope = inner
        return scope

    # Lists

    def read_list(self, kernel):
        kernel.scope = self.scope_of(kernel)
        if kernel.why:
            return
        if kernel.list is None:
            kernel.why = f"'{last_name(kernel.call)}' of line {kernel.anchor} has no list of configs that stands there"
            return
        self.values.steps = 0
        try:
            value = self.values.value(kernel.list, kernel.scope)
            if isinstance(value, Named):
                raise NotKnown(value.why or f"'{value.text[:60]}' is not known here", kernel.list.lineno)
            if not isinstance(value, (list, tuple)):
                raise NotKnown("it is no list", kernel.list.lineno)
            if len(value) > MOST_CONFIGS:
                raise NotKnown(f"it has more than {MOST_CONFIGS} configs", kernel.list.lineno)
            for item in value:
                if not isinstance(item, Config):
                    raise NotKnown("an item of it is no triton.Config" if not isinstance(item, Named) else
                                   f"'{item.text[:60]}' is not known here", kernel.list.lineno)
            kernel.configs = list(value)
        except NotKnown as error:
            kernel.why = str(error) + (f" (line {error.line})" if error.line else "")
        except RecursionError:
            kernel.why = "it is nested too deeply"

    def visible(self, scopes, kernel):
        return scopes <= set(kernel.scope.chain())

    def written(self, value, kernel, what):
        """A value as text that means the same where the list stands."""
        if not self.visible(self.values.scopes(value), kernel):
            raise NotKnown(f"{what} is {self.values.text(value)[:60]}, a name that is not seen where the list stands")
        return self.values.text(value)

    def maker(self, kernel):
        for config in kernel.configs[:1]:
            if isinstance(config.maker, Named) and self.visible(config.maker.scopes, kernel):
                return config.maker.text
        for scope in kernel.scope.chain():
            for name, value in scope.names.items():
                named = value.named if isinstance(value, Imported) else value
                if isinstance(named, Named) and named.path == "triton":
                    return f"{name}.Config"
                if isinstance(named, Named) and named.path == "triton.Config":
                    return name
        return None

    def described(self, config, kernel):
        found = {"meta": [], "others": [], "warps": 4, "stages": 3, "line": config.line, "hidden": ""}
        try:
            for name, value in config.meta.items():
                found["meta"].append([name, self.written(value, kernel, name)])
            for name, value in config.others.items():
                if name in ("num_warps", "num_stages"):
                    if isinstance(value, bool) or not isinstance(value, int):
                        raise NotKnown(f"its {name} is {self.values.text(value)[:60]}, no number that is known")
                    found["warps" if name == "num_warps" else "stages"] = max(-1, min(value, 1 << 20))
                else:
                    found["others"].append([name, self.written(value, kernel, name)])
        except NotKnown as error:
            found["hidden"] = str(error)
        return found

    def read(self):
        answer = {"kernels": [], "layers": self.layers(), "triton": has_triton()}
        for at, kernel in enumerate(self.kernels):
            if kernel.call is not None:
                self.read_list(kernel)
            else:
                kernel.scope = self.scope_of(kernel)
                self.read_launches(kernel)
                if kernel.why == "":
                    continue  # a helper that other kernels call, or one that is launched as Triton likes
            use = KernelUse(kernel.node, self.functions) if kernel.node else None
            literal = isinstance(kernel.list, (ast.List, ast.Tuple)) and all(
                isinstance(item, ast.Call) for item in kernel.list.elts)
            hooks = sorted({word.arg for word in self.list_words(kernel) if word.arg and "hook" in word.arg})
            answer["kernels"].append({
                "at": at, "name": kernel.name, "line": kernel.line,
                "listed": kernel.call is not None, "literal": literal, "why": kernel.why or "",
                "configs": [self.described(config, kernel) for config in kernel.configs],
                "maker": self.maker(kernel) or "", "loops": use.loops() if use else "any",
                "hooks": hooks, "in_place": self.repeats_harm(kernel, use),
                "protected": kernel.call is not None and isinstance(kernel.call, ast.Call) and any(
                    word.arg in ("reset_to_zero", "restore_value") or (word.arg or "").endswith("hook")
                    for word in kernel.call.keywords),
                "pruned": kernel.call is not None and isinstance(kernel.call, ast.Call) and any(
                    word.arg == "prune_configs_by" for word in kernel.call.keywords)})
        return answer

    def list_words(self, kernel):
        """The keywords of every Config that the list's expression, or what of the file it names, makes."""
        found, seen, work = [], set(), [kernel.list] if kernel.list is not None else []
        while work:
            node = work.pop()
            for one in ast.walk(node):
                if isinstance(one, ast.Call) and last_name(one) == "Config":
                    found += one.keywords
                elif isinstance(one, ast.Name) and one.id not in seen:
                    seen.add(one.id)
                    holder = kernel.scope.holder(one.id)
                    value = holder.names[one.id] if holder else None
                    if isinstance(value, Function):
                        work.append(value.node)
                    work += [item.value for item in self.tree.body if isinstance(item, ast.Assign) and any(
                        isinstance(target, ast.Name) and target.id == one.id for target in item.targets)]
        return found

    # Launches

    def launches(self, kernel):
        """(call, the def round it) of every `kernel[grid](...)`."""
        if self.all_launches is None:
            self.all_launches = []
            work = [(self.tree, None)]
            while work:
                node, inside = work.pop()
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.Call) and isinstance(child.func, ast.Subscript):
                        self.all_launches.append((child, inside))
                    work.append((child, child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else inside))
            self.all_launches.sort(key=lambda one: (one[0].lineno, one[0].col_offset))
        return [one for one in self.all_launches if last_name(one[0].func.value) in kernel.names]

    def read_launches(self, kernel):
        """num_warps and num_stages of a kernel without a list, which stand at its launch."""
        launches = self.launches(kernel)
        kernel.why = "" if not launches else None
        if not launches:
            return
        found = []
        for call, inside in launches:
            values = {"num_warps": 4, "num_stages": 3}
            for word in call.keywords:
                if word.arg is None:
                    kernel.why = f"line {call.lineno}: what it is launched with stands in '**{ast.unparse(word.value)}'"
                    return
                if word.arg in values:
                    try:
                        value = self.values.value(word.value, self.scope_of_def(inside))
                    except (NotKnown, RecursionError):
                        value = None
                    if isinstance(value, bool) or not isinstance(value, int):
                        kernel.why = (f"line {call.lineno}: {word.arg} is worked out at the launch, "
                                      f"'{ast.unparse(word.value)[:60]}'")
                        return
                    values[word.arg] = value
            if values not in found:
                found.append(values)
        if len(found) > 1:
            kernel.why = f"it is launched with {len(found)} different num_warps and num_stages"
            return
        kernel.configs = [Config(None, {}, found[0], launches[0][0].lineno)]

    def scope_of_def(self, inside):
        scope = Scope(self.module)
        if inside is not None:
            for arg in [*inside.args.posonlyargs, *inside.args.args, *inside.args.kwonlyargs]:
                scope.names[arg.arg] = Named(arg.arg, None, frozenset([scope]))
            self.values.steps = 0
            self.values.follow(inside.body, scope)
        return scope

    def repeats_harm(self, kernel, use):
        """The pointers that a second run with the same arguments would find changed."""
        if use is None:
            return []
        harmed = set(use.atomics) | (use.stored & use.loaded)
        for call, _ in self.launches(kernel):
            texts = {}
            for name, value in self.arguments(kernel, call).items():
                texts.setdefault(ast.dump(value), []).append(name)
            for names in texts.values():
                if len(names) > 1 and set(names) & use.stored and set(names) & use.loaded:
                    harmed |= set(names) & use.stored
        return sorted(harmed)

    @staticmethod
    def arguments(kernel, call):
        names = [arg.arg for arg in [*kernel.node.args.posonlyargs, *kernel.node.args.args,
                                     *kernel.node.args.kwonlyargs]] if kernel.node else []
        found = {}
        for name, value in zip(names, call.args):
            if isinstance(value, ast.Starred):
                break
            found[name] = value
        found.update((word.arg, word.value) for word in call.keywords if word.arg in names)
        return found

    def launched(self, kernel, given, ask):
        """Follows each function that launches the kernel until `ask` has answered from what is known there."""
        why = f"'{kernel.name}' is launched nowhere in the file"
        for call, inside in self.launches(kernel):
            values = Values(self.known, given)
            answers = []

            def hook(node, scope, call=call, values=values, answers=answers):
                if node is not call and not (isinstance(node.func.value, ast.Name)
                                             and node.func.value.id in kernel.names):
                    return False
                if not answers:
                    values.launched = None
                    try:
                        answers.append(ask(values, node, scope))
                    except NotKnown as error:
                        answers.append(error)
                    finally:
                        values.launched = hook
                return True

            values.launched = hook
            scope = Scope(self.module)
            for arg in [] if inside is None else [*inside.args.posonlyargs, *inside.args.args,
                                                  *inside.args.kwonlyargs]:
                scope.names[arg.arg] = given.get(arg.arg, Named(arg.arg, None, frozenset([scope])))
            if inside is None:
                values.follow(self.tree.body, Scope())
            else:
                defaults = inside.args.defaults
                for arg, value in zip(inside.args.args[len(inside.args.args) - len(defaults):], defaults):
                    if arg.arg not in given and isinstance(value, ast.Constant) and value.value is not None:
                        scope.names[arg.arg] = value.value
                try:
                    values.follow(inside.body, scope)
                except Exception as error:  # a return: the launch came before, or does not come
                    why = str(error) or why
            if answers and not isinstance(answers[0], NotKnown):
                return answers[0]
            if answers:
                error = answers[0]
                why = f"line {error.line}: {error}" if error.line else str(error)
            elif inside is not None:
                why = f"line {call.lineno}: the launch is not reached by what is known"
        raise NotKnown(why)

    def grids(self, kernel, given):
        """How many blocks each config of the list launches."""
        def ask(values, node, scope):
            blocks = []
            for config in kernel.configs:
                values.steps = 0
                meta = {**config.meta, "num_warps": config.others.get("num_warps", 4)}
                grid = values.value(node.func.slice, scope)
                if isinstance(grid, Function):
                    grid = values.call(grid, [Meta(meta)], {}, node)
                extents = [grid] if isinstance(grid, int) else list(grid) if isinstance(grid, (list, tuple)) else None
                if not extents or not all(isinstance(extent, int) and extent > 0 for extent in extents):
                    unknown = [e for e in extents or [grid] if isinstance(e, Named)]
                    raise NotKnown(f"'{unknown[0].text[:60]}' is not known" if unknown else "the grid is not known",
                                   node.lineno)
                blocks.append(min(math.prod(extents), 1 << 62))
            return blocks

        return self.launched(kernel, given, ask)

    def layers(self):
        """The literal nn.Conv2d layers of the file."""
        names = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"]
        found = []
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call) or last_name(node) != "Conv2d":
                continue
            layer = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True}
            try:
                given = dict(zip(names, node.args)) | {word.arg: word.value for word in node.keywords}
                for name in names:
                    if name in given:
                        layer[name] = self.values.value(given[name], self.module)
                    value = layer[name]
                    pair = value if isinstance(value, tuple) else (value, value)
                    if len(pair) != 2 or not all(isinstance(one, int) for one in pair):
                        raise NotKnown(name)
                    layer[name] = [int(one) for one in pair]
            except (NotKnown, KeyError, RecursionError):
                continue
            found.append(layer)
        return found[:64]


class KernelUse:
    """What a kernel's body does: its loops, and which parameters are pointers that it loads from or stores to."""

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

    def sizes(self):
        """The parameters that an autotuner would tell problems apart by."""
        pointers = self.pointers()
        return [name for name in self.params if name not in self.constexprs and name not in pointers and not re.search(
            r"ptr|stride|eps|scale|alpha|beta|seed|offset|slope|momentum|_s$|^p$|lr", name, re.IGNORECASE)]


# Editing

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
    """What a top-level statement gives a name to."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return inner.union(*[bound_names(one) for one in ast.walk(node) if one is not node and isinstance(
        one, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))])


def needed_names(node):
    """What a statement needs while the file is loaded."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        a = node.args
        parts = [*node.decorator_list, *a.defaults, *[one for one in a.kw_defaults if one], node.returns,
                 *[arg.annotation for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs] if arg.annotation]]
        return set().union(*[_loads(part) for part in parts if part is not None])
    if isinstance(node, ast.ClassDef):
        return set().union(*[_loads(part) for part in [*node.decorator_list, *node.bases, *node.keywords]],
                           *[needed_names(part) for part in node.body])
    return _loads(node)


def _loads(node):
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
    begins = [file_text.starts[min([node.lineno, *[one.lineno for one in getattr(node, "decorator_list", [])]]) - 1]
              for node in body]
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
        while needed - seen:  # what it calls while it is loaded needs its own names, too
            name = (needed - seen).pop()
            seen.add(name)
            for other in owner.get(name, []):
                if other < at and (loose or isinstance(body[other], ast.ClassDef)):
                    needed |= _loads(body[other])
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


# Requests

def has_triton():
    try:
        return importlib.util.find_spec("triton") is not None
    except (ImportError, ValueError):
        return False


def known_on(target):
    capability = (target.get("major", 8), target.get("minor", 0))
    arch = 10 * capability[0] + capability[1]
    active = "triton.runtime.driver.active.get_current_target()"
    return {"torch.version.hip": None, "torch.version.cuda": "12.8", "torch.version.xpu": None,
            "torch.cuda.is_available()": True, "torch.xpu.is_available()": False,
            "torch.cuda.get_device_capability()": capability, f"{active}.backend": "cuda", f"{active}.arch": arch,
            f"{active}.warp_size": 32, "triton.runtime.driver.active.get_current_device()": 0,
            "torch.cuda.get_device_properties().multi_processor_count": target.get("sms", 1),
            "torch.cuda.get_device_properties().major": capability[0],
            "torch.cuda.get_device_properties().minor": capability[1],
            "torch.cuda.get_device_name()": target.get("product", ""), "os.environ": {}, "typing.TYPE_CHECKING": False}


def given_values(request):
    given = {name: Tensor(shape) for name, shape in request.get("tensors", {}).items()}
    given.update((name, Pair(value) if isinstance(value, list) else value)
                 for name, value in request.get("values", {}).items())
    return given


def chosen(file, at):
    if not isinstance(at, int) or not 0 <= at < len(file.kernels):
        raise Refused("there is no such kernel")
    return file.kernels[at]


def edited(file, request):
    notes, edits = [], Edits(file)
    for edit in request["edits"]:
        edits.list(chosen(file, edit["kernel"]), edit["configs"], edit["keep"])
    source = edits.text()
    if request["order"]:
        mark = source.startswith("\ufeff")
        source = ("\ufeff" if mark else "") + in_order(source[1:] if mark else source, notes)
    try:
        ast.parse(source[1:] if source.startswith("\ufeff") else source)
    except SyntaxError as error:
        raise Refused(f"the new file would be no Python, line {error.lineno}: {error.msg}") from None
    return {"source": source, "notes": notes}


def answer(state, request):
    if request["do"] == "read":
        state["file"] = File(request["source"], request.get("path") or None, request.get("target", {}))
        return state["file"].read()
    file = state.get("file")
    if file is None:
        raise Refused("no file was read")
    if request["do"] == "grids":
        try:
            return {"grids": file.grids(chosen(file, request["kernel"]), given_values(request)), "why": ""}
        except NotKnown as error:
            return {"grids": [], "why": str(error)}
    if request["do"] == "edit":
        return edited(file, request)
    raise Refused("there is no such request")


def main():
    sys.setrecursionlimit(4000)
    state = {}
    for line in sys.stdin:
        try:
            found = answer(state, json.loads(line))
        except Refused as error:
            found = {"refused": str(error)}
        except (RecursionError, MemoryError):
            found = {"refused": "it is nested too deeply"}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
