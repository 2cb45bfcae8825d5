"""Expressions, calls apart: constants, names, operators, comprehensions."""

import ast
import operator

from python_calls import METHODS
from python_objects import (Bound, Class, Config, Function, Imported, Instance, Meta, MOST_BITS, MOST_ITEMS, Named, NotKnown, PLAIN,
                            product_of, Raised, Scope, Tensor)

BINARY = {ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
          ast.FloorDiv: ("//", operator.floordiv), ast.Div: ("/", operator.truediv), ast.Mod: ("%", operator.mod),
          ast.Pow: ("**", operator.pow), ast.LShift: ("<<", operator.lshift), ast.RShift: (">>", operator.rshift),
          ast.BitOr: ("|", operator.or_), ast.BitAnd: ("&", operator.and_), ast.BitXor: ("^", operator.xor)}
COMPARED = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
            ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda a, b: a in b,
            ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_, ast.IsNot: operator.is_not}


DTYPES = {f"torch.{name}" for name in ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8",
                                       "bool", "float", "half", "double", "long", "int", "float8_e4m3fn", "float8_e5m2")}


def is_extent(value):
    """True where a product with it is a multiple of it."""
    return isinstance(value, Named) or isinstance(value, int) and value > 0


class Expressions:
    """The part of Values that works out expressions."""

    def of_Constant(self, node, scope):
        return node.value

    def of_Name(self, node, scope):
        holder = scope.holder(node.id)
        if holder is not None:
            value = holder.names[node.id]
            if isinstance(value, Imported):
                value = self.resolve(value, holder)
            if isinstance(value, Named) and node.id in self.given:
                return self.given[node.id]
            if isinstance(value, Named):
                fixed = self.known_value(value.path)
                return fixed[0] if fixed else value
            return value
        if node.id in self.given:
            return self.given[node.id]
        return Named(node.id, node.id, frozenset())

    def of_Attribute(self, node, scope):
        return self.attribute(self.value(node.value, scope), node.attr, node)

    def attribute(self, value, name, node):
        if isinstance(value, (Named, Tensor)) and name == "dtype" and self.dtype:
            return Named(ast.unparse(node), self.dtype)
        if isinstance(value, Named):
            path = f"{value.path}.{name}"
            if name in self.given and value.path.split(".")[0] not in ("torch", "triton"):
                return self.given[name]
            found = value.body.names.get(name) if isinstance(value, Class) else None
            if isinstance(value, Class) and name in value.unbound:
                return value.methods[name]
            if isinstance(value, Class) and name == "apply" and "forward" in value.methods:  # per autograd.Function
                return Bound(Named("ctx"), name, value.methods["forward"])
            if isinstance(found, Function):
                return Bound(value, name, found)
            if found is not None and not isinstance(found, Named):
                return found
            fixed = self.known_value(path)
            return fixed[0] if fixed else Named(f"{value.text}.{name}", path, value.scopes, value.why)
        if isinstance(value, Instance):
            return self.attribute_of(value, name)
        if isinstance(value, Config):
            if name == "kwargs":
                return value.meta
            return value.others.get(name, {"num_warps": 4, "num_stages": 3, "num_ctas": 1}.get(name))
        if isinstance(value, Tensor):
            if name in ("shape", "ndim", "T"):
                return {"shape": tuple(value.shape), "ndim": len(value.shape)}.get(name) or self.tensor_method(
                    value, "t", [], node)
            if name == "is_cuda":
                return True  # the line where it was profiled
            if name in ("dtype", "device", "data", "grad", "requires_grad"):
                return Named(ast.unparse(node), None, frozenset())
            return Bound(value, name)
        if name == "value" and isinstance(value, PLAIN):
            return value  # a member of an Enum counts as its value
        if type(value) in METHODS and name in METHODS[type(value)]:
            return Bound(value, name)
        if isinstance(value, Function):
            return Named(f"{value.name}.{name}", None, frozenset([value.scope]))
        raise NotKnown(f"'.{name}' is not followed", node.lineno)

    def attribute_of(self, instance, name):
        """An object's attribute: its own, a method of its class, or a name of its class."""
        if name in instance.names:
            value = instance.names[name]
            return self.given[name] if isinstance(value, Named) and name in self.given else value
        if instance.cls:
            method = self.method_of(instance.cls, name)
            if method:
                return method if name in instance.cls.unbound else Bound(instance, name, method)
            found = instance.cls.body.names.get(name)
            if found is not None and not isinstance(found, Function):
                return found
        if name in self.given:
            return self.given[name]
        return Named(f"self.{name}", None, frozenset())

    def of_Tuple(self, node, scope):
        return tuple(self.elements(node.elts, scope))

    def of_List(self, node, scope):
        return self.elements(node.elts, scope)

    def of_Set(self, node, scope):
        return self.set_of(self.elements(node.elts, scope), node)

    def set_of(self, items, node):
        self.weigh(items, node=node)
        try:
            return set(items)
        except TypeError as error:
            raise NotKnown(str(error), node.lineno) from None

    def elements(self, nodes, scope):
        found = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.items(self.value(node.value, scope), node)
                self.made(found, node)
            else:
                found.append(self.value(node, scope))
        return found

    def of_Dict(self, node, scope):
        found = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                more = self.value(value, scope)
                if not isinstance(more, dict):
                    raise NotKnown(f"'**{ast.unparse(value)[:60]}' is not known", node.lineno)
                found.update(self.made(more, node))
            else:
                name = self.value(key, scope)
                if not isinstance(name, PLAIN + (tuple,)):
                    raise NotKnown(f"the key '{ast.unparse(key)[:60]}' is not known", node.lineno)
                self.weigh(name, node=node)
                found[name] = self.value(value, scope)
        return found

    def of_JoinedStr(self, node, scope):
        text = ""
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if not isinstance(value, PLAIN):
                raise NotKnown("a formatted text of what is not known", node.lineno)
            text = self.made(text + str(value), node)
        return text

    def of_UnaryOp(self, node, scope):
        if isinstance(node.op, ast.Not):
            return not self.truth(node.operand, scope)
        value = self.value(node.operand, scope)
        if isinstance(value, (int, float)):
            return {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}[type(node.op)](value)
        return Named(f"-{self.text(value)}", None, self.scopes(value))

    def of_BoolOp(self, node, scope):
        stops = isinstance(node.op, ast.Or)
        for part in node.values:
            value = self.value(part, scope)
            if isinstance(value, (Named, Tensor)):
                raise NotKnown(f"'{ast.unparse(part)[:60]}' is not known", node.lineno)
            if bool(value) == stops:
                return value
        return value

    def of_Compare(self, node, scope):
        left = self.value(node.left, scope)
        for sign, other in zip(node.ops, node.comparators):
            right = self.value(other, scope)
            compared = self.compared_types(sign, left, right)
            if compared is False:
                return False
            if compared:
                left = right
                continue
            for side in (left, right):
                if isinstance(side, (Named, Tensor, Imported)) and not isinstance(sign, (ast.Is, ast.IsNot)):
                    raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
                if isinstance(side, Named):
                    raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
            self.weigh(*(() if isinstance(sign, (ast.Is, ast.IsNot)) else (left, right)), node=node)
            try:
                if not COMPARED[type(sign)](left, right):
                    return False
            except TypeError as error:
                raise NotKnown(str(error), node.lineno) from None
            left = right
        return True

    @staticmethod
    def compared_types(sign, left, right):
        """The answer for two of torch's types, or for one among several; None for anything else."""
        others = right if isinstance(right, (tuple, list)) else (right,)
        if not all(isinstance(one, Named) and one.path in DTYPES for one in (left, *others)):
            return None
        if isinstance(sign, (ast.In, ast.NotIn)) == isinstance(right, Named):
            return None
        found = left.path in [one.path for one in others]
        return found if isinstance(sign, (ast.Eq, ast.Is, ast.In)) else not found

    def of_IfExp(self, node, scope):
        return self.value(node.body if self.truth(node.test, scope) else node.orelse, scope)

    def of_BinOp(self, node, scope):
        left, right = self.one(self.value(node.left, scope)), self.one(self.value(node.right, scope))
        sign, function = BINARY.get(type(node.op), (None, None))
        if isinstance(node.op, ast.MatMult) and isinstance(left, Tensor):
            return self.combined(left, right, True)
        if sign is None:
            raise NotKnown("an operator that is not followed", node.lineno)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return self.combined(left, right, False)
        if isinstance(left, Named) or isinstance(right, Named):
            text = f"({self.text(left)} {sign} {self.text(right)})"
            factor = product_of([left, right])[0] if sign == "*" and is_extent(left) and is_extent(right) else 1
            return Named(text, None, self.scopes(left) | self.scopes(right), None, factor)
        self.small(sign, left, right, node)
        try:
            return self.made(function(left, right), node)
        except (TypeError, ArithmeticError, ValueError) as error:
            raise NotKnown(str(error), node.lineno) from None

    def small(self, sign, left, right, node):
        """Refuses what would become too large to hold."""
        big = False
        if sign == "*" and (isinstance(left, (list, tuple, str)) or isinstance(right, (list, tuple, str))):
            size = len(left) if hasattr(left, "__len__") else len(right) if hasattr(right, "__len__") else 1
            count = left if isinstance(left, int) else right if isinstance(right, int) else 1
            big = size * count > MOST_ITEMS
        elif sign in ("**", "<<"):
            big = not (isinstance(right, (int, float)) and abs(right) < 256 and isinstance(left, (int, float))
                       and abs(left) < 1 << 64)
        elif sign == "%" and isinstance(left, (str, bytes)):
            big = True
        elif isinstance(left, int) and isinstance(right, int):
            big = left.bit_length() + right.bit_length() > MOST_BITS
        elif hasattr(left, "__len__") and hasattr(right, "__len__"):
            big = len(left) + len(right) > MOST_ITEMS
        if big:
            raise NotKnown("a number or list that is too large", node.lineno)

    def of_Subscript(self, node, scope):
        value = self.value(node.value, scope)
        if isinstance(node.slice, ast.Slice):
            bounds = [self.value(part, scope) if part else None
                      for part in (node.slice.lower, node.slice.upper, node.slice.step)]
            key = slice(*bounds) if all(isinstance(part, (int, type(None))) for part in bounds) else None
        else:
            key = self.value(node.slice, scope)
        if isinstance(value, Meta):
            value.asked |= {key} & value.values.keys() if isinstance(key, str) else set()
            value = value.values
        if isinstance(value, Class) and isinstance(key, str) and "Enum" in value.bases:
            value = value.body.names
        if isinstance(value, Named):
            return Named(f"{value.text}[{self.text(key)}]", None, value.scopes | self.scopes(key), value.why)
        if isinstance(value, (list, tuple, dict, str)) and isinstance(key, PLAIN + (tuple, slice)):
            self.weigh(*([key] if isinstance(key, tuple) else []), node=node)
            try:
                return self.made(value[key], node) if isinstance(key, slice) else value[key]
            except LookupError as error:
                raise Raised(f"'{ast.unparse(node)[:60]}': {error!r}", node.lineno) from error
            except (TypeError, ValueError) as error:
                raise NotKnown(f"'{ast.unparse(node)[:60]}': {error!r}", node.lineno) from None
        if isinstance(value, (Tensor, Function)):
            return Named(ast.unparse(node), None, frozenset())
        raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)

    def of_Starred(self, node, scope):
        raise NotKnown("a '*' that is not followed", node.lineno)

    def of_Lambda(self, node, scope):
        return Function(node, scope)

    def of_ListComp(self, node, scope):
        return list(self.comprehended(node, scope, lambda inner: self.value(node.elt, inner)))

    def of_GeneratorExp(self, node, scope):
        return self.of_ListComp(node, scope)

    def of_SetComp(self, node, scope):
        return self.set_of(self.of_ListComp(node, scope), node)

    def of_DictComp(self, node, scope):
        pairs = self.comprehended(node, scope, lambda inner: (self.value(node.key, inner), self.value(node.value, inner)))
        self.set_of([key for key, _ in pairs], node)
        return dict(pairs)

    def comprehended(self, node, scope, made):
        found, inner = [], Scope(scope)

        def generate(depth):
            if depth == len(node.generators):
                found.append(made(inner))
                if len(found) > MOST_ITEMS:
                    raise NotKnown("a list that is too long", node.lineno)
                return
            generator = node.generators[depth]
            for item in self.items(self.value(generator.iter, inner if depth else scope), generator.iter):
                self.count(node)
                self.assign(generator.target, item, inner)
                if all(self.truth(test, inner) for test in generator.ifs):
                    generate(depth + 1)

        generate(0)
        return found
