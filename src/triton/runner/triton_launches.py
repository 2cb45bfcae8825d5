"""A Triton file's launches: the values that stand there, and what their grids come to."""

import ast
import math

from python_objects import Config, Function, Meta, Named, NotKnown, Scope
from python_values import Values
from triton_source import last_name


class Launches:
    """The part of File that is about launches."""

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
        found, worked_out = [], set()
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
                        kernel.why = kernel.why or (f"line {call.lineno}: {word.arg} is worked out at the launch, "
                                                    f"'{ast.unparse(word.value)[:60]}'")
                        worked_out.add(word.arg)
                        value = None
                    values[word.arg] = value
            if values not in found:
                found.append(values)
        if worked_out:
            stages = {values["num_stages"] for values in found}
            kernel.stages = stages.pop() if worked_out == {"num_warps"} and len(stages) == 1 else None
            return
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
