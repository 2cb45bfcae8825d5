"""What Python expressions come to, as far as they go without running anything: constants, names, comprehensions,
functions of the file and of the files that it imports. What stays unknown is carried by its text (Named).

triton_reader asks: for lists of configs, for a wrapper's grid, for the arguments of a launch.
"""

import ast
import itertools
import math
import operator
import os

MOST_STEPS = 1_000_000  # of one question; a list of 4,500 configs takes 200,000
MOST_DEPTH = 40  # of calls within calls
MOST_ITEMS = 100_000  # of one list, and characters of one text
MOST_FILES = 200  # that are followed through imports


class NotKnown(Exception):
    """Why a value cannot be worked out."""

    def __init__(self, why, line=None):
        super().__init__(why)
        self.line = line


class Named:
    """A value that is known by its text alone: `torch.int8`, `BLOCK * 2`. `path` is what the text means wherever it
    is read ("triton.Config" for an imported `Config`), `scopes` where its names are visible."""

    def __init__(self, text, path=None, scopes=frozenset(), why=None):
        self.text, self.path, self.scopes, self.why = text, path or text, scopes, why


class Config:
    """A triton.Config. `meta` and `others` hold values; `maker` is how the file calls the class."""

    def __init__(self, maker, meta, others, line):
        self.maker, self.meta, self.others, self.line = maker, meta, others, line

    def copy(self):
        return Config(self.maker, dict(self.meta), dict(self.others), self.line)


class Tensor:
    """A tensor by its shape; an extent may be unknown. No strides: it is contiguous."""

    def __init__(self, shape, strides=None):
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
        return math.prod(self.shape) if all(isinstance(e, int) for e in self.shape) else Named("numel")


class Pair(tuple):
    """Of a layer: two equal numbers count as one where a number is wanted."""


class Bound:
    """A method of a value."""

    def __init__(self, holder, name):
        self.holder, self.name = holder, name


class Function:
    """`made`: the text of the call that returned it, for what another function makes, and the scopes of its names."""

    def __init__(self, node, scope):
        self.node, self.scope, self.made = node, scope, None
        self.name = getattr(node, "name", None)


class Class(Named):
    """A class of the file by its name, and what its body gives names to."""

    def __init__(self, name, scope, body):
        super().__init__(name, None, frozenset([scope]))
        self.body = body


class Imported:
    """A name of another file, looked up when it is needed."""

    def __init__(self, module, name, named):
        self.module, self.name, self.named = module, name, named


class Meta:
    """What Triton hands to a grid: the config's values."""

    def __init__(self, values):
        self.values = values


class Scope:
    def __init__(self, outer=None):
        self.outer, self.names = outer, {}

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


class Returned(Exception):
    def __init__(self, value):
        super().__init__()
        self.value = value


class Left(Exception):
    """A loop, by break or continue."""


class Break(Left):
    pass


class Continue(Left):
    pass


BINARY = {ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
          ast.FloorDiv: ("//", operator.floordiv), ast.Div: ("/", operator.truediv), ast.Mod: ("%", operator.mod),
          ast.Pow: ("**", operator.pow), ast.LShift: ("<<", operator.lshift), ast.RShift: (">>", operator.rshift),
          ast.BitOr: ("|", operator.or_), ast.BitAnd: ("&", operator.and_), ast.BitXor: ("^", operator.xor)}
COMPARED = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
            ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda a, b: a in b,
            ast.NotIn: lambda a, b: a not in b, ast.Is: operator.is_, ast.IsNot: operator.is_not}
PLAIN = (int, float, str, bytes, type(None), bool)


# What functions of these names, which are found nowhere, answer on an NVIDIA GPU.
PLATFORMS = {"is_cuda": True, "is_nvidia": True, "is_hip": False, "is_amd": False, "is_xpu": False, "is_npu": False,
             "is_rocm": False, "is_hip_cdna2": False, "is_hip_cdna3": False, "is_hip_cdna4": False,
             "is_hip_cdna": False, "is_cpu": False, "is_intel": False, "is_interpreter": False}


def next_power_of_2(n):
    return 1 << max(int(n) - 1, 0).bit_length()


def cdiv(a, b):
    return -(-a // b)


CALLS = {"itertools.product": itertools.product, "itertools.chain": itertools.chain,
         "itertools.chain.from_iterable": itertools.chain.from_iterable,
         "itertools.combinations": itertools.combinations, "math.ceil": math.ceil, "math.floor": math.floor,
         "math.log2": math.log2, "math.sqrt": math.sqrt, "math.prod": math.prod, "triton.cdiv": cdiv,
         "triton.language.cdiv": cdiv, "triton.next_power_of_2": next_power_of_2, "copy.copy": lambda a: plain_copy(a),
         "copy.deepcopy": lambda a: plain_copy(a), "operator.mul": operator.mul}
BUILTINS = {"len": len, "min": min, "max": max, "list": list, "tuple": tuple, "dict": dict, "set": set, "int": int,
            "float": float, "bool": bool, "str": str, "sum": sum, "abs": abs, "zip": zip, "enumerate": enumerate,
            "reversed": reversed, "round": round, "any": any, "all": all, "divmod": divmod}
METHODS = {list: {"append", "extend", "insert", "copy", "index", "count", "pop", "reverse", "remove"},
           dict: {"get", "items", "keys", "values", "update", "copy", "pop", "setdefault"},
           str: {"upper", "lower", "startswith", "endswith", "split", "strip", "replace", "join", "format"},
           tuple: {"index", "count"}, set: {"add", "update", "copy"}}


def plain_copy(value):
    if isinstance(value, Config):
        return value.copy()
    if isinstance(value, list):
        return [plain_copy(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


class Values:
    """Of one file. `known`: what unknown names and calls come to on the target, by path."""

    def __init__(self, known=None, given=None):
        self.known, self.given = known or {}, given or {}
        self.steps, self.depth, self.modules = 0, 0, {}
        self.launched = None  # called with every `name[grid](...)`

    # Modules

    def module(self, tree, path):
        """The names of a file, its top-level statements followed as far as they go."""
        scope = Scope()
        scope.path = path
        self.follow(tree.body, scope)
        return scope

    def import_from(self, node, scope):
        for alias in node.names:
            if alias.name == "*":
                continue
            name = alias.asname or alias.name
            named = Named(name, f"{node.module or ''}.{alias.name}".lstrip("."), frozenset([scope]))
            scope.names[name] = Imported((node.level, node.module or ""), alias.name, named)

    def resolve(self, imported, scope, links=8):
        """An imported name's value, from its file's text where that lies beside this one."""
        fixed = self.known_value(imported.named.path)
        if fixed is not None:
            return fixed[0]
        start = scope
        while start is not None and not hasattr(start, "path"):
            start = start.outer
        module = self.other_module(imported.module, getattr(start, "path", None), imported.name)
        if module is None or imported.name not in module.names or links == 0:
            return imported.named
        value = module.names[imported.name]
        value = self.resolve(value, module, links - 1) if isinstance(value, Imported) else value
        if isinstance(value, Class):
            return Class(imported.named.text, scope, value.body)
        return imported.named if isinstance(value, Named) else value  # by the name that it has here

    def other_module(self, module, path, name):
        level, dotted = module
        if not path or dotted.split(".")[0] in ("torch", "triton", "numpy") or len(self.modules) > MOST_FILES:
            return None
        parts = [part for part in dotted.split(".") if part]
        folder = os.path.dirname(os.path.abspath(path))
        folders = []
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            folders = [folder]
        else:
            while os.path.dirname(folder) != folder:
                folders.append(folder)
                folder = os.path.dirname(folder)
        for base in folders[:12]:
            stem = os.path.join(base, *parts)
            for file in (stem + ".py", os.path.join(stem, "__init__.py"), os.path.join(stem, name + ".py")):
                if os.path.isfile(file) and (parts or level):
                    return self.file(file)
        return None

    def file(self, file):
        if file not in self.modules:
            self.modules[file] = None  # while it is read: a circle ends here
            try:
                with open(file, encoding="utf-8") as text:
                    self.modules[file] = self.module(ast.parse(text.read()), file)
            except (OSError, ValueError, SyntaxError, RecursionError, NotKnown):
                pass
        return self.modules[file]

    # Statements

    def follow(self, body, scope):
        """Statements as far as they go: what cannot be worked out is carried by its name."""
        for statement in body:
            try:
                self.execute(statement, scope, True)
            except NotKnown as error:
                self.forget([statement], scope, str(error))
            except (Returned, Left):
                return  # of this branch; another may go on

    def forget(self, body, scope, why):
        for node in itertools.chain.from_iterable(ast.walk(statement) for statement in body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.names[node.id] = Named(node.id, None, frozenset([scope]), why)

    def execute(self, node, scope, tolerant=False):
        self.count(node)
        kind = type(node)
        if kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            scope.names[node.name] = Function(node, scope)
        elif kind is ast.ClassDef:
            inner = Scope(scope)
            self.follow([one for one in node.body if isinstance(one, (ast.Assign, ast.AnnAssign))], inner)
            scope.names[node.name] = Class(node.name, scope, inner)
        elif kind is ast.Import:
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                path = alias.name if alias.asname else name
                scope.names[name] = Named(name, path, frozenset([scope]))
        elif kind is ast.ImportFrom:
            self.import_from(node, scope)
        elif kind is ast.Return:
            raise Returned(self.value(node.value, scope) if node.value else None)
        elif kind in (ast.Assign, ast.AnnAssign):
            targets = node.targets if kind is ast.Assign else [node.target]
            if node.value is not None:
                self.assign_from(node.value, targets, scope)
        elif kind is ast.AugAssign:
            load = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
            self.assign_from(load, [node.target], scope)
        elif kind is ast.If:
            self.branch(node, scope, tolerant)
        elif kind is ast.For:
            self.loop(node, scope, tolerant)
        elif kind is ast.Try:
            self.block(node.body + node.orelse + node.finalbody, scope, tolerant)
        elif kind is ast.With:
            self.block(node.body, scope, tolerant)
        elif kind is ast.Expr:
            self.effect(node.value, scope)
        elif kind is ast.Break:
            raise Break()
        elif kind is ast.Continue:
            raise Continue()
        elif kind is ast.While:
            self.turns(node, scope)
        elif kind is ast.Match:
            raise NotKnown("'match' is not followed", node.lineno)
        # assert, raise, del, global, pass: nothing that a value depends on

    def block(self, body, scope, tolerant):
        if tolerant:
            return self.follow(body, scope)
        for statement in body:
            self.execute(statement, scope)

    def branch(self, node, scope, tolerant):
        try:
            taken = node.body if self.truth(node.test, scope) else node.orelse
            return self.block(taken, scope, tolerant)
        except NotKnown:
            if self.leaves(node.body) and not node.orelse:
                return None  # a guard: what it refuses does not come here
            if not tolerant:
                raise
        before = dict(scope.names)
        self.follow(node.body, scope)
        one = scope.names
        scope.names = dict(before)
        self.follow(node.orelse, scope)
        for name in set(one) | set(scope.names):
            a, b = one.get(name), scope.names.get(name)
            same = type(a) is type(b) and (a is b or (isinstance(a, PLAIN + (list, tuple)) and _same(a, b)))
            if same:
                continue
            if name in before or not (name in one) != (name in scope.names):
                scope.names[name] = Named(name, None, frozenset([scope]), f"'{name}' depends on what is not known")
            else:  # bound on one side alone
                scope.names[name] = a if name in one else b
        return None

    @staticmethod
    def leaves(body):
        return all(isinstance(item, (ast.Raise, ast.Return, ast.Pass, ast.Expr, ast.Assert)) for item in body)

    def loop(self, node, scope, tolerant):
        for item in self.items(self.value(node.iter, scope), node):
            self.count(node)
            self.assign(node.target, item, scope)
            try:
                self.block(node.body, scope, False)
            except Break:
                return
            except Continue:
                continue
        self.block(node.orelse, scope, tolerant)

    def turns(self, node, scope):
        while self.truth(node.test, scope):
            self.count(node)
            try:
                self.block(node.body, scope, False)
            except Break:
                return
            except Continue:
                continue

    def effect(self, node, scope):
        """A call for what it does: of a known list it must be followed, of anything else it does not count."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = node.func.value
            holder = scope.holder(root.id) if isinstance(root, ast.Name) else None
            if holder is not None and isinstance(holder.names[root.id], (list, dict, set)):
                self.value(node, scope)
                return
        if self.launched:
            try:
                self.value(node, scope)
            except NotKnown:
                pass

    def assign_from(self, node, targets, scope):
        try:
            value = self.value(node, scope)
        except NotKnown as error:
            for target in targets:
                self.forget([target], scope, str(error))
            return
        for target in targets:
            self.assign(target, value, scope)

    def assign(self, target, value, scope):
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            try:
                items = self.items(value, target)
                if any(isinstance(item, ast.Starred) for item in target.elts) or len(items) != len(target.elts):
                    raise NotKnown("an assignment of another length", target.lineno)
            except NotKnown as error:
                self.forget([target], scope, str(error))
                return
            for part, item in zip(target.elts, items):
                self.assign(part, item, scope)
        elif isinstance(target, ast.Attribute):
            holder = self.value(target.value, scope)
            if isinstance(holder, Config):
                holder.others[target.attr] = value
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, scope)
            if isinstance(holder, (dict, list)):
                try:
                    holder[self.value(target.slice, scope)] = value
                except (TypeError, IndexError) as error:
                    raise NotKnown(str(error), target.lineno) from None

    # Expressions

    def count(self, node):
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise NotKnown("it takes too many steps to work out", getattr(node, "lineno", None))

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
        if isinstance(value, (list, tuple, set, dict, str, range, type({}.items()), type({}.keys()),
                              type({}.values()))):
            return list(value)
        if isinstance(value, Tensor):
            return list(value.shape)
        raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", getattr(node, "lineno", None))

    def known_value(self, path):
        return (self.known[path],) if path in self.known else None

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
        value = self.value(node.value, scope)
        if isinstance(value, Named):
            path = f"{value.path}.{node.attr}"
            if node.attr in self.given and value.path.split(".")[0] not in ("torch", "triton"):
                return self.given[node.attr]
            if isinstance(value, Class) and not isinstance(value.body.names.get(node.attr), (Named, type(None))):
                return value.body.names[node.attr]
            fixed = self.known_value(path)
            return fixed[0] if fixed else Named(f"{value.text}.{node.attr}", path, value.scopes, value.why)
        if isinstance(value, Config):
            if node.attr == "kwargs":
                return value.meta
            return value.others.get(node.attr, {"num_warps": 4, "num_stages": 3}.get(node.attr))
        if isinstance(value, Tensor):
            if node.attr in ("shape", "ndim", "T"):
                return {"shape": tuple(value.shape), "ndim": len(value.shape)}.get(node.attr) or self.tensor_method(
                    value, "t", [], node)
            if node.attr in ("is_cuda", "dtype", "device", "data", "grad", "requires_grad"):
                return Named(ast.unparse(node), None, frozenset())
            return Bound(value, node.attr)
        if type(value) in METHODS and node.attr in METHODS[type(value)]:
            return Bound(value, node.attr)
        if isinstance(value, Function):
            return Named(f"{value.name}.{node.attr}", None, frozenset([value.scope]))
        raise NotKnown(f"'.{node.attr}' is not followed", node.lineno)

    def of_Tuple(self, node, scope):
        return tuple(self.elements(node.elts, scope))

    def of_List(self, node, scope):
        return self.elements(node.elts, scope)

    def of_Set(self, node, scope):
        return set(self.elements(node.elts, scope))

    def elements(self, nodes, scope):
        found = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.items(self.value(node.value, scope), node)
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
                found.update(more)
            else:
                name = self.value(key, scope)
                if not isinstance(name, PLAIN + (tuple,)):
                    raise NotKnown(f"the key '{ast.unparse(key)[:60]}' is not known", node.lineno)
                found[name] = self.value(value, scope)
        return found

    def of_JoinedStr(self, node, scope):
        text = ""
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope)
            if not isinstance(value, PLAIN):
                raise NotKnown("a formatted text of what is not known", node.lineno)
            text += str(value)
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
            for side in (left, right):
                if isinstance(side, (Named, Tensor, Imported)) and not isinstance(sign, (ast.Is, ast.IsNot)):
                    raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
                if isinstance(side, Named):
                    raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
            try:
                if not COMPARED[type(sign)](left, right):
                    return False
            except TypeError as error:
                raise NotKnown(str(error), node.lineno) from None
            left = right
        return True

    def of_IfExp(self, node, scope):
        return self.value(node.body if self.truth(node.test, scope) else node.orelse, scope)

    def of_BinOp(self, node, scope):
        left, right = self.one(self.value(node.left, scope)), self.one(self.value(node.right, scope))
        sign, function = BINARY.get(type(node.op), (None, None))
        if sign is None:
            raise NotKnown("an operator that is not followed", node.lineno)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return left if isinstance(left, Tensor) else right
        if isinstance(left, Named) or isinstance(right, Named):
            return Named(f"({self.text(left)} {sign} {self.text(right)})", None, self.scopes(left) | self.scopes(right))
        self.small(sign, left, right, node)
        try:
            return function(left, right)
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
            big = left.bit_length() + right.bit_length() > 4096
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
            value = value.values
        if isinstance(value, Named):
            return Named(f"{value.text}[{self.text(key)}]", None, value.scopes | self.scopes(key), value.why)
        if isinstance(value, (list, tuple, dict, str)) and isinstance(key, PLAIN + (tuple, slice)):
            try:
                return value[key]
            except (LookupError, TypeError, ValueError) as error:
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
        return set(self.of_ListComp(node, scope))

    def of_DictComp(self, node, scope):
        return dict(self.comprehended(
            node, scope, lambda inner: (self.value(node.key, inner), self.value(node.value, inner))))

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

    def of_Call(self, node, scope):
        if isinstance(node.func, ast.Subscript) and self.launched and self.launched(node, scope):
            return Named(ast.unparse(node)[:60], None, frozenset())
        function = self.value(node.func, scope)
        if isinstance(function, Named) and (function.path in ("filter", "map", "sorted", "range", "isinstance", "getattr")
                                            or function.path in ("min", "max") and node.keywords):
            return self.of_builtin(function.path, node, scope)
        args = self.elements(node.args, scope)
        named = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is None:
                if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
                    raise NotKnown(f"'**{ast.unparse(keyword.value)[:60]}' is not known", node.lineno)
                named.update(value)
            else:
                named[keyword.arg] = value
        if isinstance(function, Function):
            result = self.call(function, args, named, node)
            if isinstance(result, Function) and function.name:  # a function that another one makes: by its call
                try:
                    words = [self.text(value) for value in args] + [f"{name}={self.text(one)}" for name, one in named.items()]
                    result.made = (f"{function.name}({', '.join(words)})",
                                   self.scopes(function) | self.scopes([*args, *named.values()]))
                except NotKnown:
                    pass
            return result
        if isinstance(function, Bound):
            if isinstance(function.holder, Tensor):
                return self.tensor_method(function.holder, function.name, args, node)
            return self.method(function, args, named, node)
        if isinstance(function, Named):
            return self.call_named(function, args, named, node)
        raise NotKnown(f"'{ast.unparse(node.func)[:60]}' is no function that is known", node.lineno)

    def call_named(self, function, args, named, node):
        path = function.path
        if path.split(".")[-1] == "Config" and (args or named):
            return self.config(function, args, named, node)
        if path in ("os.environ.get", "os.getenv"):
            return args[1] if len(args) > 1 else None
        if path + "()" in self.known:
            return self.known[path + "()"]
        if path.split(".")[-1].strip("_") in PLATFORMS:
            return PLATFORMS[path.split(".")[-1].strip("_")]
        done = CALLS.get(path) or (BUILTINS.get(path) if not function.scopes else None)
        unknown = [value for value in [*args, *named.values()] if isinstance(value, (Named, Imported))]
        if done and not unknown:
            try:
                if path == "itertools.product":
                    sizes = math.prod(len(self.items(one, node)) for one in args) ** int(named.get("repeat", 1))
                    if sizes > MOST_ITEMS:
                        raise NotKnown("a list that is too long", node.lineno)
                if path in ("int", "str") and args and isinstance(args[0], (str, int)) and len(str(args[0])) > 400:
                    raise NotKnown("a number that is too large", node.lineno)
                result = done(*args, **named)
                return list(itertools.islice(result, MOST_ITEMS)) if hasattr(result, "__next__") else result
            except NotKnown:
                raise
            except Exception as error:
                raise NotKnown(f"'{ast.unparse(node)[:60]}': {error}", node.lineno) from None
        tensors = [value for value in args if isinstance(value, Tensor)]
        last = path.split(".")[-1]
        if last in ("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like") and tensors:
            return Tensor(list(tensors[0].shape))
        if path.startswith("torch.") and last in ("empty", "zeros", "ones", "rand", "randn", "full"):
            shape = args[0] if args and isinstance(args[0], (tuple, list)) else args
            return Tensor(list(shape) if last != "full" or isinstance(shape, (tuple, list)) else [])
        scopes = function.scopes.union(*[self.scopes(value) for value in [*args, *named.values()]])
        try:
            words = [self.text(value) for value in args] + [f"{name}={self.text(value)}" for name, value in named.items()]
        except NotKnown:
            words = ["..."]
        text = f"{function.text}({', '.join(words)})"
        return Named(text[:1000], f"{path}()", scopes, f"'{text[:60]}' is not known here")

    def config(self, function, args, named, node):
        names = ["kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg"]
        if len(args) > len(names):
            raise NotKnown("a Config of too many arguments", node.lineno)
        given = {**dict(zip(names, args)), **named}
        meta = given.pop("kwargs", {})
        if not isinstance(meta, dict) or not all(isinstance(name, str) and name.isidentifier() for name in meta):
            raise NotKnown("the config's parameters are no dict that is known", node.lineno)
        return Config(function, dict(meta), given, node.lineno)

    def of_builtin(self, name, node, scope):
        args = self.elements(node.args, scope)
        if name == "isinstance" and len(args) == 2 and not isinstance(args[0], (Named, Imported)):
            types = args[1] if isinstance(args[1], tuple) else (args[1],)
            names = {type(args[0]).__name__} | ({"tuple"} if isinstance(args[0], tuple) else set())
            return any(isinstance(one, Named) and one.path in names for one in types)
        if name == "getattr" and len(args) > 1 and isinstance(args[0], Named) and isinstance(args[1], str):
            path = f"{args[0].path}.{args[1]}"
            fixed = self.known_value(path)
            return fixed[0] if fixed else Named(f"{args[0].text}.{args[1]}", path, args[0].scopes)
        if name in ("isinstance", "getattr"):
            raise NotKnown(f"'{name}' is not followed", node.lineno)
        if name == "range":
            if not all(isinstance(value, int) for value in args) or not 1 <= len(args) <= 3:
                raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
            try:
                found = range(*args)
            except ValueError as error:
                raise NotKnown(str(error), node.lineno) from None
            if len(found) > MOST_ITEMS:
                raise NotKnown("a range that is too long", node.lineno)
            return list(found)
        if name in ("sorted", "min", "max"):
            return self.ordered(name, args, node, scope)
        if len(args) != 2:
            raise NotKnown(f"'{name}' of other arguments", node.lineno)
        found = []
        for item in self.items(args[1], node):
            kept = item if args[0] is None else self.call(args[0], [item], {}, node)
            if name == "map":
                found.append(kept)
            elif isinstance(kept, (Named, Tensor)):
                raise NotKnown("a filter that is not known", node.lineno)
            elif kept:
                found.append(item)
        return found

    def ordered(self, name, args, node, scope):
        words = {word.arg: self.value(word.value, scope) for word in node.keywords}
        found = self.items(args[0], node) if len(args) == 1 else []
        keys = [self.call(words["key"], [item], {}, node) for item in found] if words.get("key") else found
        if not found or any(isinstance(key, (Named, Tensor, Imported)) for key in keys):
            raise NotKnown(f"'{ast.unparse(node)[:60]}' is not known", node.lineno)
        try:
            order = sorted(range(len(found)), key=lambda at: keys[at], reverse=bool(words.get("reverse")))
            largest = max(range(len(found)), key=lambda at: keys[at])
        except TypeError as error:
            raise NotKnown(str(error), node.lineno) from None
        return found[largest] if name == "max" else found[order[0]] if name == "min" else [found[at] for at in order]

    def call(self, function, args, named, node):
        if not isinstance(function, Function):
            raise NotKnown("a function that is not known", node.lineno)
        if f"{function.name}()" in self.known:
            return self.known[f"{function.name}()"]
        self.depth += 1
        try:
            if self.depth > MOST_DEPTH:
                raise NotKnown("calls within calls without an end", node.lineno)
            inner = Scope(function.scope)
            self.bind(function, args, named, inner, node)
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, inner)
            if any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(function.node)):
                raise NotKnown(f"'{function.name}' is a generator", node.lineno)
            self.block(function.node.body, inner, False)
            return None
        except Returned as returned:
            return returned.value
        except Left:
            raise NotKnown("a break outside of a loop", node.lineno) from None
        finally:
            self.depth -= 1

    def bind(self, function, args, named, inner, node):
        a = function.node.args
        names = [arg.arg for arg in [*a.posonlyargs, *a.args]]
        rest = dict(named)
        for name, value in zip(names, args):
            inner.names[name] = value
        if a.vararg:
            inner.names[a.vararg.arg] = tuple(args[len(names):])
        elif len(args) > len(names):
            raise NotKnown(f"'{function.name}' is called with too many arguments", node.lineno)
        defaults = dict(zip(names[len(names) - len(a.defaults):], a.defaults))
        defaults.update((arg.arg, value) for arg, value in zip(a.kwonlyargs, a.kw_defaults) if value is not None)
        for name in [*names, *[arg.arg for arg in a.kwonlyargs]]:
            if name in rest:
                inner.names[name] = rest.pop(name)
            elif name not in inner.names:
                if name not in defaults:
                    raise NotKnown(f"'{function.name}' is called without '{name}'", node.lineno)
                inner.names[name] = self.value(defaults[name], function.scope)
        if a.kwarg:
            inner.names[a.kwarg.arg] = rest
        elif rest:
            raise NotKnown(f"'{function.name}' is called with '{next(iter(rest))}'", node.lineno)

    def method(self, bound, args, named, node):
        holder, name = bound.holder, bound.name
        if isinstance(holder, str) and name in ("join", "format", "replace") and len(str(args)) > MOST_ITEMS:
            raise NotKnown("a text that is too long", node.lineno)
        if isinstance(holder, str) and name == "format":
            raise NotKnown("'format' is not followed", node.lineno)
        try:
            return getattr(holder, name)(*args, **named)
        except Exception as error:
            raise NotKnown(f"'{ast.unparse(node)[:60]}': {error}", node.lineno) from None

    @staticmethod
    def one(value):
        return value[0] if isinstance(value, Pair) and value[0] == value[1] else value

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
            if name in ("view", "reshape", "new_empty", "new_zeros"):
                return tensor.viewed(numbers) if name in ("view", "reshape") else Tensor(numbers)
            if name in ("t", "transpose", "permute") and whole:
                order = list(range(rank))
                if name == "permute":
                    order = [at % rank for at in numbers]
                else:
                    a, b = numbers if name == "transpose" else (0, 1)
                    order[a], order[b] = order[b], order[a]
                return tensor.swapped(order)
            if name == "contiguous":
                return Tensor(tensor.shape)
            if name in ("to", "float", "half", "bfloat16", "cuda", "clone", "detach", "type", "requires_grad_"):
                return tensor
        except (LookupError, TypeError, ValueError, ZeroDivisionError) as error:
            raise NotKnown(f"'.{name}': {error}", node.lineno) from None
        return Named(ast.unparse(node)[:200], None, frozenset(), f"'.{name}' of a tensor is not followed")

    # Texts

    def scopes(self, value):
        if isinstance(value, Named):
            return value.scopes
        if isinstance(value, Function):
            return value.made[1] if value.made else frozenset([value.scope])
        if isinstance(value, (list, tuple, set)):
            return frozenset().union(*[self.scopes(item) for item in value])
        if isinstance(value, dict):
            return frozenset().union(*[self.scopes(item) for item in value.values()])
        return frozenset()

    def text(self, value):
        """How the file would write a value."""
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
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(name)}: {self.text(item)}" for name, item in value.items()) + "}"
        raise NotKnown("a value that has no text")


def _loaded(target):
    class Load(ast.NodeTransformer):
        def generic_visit(self, node):
            if hasattr(node, "ctx"):
                node.ctx = ast.Load()
            return super().generic_visit(node)

    return Load().visit(ast.parse(ast.unparse(target), mode="eval").body)


def _same(a, b):
    try:
        return bool(a == b)
    except Exception:
        return False
