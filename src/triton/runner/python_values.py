"""Evaluates Python expressions as far as that goes without running anything: constants, names, comprehensions,
functions of the file and of the files that it imports. What stays unknown is carried by its text (Named).

triton_reader asks: for lists of configs, for a wrapper's grid, for the arguments of a launch.
"""

import ast
import math

from python_calls import Calls
from python_expressions import Expressions
from python_objects import Config, Function, Imported, MOST_BITS, MOST_ITEMS, Named, NotKnown, PLAIN, Tensor
from python_statements import Statements
from python_tensors import Tensors

MOST_STEPS = 1_000_000  # per question; a list of 4,500 configs takes 200,000
ITEMS_OF_A_STEP = 8  # items that are copied or compared
FLAT = {int, float, bool, type(None)}
HOLDERS = (list, tuple, set, dict, type({}.items()), type({}.keys()), type({}.values()))


class Values(Statements, Expressions, Calls, Tensors):
    """Reads one file. `known`: what unknown names and calls come to on the target, by path."""

    def __init__(self, known=None, given=None):
        self.known, self.given = known or {}, given or {}
        self.steps, self.depth, self.modules, self.generators = 0, 0, {}, {}
        self.launched = None  # called with every `name[grid](...)`
        self.dtype = None  # per tensor, "torch.float32", where one is assumed
        self.is_whole = True  # no loop was left because of what is not known

    def count(self, node, items=ITEMS_OF_A_STEP):
        self.steps += 1 + (items - 1) // ITEMS_OF_A_STEP
        if self.steps > MOST_STEPS:
            raise NotKnown("it takes too many steps to work out", getattr(node, "lineno", None))

    def weigh(self, *values, node=None, most=MOST_ITEMS):
        """The number of items and characters that values hold together, each as often as it stands there: as many as a
        copy or a comparison may read. Counted as steps; refused beyond `most`."""
        size, work = 0, [values]
        while work and size <= most:
            holder = work.pop()
            size += len(holder)
            if size <= most and not FLAT.issuperset(map(type, holder)):
                for value in holder:
                    if isinstance(value, HOLDERS):
                        work.append(value)
                    elif isinstance(value, Config):  # it is compared by what it is, and copied one deep
                        size += len(value.meta) + len(value.others)
                    elif isinstance(value, (str, bytes, Named)):
                        size += len(value.text if isinstance(value, Named) else value)
            if isinstance(holder, dict):
                work.append(holder.values())
        if size > most:
            raise NotKnown("a value that is too large", getattr(node, "lineno", None))
        self.count(node, size)
        return size

    def made(self, value, node):
        """A value that an operation made, counted as the steps that its size takes; refused where it is too large."""
        if isinstance(value, HOLDERS + (str, bytes)):
            if len(value) > MOST_ITEMS:
                raise NotKnown("a list or text that is too long", getattr(node, "lineno", None))
            self.count(node, len(value))
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise NotKnown("a number that is too large", getattr(node, "lineno", None))
        return value

    def value(self, node, scope):
        self.count(node)
        answer = getattr(self, "of_" + type(node).__name__, None)
        if answer is None:
            raise NotKnown(f"{type(node).__name__} is not followed", node.lineno)
        return answer(node, scope)

    def truth(self, node, scope):
        value = self.value(node, scope)
        if isinstance(value, (Named, Tensor, Imported)):
            raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
        return bool(value)

    def items(self, value, node):
        if isinstance(value, (*HOLDERS, str, range)):
            return list(self.made(value, node))
        if isinstance(value, Tensor):
            return list(value.shape)
        raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", getattr(node, "lineno", None))

    def known_value(self, path):
        return (self.known[path],) if path in self.known else None

    # Texts

    def scopes(self, value):
        if isinstance(value, Named):
            return value.scopes
        if isinstance(value, Function):
            return value.made[1] if value.made else frozenset([value.scope])
        if isinstance(value, HOLDERS):
            self.weigh(value)
            return frozenset().union(*map(self.scopes, value.values() if isinstance(value, dict) else value))
        return frozenset()

    def text(self, value):
        """How the file would write a value."""
        if isinstance(value, HOLDERS):
            self.weigh(value)
        return self.written(value)

    def written(self, value):
        if isinstance(value, Named):
            return value.text
        if isinstance(value, Function) and (value.made or value.name):
            return value.made[0] if value.made else value.name
        if isinstance(value, Function):
            free = {node.id for node in ast.walk(value.node) if isinstance(node, ast.Name)}
            if value.scope.outer is None or not free & set(value.scope.names):
                return ast.unparse(value.node)
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, PLAIN):
            return repr(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.written, value))}]"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.written, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.written(name)}: {self.written(item)}" for name, item in value.items()) + "}"
        raise NotKnown("a value that has no text")
