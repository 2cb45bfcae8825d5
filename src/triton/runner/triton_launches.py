"""A Triton file's launches: the values that stand there, and what their grids come to."""

import ast
import math

from python_objects import Class, Config, Function, Given, Instance, Meta, Named, NotKnown, product_of, Scope
from python_values import Values
from triton_source import KernelUse, last_name


MOST_ANSWERS = 64  # per launch, which a loop may repeat


class Model:
    """A class of the file whose __init__() and forward() lead to its launches."""

    def __init__(self, cls):
        self.cls = cls

    def parameters(self):
        return {name for method in ("__init__", "forward") for name in self.names(method)}

    def names(self, method):
        function = self.cls.methods.get(method)
        a = function.node.args if function else None
        return [arg.arg for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]][1:] if a else []

    def beside(self, given):
        """Values that hold in every function: not what the command line says of the model's own parameters."""
        return Given({name: value for name, value in given.items() if name not in given.own & self.parameters()})

    def follow(self, values, given):
        made = Instance(self.cls)
        for method in ("__init__", "forward"):
            function = values.method_of(self.cls, method)
            if function is None:
                continue
            names = self.names(method)
            defaults = function.node.args.defaults
            has_default = set(names[len(names) - len(defaults):]) if defaults else set()
            told = bool(given.own & set(names))  # then what is left out has its default
            words = {name: given.get(name, Named(name)) for name in names
                     if name in given or not (told and name in has_default)}
            try:
                values.call(function, [made], words, function.node)
            except NotKnown:
                values.is_whole = False
            except RecursionError:
                values.is_whole = False


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
        kernel.blocks = self.blocks_at(kernel, *launches[0])
        if worked_out:
            stages = {values["num_stages"] for values in found}
            kernel.stages = stages.pop() if worked_out == {"num_warps"} and len(stages) == 1 else None
            return
        if len(found) > 1:
            kernel.why = f"it is launched with {len(found)} different num_warps and num_stages"
            return
        kernel.configs = [Config(None, {}, found[0], launches[0][0].lineno)]

    def blocks_at(self, kernel, call, inside):
        """The constants of a launch that are whole numbers, as far as they are known there."""
        if kernel.node is None:
            return {}
        found, constants = {}, KernelUse(kernel.node, self.functions).constexprs
        scope = self.scope_of_def(inside)
        for name, value in self.arguments(kernel, call).items():
            try:
                number = self.values.value(value, scope) if name in constants else None
            except (NotKnown, RecursionError):
                continue
            if isinstance(number, int) and not isinstance(number, bool):
                found[name] = number
        return found

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

    def launched(self, kernel, given, ask, dtype):
        """The answer of `ask` at the first launch where it has one, for tensors of the type."""
        answers, _ = self.all_launched(kernel, given, ask, dtype)
        for answer in answers:
            if not isinstance(answer, NotKnown):
                return answer
        raise answers[0]

    def all_launched(self, kernel, given, ask, dtype=None):
        """The answer of `ask`, or why there is none, at every launch of the kernel, each followed from the file's model, where
        it has one, else from the function round it; and whether these are all. Never none."""
        calls = self.launches(kernel)
        if not calls:
            return [NotKnown(f"'{kernel.name}' is launched nowhere in the file")], True
        entry = self.model()
        values, reached = self.asking(kernel, given if entry is None else entry.beside(given), ask, dtype)
        if entry is not None:
            entry.follow(values, given)
        is_whole = values.is_whole
        answers = [answer for found in reached.values() for answer in found]
        for call, inside in calls:
            if call in reached:
                continue
            values, found = self.asking(kernel, given if entry is None else entry.beside(given), ask, dtype)
            self.follow_function(values, inside, call)
            answers += found.get(call, [NotKnown(f"line {call.lineno}: the launch is not reached by what is known")])
            is_whole &= values.is_whole
        return answers, is_whole

    def asking(self, kernel, given, ask, dtype):
        """Values that ask at each launch that they come to, and the answers by the launch."""
        values, reached = Values(self.known, given), {}
        values.dtype = dtype

        def hook(node, scope):
            if last_name(node.func.value) not in kernel.names:
                return False
            steps, values.steps, values.launched = values.steps, 0, None
            try:
                answer = ask(values, node, scope)
            except NotKnown as error:
                answer = NotKnown(f"line {error.line}: {error}" if error.line else str(error))
            finally:
                values.steps, values.launched = values.steps + steps, hook
            found = reached.setdefault(node, [])
            if answer not in found and len(found) < MOST_ANSWERS:
                found.append(answer)
            return True

        values.launched = hook
        return values, reached

    def follow_function(self, values, inside, call):
        if inside is None:
            return values.follow(self.tree.body, Scope())
        scope, given = Scope(self.module), values.given
        for arg in [*inside.args.posonlyargs, *inside.args.args, *inside.args.kwonlyargs]:
            scope.names[arg.arg] = given.get(arg.arg, Named(arg.arg, None, frozenset([scope])))
        defaults = inside.args.defaults
        for arg, value in zip(inside.args.args[len(inside.args.args) - len(defaults):], defaults):
            if arg.arg not in given and isinstance(value, ast.Constant) and value.value is not None:
                scope.names[arg.arg] = value.value
        try:
            return values.follow(inside.body, scope)
        except Exception:  # the launch came before, or does not come
            return None

    def model(self):
        """The file's model: its class ModelNew, else its only class with a forward() that is a Module."""
        classes = {name: value for name, value in self.module.names.items() if isinstance(value, Class) and "forward" in
                   value.methods and any(base.endswith("Module") for base in value.bases)}
        found = classes.get("ModelNew") or (next(iter(classes.values())) if len(classes) == 1 else None)
        return Model(found) if found else None

    def grids(self, kernel, given, configs):
        """For each launch, for each config: how many blocks it has, whether these are all, else their number is a multiple
        of it, and the product of the config's values that its grid is made of."""
        def ask(values, node, scope):
            blocks = []
            for config in configs:
                values.steps = 0
                meta = Meta({**config.meta, "num_warps": config.others.get("num_warps", 4)})
                grid = values.value(node.func.slice, scope)
                if isinstance(grid, Function):
                    grid = values.call(grid, [meta], {}, node)
                extents = list(grid) if isinstance(grid, (list, tuple)) else [grid]
                if not extents or not all(isinstance(extent, (int, Named)) for extent in extents):
                    raise NotKnown("the grid is not known", node.lineno)
                lanes = [meta.values[name] for name in sorted(meta.asked - {"num_warps"})]
                lanes = [value for value in lanes if isinstance(value, int) and value > 0]
                blocks.append((*product_of(extents), min(math.prod(lanes), 1 << 40)))
            if blocks and all(count == 1 and not is_whole for count, is_whole, _ in blocks):
                raise NotKnown(f"'{next(e for e in extents if isinstance(e, Named)).text[:60]}' is not known", node.lineno)
            return blocks

        answers, is_whole = self.all_launched(kernel, given, ask)
        known = [answer for answer in answers if not isinstance(answer, NotKnown)]
        unknown = [answer for answer in answers if isinstance(answer, NotKnown)]
        if unknown or not is_whole:
            raise unknown[0] if unknown else NotKnown("a loop round the launch depends on what is not known")
        return known

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
