"""Tensors by their shapes: methods, functions of torch and layers of torch.nn, as far as the launches of a file's own
kernels ask for them. An extent that is not known is a Named.
"""

import ast

from python_objects import Instance, Layers, Named, NotKnown, Pair, Tensor

# Functions of torch, methods of a tensor and layers whose result has the shape of what they are given.
SAME_SHAPE = {"relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "softplus", "mish", "hardswish", "hardtanh",
              "hardsigmoid", "leaky_relu", "elu", "selu", "softsign", "logsigmoid", "relu6", "dropout", "dropout1d",
              "dropout2d", "dropout3d", "identity", "clamp", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "sign",
              "zeros_like", "empty_like", "ones_like", "rand_like", "randn_like", "full_like", "batchnorm1d", "batchnorm2d",
              "batchnorm3d", "batch_norm", "instancenorm1d", "instancenorm2d", "instancenorm3d", "instance_norm",
              "groupnorm", "group_norm", "layernorm", "layer_norm", "rmsnorm", "normalize", "to", "float", "half",
              "bfloat16", "double", "cuda", "cpu", "clone", "detach", "type", "requires_grad_", "contiguous", "masked_fill",
              "square", "pow", "fill_", "zero_", "add_", "mul_", "div_", "sub_", "copy_", "cumsum", "cumprod"}
NEW = {"empty", "zeros", "ones", "rand", "randn", "full"}
LAYER_NAMES = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias")
TRANSPOSED_NAMES = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups", "bias",
                    "dilation")


def worked_out(formula, *values):
    """A formula of whole numbers, else an extent that is not known."""
    if all(isinstance(value, int) for value in values):
        found = formula(*values)
        if found >= 0:
            return found
    return Named("extent")


def spread(value, rank):
    """A layer's size for each of its axes."""
    if isinstance(value, (tuple, list)):
        return list(value) if len(value) == rank else list(value) * rank if len(value) == 1 else [Named("size")] * rank
    return [value] * rank


def convolved(sizes, filter_sizes, strides, paddings, dilations):
    if isinstance(paddings, str):
        paddings = 0 if paddings == "valid" else None
    rank = len(sizes)
    if paddings is None:
        return list(sizes)  # "same", which has no strides
    return [worked_out(lambda a, f, s, p, d: (a + 2 * p - d * (f - 1) - 1) // s + 1 if s else -1, *one) for one in zip(
        sizes, spread(filter_sizes, rank), spread(strides, rank), spread(paddings, rank), spread(dilations, rank))]


def transposed(sizes, filter_sizes, strides, paddings, more, dilations):
    rank = len(sizes)
    return [worked_out(lambda a, f, s, p, m, d: (a - 1) * s - 2 * p + d * (f - 1) + m + 1, *one) for one in zip(
        sizes, *(spread(value, rank) for value in (filter_sizes, strides, paddings, more, dilations)))]


def broadcast(a, b):
    found = []
    for at in range(-max(len(a), len(b)), 0):
        one, other = a[at] if -at <= len(a) else 1, b[at] if -at <= len(b) else 1
        found.append(other if one == 1 else one if other == 1 or one == other else Named("extent"))
    return found


class Tensors:
    """The part of Values that follows tensors and layers."""

    @staticmethod
    def one(value):
        """A layer's numbers as one, where they are equal."""
        return value[0] if isinstance(value, Pair) and len(set(value)) == 1 else value

    def tensor_method(self, tensor, name, args, node):
        numbers = [self.one(value) for value in args]
        if len(numbers) == 1 and isinstance(numbers[0], (list, tuple)):
            numbers = list(numbers[0])
        whole = all(isinstance(value, int) for value in numbers)
        rank = len(tensor.shape)
        try:
            if name in ("size", "stride") and whole:
                found = tuple(tensor.shape if name == "size" else tensor.strides())
                return found[numbers[0]] if numbers else found
            if name in ("dim", "ndimension"):
                return rank
            if name in ("numel", "nelement"):
                return tensor.count()
            if name in ("view", "reshape", "new_empty", "new_zeros", "new_ones"):
                return tensor.viewed(numbers) if name in ("view", "reshape") else Tensor(numbers)
            if name in ("t", "transpose", "permute") and whole:
                order = list(range(rank))
                if name == "permute":
                    order = [at % rank for at in numbers]
                else:
                    a, b = numbers if name == "transpose" else (0, 1)
                    order[a], order[b] = order[b], order[a]
                return tensor.swapped(order)
            if name in ("unsqueeze", "squeeze", "flatten", "expand") and whole:
                return self.reshaped(tensor, name, numbers)
            if name in ("matmul", "mm", "bmm"):
                return self.product(tensor, args[0])
            if name == "contiguous":
                return Tensor(tensor.shape)
            if name in SAME_SHAPE:
                return tensor
        except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise NotKnown(f"'.{name}': {error}", node.lineno) from None
        return Named(ast.unparse(node)[:200], None, frozenset(), f"'.{name}' of a tensor is not followed")

    @staticmethod
    def reshaped(tensor, name, numbers):
        shape, rank = list(tensor.shape), len(tensor.shape)
        if name == "unsqueeze":
            shape.insert(numbers[0] % (rank + 1), 1)
        elif name == "squeeze":
            axes = [at % rank for at in numbers] or range(rank)
            shape = [extent for at, extent in enumerate(shape) if at not in axes or extent != 1]
        elif name == "flatten":
            first, last = [at % rank for at in (*numbers, *(0, -1)[len(numbers):])]
            shape[first:last + 1] = [Tensor(shape[first:last + 1]).count()]
        else:
            old = [1] * (len(numbers) - rank) + shape
            return Tensor([extent if extent != -1 else at for extent, at in zip(numbers, old)], [Named("stride")] * len(numbers))
        return Tensor(shape)

    @staticmethod
    def product(a, b):
        """The product of two tensors, as torch.matmul has it."""
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or len(a.shape) < 2 or len(b.shape) < 2:
            return Named("product")
        return Tensor([*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]])

    def combined(self, left, right, is_product):
        """The tensor that an operator makes of a tensor and another value."""
        if is_product:
            return self.product(left, right)
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            return left if left.shape == right.shape else Tensor(broadcast(left.shape, right.shape))
        other = right if isinstance(left, Tensor) else left
        tensor = left if isinstance(left, Tensor) else right
        return tensor if isinstance(other, (int, float)) else Tensor([Named("extent")] * len(tensor.shape))

    def torch_call(self, path, args, named, node):
        """The tensor or layer that a call of torch's makes; None of what is not followed."""
        last = path.split(".")[-1]
        tensor = args[0] if args and isinstance(args[0], Tensor) else None
        if last in NEW:
            shape = named.get("size", args[0] if args and isinstance(args[0], (tuple, list)) else args)
            if last == "full" and not isinstance(shape, (tuple, list)):
                return None
            return Tensor(list(shape if isinstance(shape, (tuple, list)) else [shape]))
        if last in ("Parameter", "as_tensor") and tensor is not None:
            return tensor
        if last == "tensor" and args and isinstance(args[0], (int, float, list, tuple)):
            return Tensor([] if isinstance(args[0], (int, float)) else [len(args[0])])
        if last in ("matmul", "mm", "bmm") and len(args) == 2:
            return self.product(args[0], args[1])
        if last == "linear" and len(args) > 1 and tensor is not None and isinstance(args[1], Tensor):
            return Tensor([*tensor.shape[:-1], args[1].shape[0]])
        if last in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"):
            return self.convolution(last, args, named)
        if tensor is not None and (last.lower() in SAME_SHAPE or last in ("transpose", "permute", "reshape", "flatten",
                                                                          "unsqueeze", "squeeze", "numel")):
            return tensor if last.lower() in SAME_SHAPE else self.tensor_method(
                tensor, last, [*args[1:], *[named[word] for word in ("dim",) if word in named]], node)
        if path.startswith("torch.nn.") and last[:1].isupper():
            return self.layer(last, args, named, node)
        return None

    def convolution(self, name, args, named):
        words = ("input", "weight", "bias", "stride", "padding") + (
            ("output_padding", "groups", "dilation") if "transpose" in name else ("dilation", "groups"))
        given = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1, **dict(zip(words, args)), **named}
        x, weight, rank = given.get("input"), given.get("weight"), int(name[-2])
        if not isinstance(x, Tensor) or not isinstance(weight, Tensor) or len(x.shape) != len(weight.shape):
            return None
        if "transpose" in name:
            channels = worked_out(lambda a, b: a * b, weight.shape[1], self.one(given["groups"]))
            return Tensor([x.shape[0], channels, *transposed(x.shape[-rank:], weight.shape[-rank:], given["stride"], given[
                "padding"], given["output_padding"], given["dilation"])])
        return Tensor([x.shape[0], weight.shape[0], *convolved(x.shape[-rank:], weight.shape[-rank:], given["stride"], given[
            "padding"], given["dilation"])])

    def layer(self, name, args, named, node):
        """A layer of torch.nn: its sizes, its weight and bias."""
        if name in ("Sequential", "ModuleList"):
            layers = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
            return Layers(self.made(list(layers), node))
        made = Instance(None, name)
        if name.startswith("Conv") and name[-2:] in ("1d", "2d", "3d"):
            words = TRANSPOSED_NAMES if "Transpose" in name else LAYER_NAMES
            given = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "output_padding": 0, "bias": True,
                     **dict(zip(words, args)), **named}
            if not {"in_channels", "out_channels", "kernel_size"} <= given.keys():
                return None
            rank, groups = int(name[-2]), self.one(given["groups"])
            for word in ("kernel_size", "stride", "padding", "dilation", "output_padding"):
                if not isinstance(given[word], str):
                    given[word] = Pair(spread(given[word], rank))
            first, second = ("in_channels", "out_channels") if "Transpose" in name else ("out_channels", "in_channels")
            weight = [given[first], worked_out(lambda a, b: a // b if b else -1, given[second], groups), *given["kernel_size"]]
            made.names.update({word: given[word] for word in words if word != "bias"}, weight=Tensor(weight),
                              bias=self.optional(given["bias"], given["out_channels"]))
        elif name == "Linear":
            given = {"bias": True, **dict(zip(("in_features", "out_features", "bias"), args)), **named}
            if not {"in_features", "out_features"} <= given.keys():
                return None
            made.names.update(given, weight=Tensor([given["out_features"], given["in_features"]]),
                              bias=self.optional(given["bias"], given["out_features"]))
        elif name.lower() in SAME_SHAPE:
            if args and isinstance(args[-1 if name == "GroupNorm" else 0], int) and "Norm" in name:
                extent = args[1] if name == "GroupNorm" and len(args) > 1 else args[0]
                for word in ("weight", "bias", "running_mean", "running_var"):
                    made.names[word] = Tensor([extent])
            elif args and "Norm" in name and isinstance(args[0], (tuple, list)):
                made.names.update(weight=Tensor(list(args[0])), bias=Tensor(list(args[0])))
        else:
            return None
        return made

    @staticmethod
    def optional(wanted, extent):
        if not isinstance(wanted, bool):
            return Named("bias")
        return Tensor([extent]) if wanted else None

    def run_layer(self, layer, args, node):
        """The tensor that a layer makes of another."""
        x, names = args[0] if args else None, layer.names
        if not isinstance(x, Tensor):
            return Named("layer")
        if layer.layer == "Linear":
            return Tensor([*x.shape[:-1], names["out_features"]])
        if layer.layer.startswith("Conv"):
            kind = "conv_transpose" if "Transpose" in layer.layer else "conv"
            found = self.convolution(f"{kind}{layer.layer[-2:]}", [x, names["weight"]], {
                word: names[word] for word in ("stride", "padding", "dilation", "groups", "output_padding") if word in names})
            return found or Named("layer")
        return x

    def run_instance(self, instance, args, named, node):
        """A call of an object: of a layer or of several, or of a module of the file by its forward()."""
        if isinstance(instance, Layers):
            for inner in instance:
                args = [self.run_instance(inner, args, named, node) if isinstance(inner, (Instance, Layers)) else Named("layer")]
            return args[0] if args else Named("layer")
        if instance.layer:
            return self.run_layer(instance, args, node)
        forward = self.method_of(instance.cls, "forward") or self.method_of(instance.cls, "__call__")
        return self.call(forward, [instance, *args], named, node) if forward else Named("call")

    def method_of(self, cls, name, links=8):
        """The method of a class of the file, or of one that it is derived from."""
        if name in cls.methods:
            return cls.methods[name]
        for base in cls.bases if links else ():
            holder = cls.outer.holder(base) if cls.outer else None
            if holder is not None and hasattr(holder.names[base], "methods"):
                found = self.method_of(holder.names[base], name, links - 1)
                if found:
                    return found
        return None

    def instance_of(self, cls, args, named, node):
        """An object of a class of the file, its __init__() followed."""
        made = Instance(cls)
        start = self.method_of(cls, "__init__")
        if start:
            self.call(start, [made, *args], named, node)
        return made
