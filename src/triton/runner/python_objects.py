"""Defines the values of a Python file's expressions where nothing of the file is run: plain values, and these."""

import ast
import math

MOST_ITEMS = 100_000  # per list with those within it, and characters of one text
MOST_TEXT = 10_000  # characters of an expression that is carried by its text
MOST_BITS = 4096  # bits of one number
MOST_AXES = 64  # per tensor
PLAIN = (int, float, str, bytes, type(None), bool)


class NotKnown(Exception):
    """Why a value cannot be worked out."""

    def __init__(self, why, line=None):
        super().__init__(why)
        self.line = line


class Raised(NotKnown):
    """An error that the file itself may catch: a key or an index that is not there."""


class Named:
    """A value that is known by its text alone: `torch.int8`, `BLOCK * 2`. `path` is what the text means wherever it
    is read ("triton.Config" for an imported `Config`), `scopes` where its names are visible, `factor` a number that it
    is a multiple of."""

    def __init__(self, text, path=None, scopes=frozenset(), why=None, factor=1):
        if len(text) > MOST_TEXT:
            raise NotKnown("an expression that is too long")
        self.text, self.path, self.scopes, self.why, self.factor = text, path or text, scopes, why, factor


def product_of(values):
    """The product of extents, and whether it is all of it: of an unknown extent what it is a multiple of counts."""
    known = [abs(value) if isinstance(value, int) else getattr(value, "factor", 1) for value in values]
    if len(known) > MOST_AXES or any(isinstance(value, int) and value <= 0 for value in values) or math.prod(known) > 1 << 62:
        raise NotKnown("the grid is not known")
    return math.prod(known), all(isinstance(value, int) for value in values)


class Config:
    """A triton.Config. `meta` and `others` hold values; `maker` is how the file calls the class."""

    def __init__(self, maker, meta, others, line):
        self.maker, self.meta, self.others, self.line = maker, meta, others, line

    def copy(self):
        return Config(self.maker, dict(self.meta), dict(self.others), self.line)


class Tensor:
    """A tensor by its shape; an extent may be unknown. No strides: it is contiguous."""

    def __init__(self, shape, strides=None):
        if len(shape) > MOST_AXES:
            raise NotKnown("a tensor of too many axes")
        self.shape, self.own_strides = list(shape), strides

    def strides(self):
        if self.own_strides is not None:
            return self.own_strides
        found, step = [], 1
        for extent in reversed(self.shape):
            found.append(step)
            step = step * extent if isinstance(step, int) and isinstance(extent, int) else Named("stride")
        return found[::-1]

    def swapped(self, order):
        strides = self.strides()
        return Tensor([self.shape[at] for at in order], [strides[at] for at in order])

    def viewed(self, shape):
        missing = [at for at, extent in enumerate(shape) if extent == -1]
        if missing:
            whole, rest = self.count(), math.prod(e for e in shape if e != -1) if all(
                isinstance(e, int) for e in shape) else None
            shape = list(shape)
            shape[missing[0]] = whole // rest if isinstance(whole, int) and rest else Named("extent")
        return Tensor(shape)

    def count(self):
        if all(isinstance(e, int) for e in self.shape):
            return math.prod(self.shape)
        return Named("numel", factor=1 if 0 in self.shape else product_of(self.shape)[0])


class Pair(tuple):
    """A layer's number for each axis: equal ones count as one where a number is wanted."""


class Bound:
    """A method of a value, or of a class that is `holder` (`function`)."""

    def __init__(self, holder, name, function=None):
        self.holder, self.name, self.function = holder, name, function


class Function:
    """`made`: the text that stands for it, of what another function makes or another file holds, and the scopes of
    its names."""

    def __init__(self, node, scope):
        self.node, self.scope, self.made = node, scope, None
        self.name = getattr(node, "name", None)


def is_decorated(node, name):
    return name in map(ast.unparse, node.decorator_list)


class Class(Named):
    """A class of the file by its name, what its body gives names to, and its methods by theirs."""

    def __init__(self, name, scope, body, bases=(), methods=None):
        super().__init__(name, None, frozenset([scope]))
        self.body, self.bases, self.methods, self.outer = body, bases, methods or {}, scope
        self.unbound = {name for name, one in self.methods.items() if is_decorated(one.node, "staticmethod")}


class Instance:
    """An object by its attributes: of a class of the file, or of torch.nn's class `layer`."""

    def __init__(self, cls, layer=None):
        self.cls, self.layer, self.names = cls, layer, {}


class Layers(list):
    """Layers of torch.nn that are called one after the other."""


class Imported:
    """A name of another file, looked up when it is needed."""

    def __init__(self, module, name, named):
        self.module, self.name, self.named = module, name, named


class Meta:
    """Returns the argument that Triton hands to a grid: the config's values."""

    def __init__(self, values):
        self.values, self.asked = values, set()  # names that the grid asked for


class Given(dict):
    """Values of names that somebody gave; `own` are those of the command line."""

    own = frozenset()


class Scope:
    def __init__(self, outer=None):
        self.outer, self.names = outer, {}
        self.returned = []  # per function's: what it may have returned before, as far as that is not known

    def holder(self, name):
        scope = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope

    def chain(self):
        scope, found = self, []
        while scope is not None:
            found.append(scope)
            scope = scope.outer
        return found
