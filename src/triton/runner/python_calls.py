"""Calls: of functions of the file, of a config, of a tensor's methods, of what Python, PyTorch and Triton have."""

import ast
import itertools
import math
import operator

from python_objects import (Bound, Class, Config, Function, Imported, Instance, Layers, MOST_BITS, MOST_ITEMS, MOST_TEXT, Named,
                            NotKnown, Scope, Tensor)
from python_statements import Left, Returned

MOST_DEPTH = 40  # the depth of calls within calls
MOST_REPEATED = 16  # axes of a product that repeats a list, items of a combination

# Answers on an NVIDIA GPU of functions by name whose definition is found nowhere.
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
         "copy.deepcopy": lambda a: plain_copy(a), "operator.mul": operator.mul,
         "triton.language.constexpr": lambda a: a}
BUILTINS = {"len": len, "min": min, "max": max, "list": list, "tuple": tuple, "dict": dict, "set": set, "int": int,
            "float": float, "bool": bool, "str": str, "sum": lambda *args: plain_sum(*args), "abs": abs, "zip": zip, "enumerate": enumerate,
            "reversed": reversed, "round": round, "any": any, "all": all, "divmod": divmod}
METHODS = {list: {"append", "extend", "insert", "copy", "index", "count", "pop", "reverse", "remove"},
           dict: {"get", "items", "keys", "values", "update", "copy", "pop", "setdefault"},
           str: {"upper", "lower", "startswith", "endswith", "split", "strip", "replace", "join", "format"},
           tuple: {"index", "count"}, set: {"add", "update", "copy"}}
METHODS[Layers] = METHODS[list]


def plain_copy(value):
    if isinstance(value, Config):
        return value.copy()
    if isinstance(value, list):
        return [plain_copy(item) for item in value]
    return dict(value) if isinstance(value, dict) else value


def plain_sum(items, start=0):
    if not isinstance(start, (list, tuple)):
        return sum(items, start)
    if not all(type(one) is type(start) for one in items):
        raise TypeError("a sum of lists and of what is none")
    return type(start)(itertools.chain(start, *items))  # Python's own sum copies all that it has for each of them


class Calls:
    """The part of Values that follows calls."""

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
                    text = f"{self.text(function)}({', '.join(words)})"
                    if len(text) <= MOST_TEXT:
                        result.made = text, self.scopes(function) | self.scopes([*args, *named.values()])
                except NotKnown:
                    pass
            return result
        if isinstance(function, Bound) and function.function:
            return self.call(function.function, [function.holder, *args], named, node)
        if isinstance(function, Bound):
            if isinstance(function.holder, Tensor):
                return self.tensor_method(function.holder, function.name, args, node)
            return self.method(function, args, named, node)
        if isinstance(function, (Instance, Layers)):
            return self.run_instance(function, args, named, node)
        if isinstance(function, Class) and self.launched and (function.methods.keys() & {"__init__", "forward"}):
            return self.instance_of(function, args, named, node)
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
                self.bounded(path, args, named, node)
                result = done(*args, **named)
                listed = list(itertools.islice(result, MOST_ITEMS + 1)) if hasattr(result, "__next__") else result
                return self.made(listed, node)
            except NotKnown:
                raise
            except Exception as error:
                raise NotKnown(f"'{ast.unparse(node)[:60]}': {error}", node.lineno) from None
        if path.startswith("torch."):
            made = self.torch_call(path, args, named, node)
            if made is not None:
                return made
        scopes = function.scopes.union(*[self.scopes(value) for value in [*args, *named.values()]])
        try:
            words = [self.text(value) for value in args] + [f"{name}={self.text(value)}" for name, value in named.items()]
        except NotKnown:
            words = ["..."]
        text = f"{function.text}({', '.join(words)})"
        return Named(text[:1000], f"{path}()", scopes, f"'{text[:60]}' is not known here")

    def bounded(self, path, args, named, node):
        """Refuses a call of Python's own functions that would take long or make much; counts what it reads."""
        if path in ("tuple", "list", "len", "bool", "enumerate", "reversed", "any", "all") and len(args) == 1:
            return self.count(node, len(args[0]) if hasattr(args[0], "__len__") else 1)
        made = self.weigh(*args, *named.values(), node=node)
        if path in ("itertools.product", "itertools.combinations"):
            sizes = [len(self.items(one, node)) for one in (args if path.endswith("product") else args[:1])]
            repeated = named.get("repeat", 1) if path.endswith("product") else args[1] if len(args) > 1 else named.get("r")
            if not isinstance(repeated, int) or not 0 <= repeated <= MOST_REPEATED or len(sizes) > 100 * MOST_REPEATED:
                raise NotKnown(f"a product or combination of more than {MOST_REPEATED}", node.lineno)
            made = repeated * len(sizes)
            for size in sizes * repeated if path.endswith("product") else [math.comb(sizes[0], repeated)]:
                made = min(made * size, 1 << 62)
        elif path == "math.prod":
            made *= 64  # bits
        elif path == "int" and isinstance(args[0], str) and len(args[0]) > MOST_BITS // 4:
            made = 1 << 62
        if made > 10 * MOST_ITEMS:
            raise NotKnown("a list or number that is too large", node.lineno)
        return self.count(node, made)

    def config(self, function, args, named, node):
        names = ["kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg"]
        if len(args) > len(names):
            raise NotKnown("a Config of too many arguments", node.lineno)
        given = {**dict(zip(names, args)), **named}
        meta = given.pop("kwargs", {})
        if not isinstance(meta, dict) or not all(isinstance(name, str) and name.isidentifier() for name in meta):
            raise NotKnown("the config's parameters are no dict that is known", node.lineno)
        return Config(function, dict(self.made(meta, node)), given, node.lineno)

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
        if name == "getattr" and len(args) > 1 and isinstance(args[0], Config) and isinstance(args[1], str):
            return self.attribute(args[0], args[1], node)
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
        self.weigh(keys, node=node)
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
            if self.is_generator(function.node):
                raise NotKnown(f"'{function.name}' is a generator", node.lineno)
            if self.launched:
                self.followed(function.node.body, inner)
            else:
                self.block(function.node.body, inner, False)
            return self.returned(inner, None)
        except Returned as returned:
            return self.returned(inner, returned.value)
        except Left:
            raise NotKnown("a break outside of a loop", node.lineno) from None
        finally:
            self.depth -= 1

    def returned(self, scope, value):
        """The value that a function returns; not known where a branch that may have been taken returned another value."""
        if all(self.equal(value, other) for other in scope.returned):
            return value
        return Named("returned", None, frozenset(), "what a function returns depends on what is not known")

    def is_generator(self, node):
        if node not in self.generators:
            self.generators[node] = any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(node))
        return self.generators[node]

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
        if isinstance(holder, str) and name == "format":
            raise NotKnown("'format' is not followed", node.lineno)
        self.weigh(*args, *named.values(), node=node)
        if name in ("index", "count", "remove"):
            self.weigh(holder, node=node)
        elif name in ("copy", "reverse", "insert", "pop", "split", "strip", "upper", "lower", "replace", "join"):
            self.count(node, len(holder))
        most = len(holder) + sum(len(one) for one in args if hasattr(one, "__len__"))
        if isinstance(holder, str) and name in ("join", "replace"):  # a text at every place of another
            most = (len(holder) + 1) * (1 + max([len(one) for one in args if hasattr(one, "__len__")], default=0))
        if name in ("extend", "update", "join", "replace") and most > MOST_ITEMS:
            raise NotKnown("a list or text that is too long", node.lineno)
        try:
            result = getattr(holder, name)(*args, **named)
            return self.made(result, node) if name in ("copy", "split", "replace", "join", "upper") else result
        except Exception as error:
            raise NotKnown(f"'{ast.unparse(node)[:60]}': {error}", node.lineno) from None
