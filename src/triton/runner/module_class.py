"""An nn.Module that is a chain of convolutions, read from its class: how it is constructed, which layers it holds, what
its forward computes, and what get_init_inputs() and get_inputs() of the same file give. Nothing of the file is run.
"""

import ast
import keyword
import math
import re

from python_objects import Function, Named, NotKnown, Scope, Tensor
from python_values import Values
from triton_source import at_line, is_jit, last_name, Refused, Text

CONV = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias", "padding_mode",
        "device", "dtype"]
TRANSPOSED = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias",
              "dilation", "padding_mode", "device", "dtype"]
KINDS = {f"{name}{rank}d": words for rank in (1, 2, 3) for name, words in (("Conv", CONV), ("ConvTranspose", TRANSPOSED))}
DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "groups": 1, "bias": True,
            "padding_mode": "zeros", "dtype": None}
DTYPES = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16"}
RELU = ("torch.relu", "torch.nn.functional.relu")
# Operations that are more than a convolution and its bias, by name.
MORE = {"exp", "exp2", "log", "log2", "sigmoid", "tanh", "erf", "sqrt", "rsqrt", "softmax", "logsumexp", "maximum",
        "relu", "gelu", "silu", "mish", "leaky_relu", "hardtanh", "hardswish", "clamp", "softplus", "elu", "mean",
        "group_norm", "batch_norm", "layer_norm", "instance_norm", "max_pool1d", "max_pool2d", "max_pool3d",
        "avg_pool1d", "avg_pool2d", "avg_pool3d", "dropout"}
TAKEN = {"self", "super", "torch", "nn", "forward", "training", "packed", "packed_of"}
MOST_LAYERS, MOST_LITERAL = 8, 1000


class More(Refused):
    """A reason: something that a class or its kernels do beside convolutions."""


def short(node):
    return ast.unparse(node).split("\n")[0][:60]


def plain_name(name, line):
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,99}", name) or keyword.iskeyword(name) or name in TAKEN:
        raise at_line(line, f"'{name[:60]}' cannot be a name of the new class")
    return name


def is_literal(value):
    if isinstance(value, (tuple, list)):
        return all(map(is_literal, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int)) or isinstance(value, str) and value.isprintable()


def literal(value, line, what):
    text = repr(value) if is_literal(value) else ""
    if not text or len(text) > MOST_LITERAL:
        raise at_line(line, f"{what} is not known without running the file")
    return text


class ModuleClass:
    """`source`'s class of this name. `of_kernels`: its forward calls kernels, which are not followed; else it calls its
    layers, and nothing else."""

    def __init__(self, source, name, of_kernels):
        source = source[1:] if source.startswith("\ufeff") else source
        try:
            self.tree = ast.parse(Text(source).bytes)
        except SyntaxError as error:
            raise at_line(error.lineno or 1, f"this is no Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"this is no Python: {error}") from None
        self.of_kernels = of_kernels
        self.values = Values()
        self.module = self.values.module(self.tree, None)
        classes = [node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        self.node = classes[-1] if classes else None
        self.layers, self.activations, self.aliases, self.used = [], set(), {}, set()

    def method(self, name):
        found = [node for node in self.node.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return found[-1] if found else None

    def check_class(self):
        """Nothing but its own constructor and forward makes what it is."""
        if [self.path(base) for base in self.node.bases] != ["torch.nn.Module"] or self.node.keywords:
            raise self.more("the class", self.node)
        for node in [self.node, *self.node.body]:
            if getattr(node, "decorator_list", None):
                raise self.more("a decorator", node.decorator_list[0])
            name = getattr(node, "name", "")
            if name.startswith("__") and name != "__init__":
                raise self.more("the class", node)

    # The constructor

    def parameters(self, init):
        """The text of its parameters, self apart."""
        a = init.args
        if a.vararg or a.kwarg or a.posonlyargs or not a.args:
            raise at_line(init.lineno, "__init__ takes what a new class cannot")
        texts, defaults = [], [None] * (len(a.args) - len(a.defaults)) + a.defaults
        for arg, default in zip([*a.args[1:], *a.kwonlyargs], [*defaults[1:], *a.kw_defaults]):
            if a.kwonlyargs and arg is a.kwonlyargs[0]:
                texts.append("*")
            text = plain_name(arg.arg, arg.lineno)
            if default is not None:
                text += "=" + literal(self.known(default, self.module), default.lineno, f"the default of '{arg.arg}'")
            texts.append(text)
        return ", ".join(texts)

    def known(self, node, scope):
        """A value, or a Named for what is not known."""
        try:
            return self.values.value(node, scope)
        except NotKnown as error:
            return Named("?", None, frozenset(), str(error))

    def scope_of(self, init):
        """The constructor's names with what get_init_inputs() gives for them."""
        scope, function = Scope(self.module), Function(init, self.module)
        names = [arg.arg for arg in [*init.args.args, *init.args.kwonlyargs]]
        given = self.called("get_init_inputs")
        if isinstance(given, (list, tuple)):
            try:
                self.values.bind(function, [Named("self"), *given], {}, scope, init)
            except NotKnown as error:
                raise at_line(init.lineno, f"what get_init_inputs() gives does not fit: {error}") from None
        for name in names:
            if name not in scope.names:
                scope.names[name] = Named(name, None, frozenset([scope]), f"'{name}' is not known")
        return scope

    def called(self, name):
        """The value that a function of the file returns; None where there is no such function."""
        function = self.module.names.get(name)
        if not isinstance(function, Function):
            return None
        try:
            return self.values.call(function, [], {}, function.node)
        except NotKnown as error:
            raise at_line(error.line or function.node.lineno, f"{name}(): {error}") from None

    def construct(self, body, scope, names):
        for node in body:
            self.values.steps = 0
            target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                target = node.target
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                self.attribute(target.attr, node.value, scope, names)
            elif isinstance(target, ast.Name):
                self.values.assign(target, self.known(node.value, scope), scope)
            elif isinstance(node, ast.If) and all(isinstance(one, ast.Raise) for one in node.body) and not node.orelse:
                continue
            elif isinstance(node, ast.If):
                try:
                    taken = node.body if self.values.truth(node.test, scope) else node.orelse
                except NotKnown:
                    raise self.more("__init__", node) from None
                self.construct(taken, scope, names)
            elif not (isinstance(node, (ast.Assert, ast.Pass)) or isinstance(node, ast.Expr) and (
                    isinstance(node.value, ast.Constant) or re.fullmatch(
                        r"super\(([A-Za-z_0-9]+, self)?\)\.__init__\(\)", ast.unparse(node.value)))):
                raise self.more("__init__", node)

    @staticmethod
    def more(where, node):
        return More(f"line {node.lineno}: {where} does more than convolutions: '{short(node)}'")

    def attribute(self, name, node, scope, names):
        path = self.path(node.func) if isinstance(node, ast.Call) else ""
        if path.startswith("torch.nn.") and path.split(".")[-1] in KINDS:
            self.layers.append(self.layer(plain_name(name, node.lineno), path.split(".")[-1], node, scope, names))
            if len(self.layers) > MOST_LAYERS or len({layer["name"] for layer in self.layers}) < len(self.layers):
                raise self.more("__init__", node)
        elif path == "torch.nn.ReLU":
            self.activations.add(name)
        elif path.startswith("torch."):
            raise self.more("__init__", node)
        else:
            self.aliases[name] = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & names
            self.values.given[name] = self.known(node, scope)

    def path(self, node):
        """The name of a function where it comes from: torch.nn.Conv2d."""
        value = self.known(node, self.module)
        return value.path if isinstance(value, Named) and value.path else ""

    def layer(self, name, kind, node, scope, names):
        words, rank = KINDS[kind], int(kind[-2])
        if len(node.args) > len(words) or any(isinstance(one, ast.Starred) for one in node.args) or any(
                one.arg not in words or one.arg == "device" for one in node.keywords):
            raise at_line(node.lineno, f"nn.{kind} with arguments that are not known")
        given = dict(zip(words, node.args)) | {one.arg: one.value for one in node.keywords}
        free = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & names
        texts = [self.argument(one, scope, names, words[at]) for at, one in enumerate(node.args)]
        texts += [f"{one.arg}={self.argument(one.value, scope, names, one.arg)}" for one in node.keywords]
        layer = {"name": name, "kind": kind, "rank": rank, "line": node.lineno, "arguments": ", ".join(texts),
                 "free": bool(free), "values": {}, "unknown": "", "word": ""}
        for word in words:
            if word == "device":
                continue
            if word not in given and word not in DEFAULTS:
                raise at_line(node.lineno, f"nn.{kind} without its {word}")
            value = self.known(given[word], scope) if word in given else DEFAULTS[word]
            self.take(layer, word, value, node)
        self.same_padding(layer, node)
        return layer

    def take(self, layer, word, value, node):
        if word == "dtype":
            if value is None:
                return
            dtype = DTYPES.get((value.path or "").removeprefix("torch.")) if isinstance(value, Named) else None
            if dtype is None:
                raise at_line(node.lineno, "the layer's dtype is none of float32, float16 and bfloat16")
            layer["dtype"] = dtype
        elif isinstance(value, Named):
            layer["unknown"] = layer["unknown"] or value.why or f"'{value.text[:60]}' is not known"
        elif word == "padding_mode":
            if value != "zeros":
                raise at_line(node.lineno, f"the padding mode {value!r:.40} is none of our kernels'")
        elif word == "padding" and value in ("same", "valid"):
            layer["values"][word], layer["word"] = value, repr(value)
        else:
            single = word in ("in_channels", "out_channels", "groups", "bias")
            items = list(value) if isinstance(value, (tuple, list)) and not single else [value] * (1 if single else layer["rank"])
            unknown = [one for one in items if isinstance(one, Named)]
            if unknown:
                layer["unknown"] = layer["unknown"] or unknown[0].why or f"'{unknown[0].text[:60]}' is not known"
                return
            if len(items) == 1 and not single:
                items *= layer["rank"]
            if len(items) != (1 if single else layer["rank"]) or not all(
                    isinstance(one, int) and 0 <= one < 1 << 31 for one in items):
                raise at_line(node.lineno, f"the layer's {word} is {value!r:.60}")
            layer["values"][word] = [int(one) for one in items]

    @staticmethod
    def same_padding(layer, node):
        values = layer["values"]
        if values.get("padding") == "valid":
            values["padding"] = [0] * layer["rank"]
        elif values.get("padding") == "same":
            if "kernel_size" not in values or "dilation" not in values:
                del values["padding"]
                return
            sums = [d * (k - 1) for d, k in zip(values["dilation"], values["kernel_size"])]
            if any(one % 2 for one in sums):
                raise at_line(node.lineno, "padding 'same' of an even filter pads one end more than the other")
            values["padding"] = [one // 2 for one in sums]

    def argument(self, node, scope, names, word):
        """An argument as it may stand in another file: parameters, numbers and arithmetic; else its value."""
        pure = (ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        constants = all(is_literal(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant))
        if word == "dtype" and self.path(node).removeprefix("torch.") in DTYPES:
            return self.path(node)
        if all(isinstance(one, pure) for one in ast.walk(node)) and used <= names and constants:
            self.used |= used
            text = ast.unparse(node)
            if len(text) <= MOST_LITERAL:
                return text
        self.used |= used & names
        return literal(self.known(node, scope), node.lineno, f"the layer's {word}")

    # forward

    def chain(self, forward):
        """Its layers in the order in which they are applied, with what follows each: [[at, relu], ...]."""
        a = forward.args
        if len(a.args) != 2 or a.vararg or a.kwarg or a.posonlyargs or a.kwonlyargs:
            raise at_line(forward.lineno, "forward does not take one tensor")
        known = {a.args[1].arg: ()}
        for node in forward.body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            if isinstance(node, ast.Return) and node.value is not None:
                return [list(step) for step in self.steps(node.value, known)]
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                known[node.targets[0].id] = self.steps(node.value, known)
            else:
                raise self.more("forward", node)
        raise at_line(forward.lineno, "forward returns nothing")

    def steps(self, node, known):
        if isinstance(node, ast.Name) and node.id in known:
            return known[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, words = node.func.attr, {word.arg for word in node.keywords}
            of_self = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            if len(node.args) == 1 and not words and of_self:
                at = [i for i, layer in enumerate(self.layers) if layer["name"] == name]
                if at:
                    return (*self.steps(node.args[0], known), (at[0], False))
                if name in self.activations:
                    return self.rectified(self.steps(node.args[0], known), node)
            if len(node.args) == 1 and words <= {"inplace"} and self.path(node.func) in RELU:
                return self.rectified(self.steps(node.args[0], known), node)
            if not node.args and not words and name in ("relu", "contiguous"):
                done = self.steps(node.func.value, known)
                return self.rectified(done, node) if name == "relu" else done
        raise self.more("forward", node)

    def rectified(self, steps, node):
        if not steps:
            raise self.more("forward", node)
        return (*steps[:-1], (steps[-1][0], True))

    def chain_of_kernels(self, forward):
        """The layers in the order in which forward names them, where nothing else of the class reaches it."""
        order = []
        for node in sorted((one for one in ast.walk(forward) if isinstance(one, ast.Attribute)),
                           key=lambda one: (one.lineno, one.col_offset)):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                continue
            at = [i for i, layer in enumerate(self.layers) if layer["name"] == node.attr]
            if at and [at[0], False] not in order:
                order.append([at[0], False])
            elif not at and not (node.attr in self.aliases and self.aliases[node.attr] <= self.used):
                raise self.more("forward", node)
        for function in ast.walk(self.tree):
            if isinstance(function, ast.FunctionDef) and (function is forward or is_jit_function(function)):
                self.refuse_more(function)
        return order

    @staticmethod
    def refuse_more(function):
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            chosen = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)} & {
                one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)} if len(node.args) > 2 else set()
            if last_name(node) in MORE or (last_name(node) == "where" and chosen):
                raise ModuleClass.more(f"'{function.name}'", node)

    # get_inputs()

    def input(self):
        """The shape and type of forward's tensor; None where the file does not say."""
        given = self.called("get_inputs")
        if given is None:
            return None
        node = self.module.names["get_inputs"].node
        if not isinstance(given, (list, tuple)) or len(given) != 1 or not isinstance(given[0], Tensor):
            raise at_line(node.lineno, "get_inputs() does not give one tensor")
        shape = list(given[0].shape)
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < 1 << 31 for one in shape):
            raise at_line(node.lineno, "the shape of get_inputs() is not known")
        named = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        types = {DTYPES[name] for name in named & set(DTYPES)}
        others = named & {"float64", "double", "int32", "int64", "long", "int8", "uint8", "complex64"}
        if len(types) > 1 or others:
            raise at_line(node.lineno, "get_inputs() gives a tensor of a type that is none of our kernels'")
        return {"shape": shape, "dtype": types.pop() if types else "f32"}

    def read(self):
        init = self.method("__init__") if self.node else None
        forward = self.method("forward") if self.node else None
        if init is None or forward is None:
            return {"found": False}
        calls = [node for node in ast.walk(init) if isinstance(node, ast.Call)]
        if not any(last_name(node) in KINDS for node in calls):
            return {"found": False}
        self.check_class()
        parameters = self.parameters(init)
        self.construct(init.body, self.scope_of(init), {arg.arg for arg in [*init.args.args[1:], *init.args.kwonlyargs]})
        chain = self.chain_of_kernels(forward) if self.of_kernels else self.chain(forward)
        if sorted(at for at, _ in chain) != list(range(len(self.layers))):
            raise at_line(forward.lineno, "forward does not apply each of the class's convolutions once")
        return {"found": True, "parameters": parameters, "layers": self.layers, "chain": chain, "input": self.input()}


def is_jit_function(node):
    return any(is_jit(one) or last_name(one) == "autotune" for one in node.decorator_list)


def read_class(request):
    try:
        return ModuleClass(request["source"], request["class"], request["of_kernels"]).read()
    except More as error:
        return {"found": True, "more": str(error)}
