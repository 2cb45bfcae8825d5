"""The part of a file that Triton is given to compile: the kernel and the jit functions that it calls, written out again without
decorators, with defaults and constants that the reader worked out, and Triton's own names. Nothing else of the file is
there, and what a body could make Triton's front end call is Triton's language alone.
"""

import ast
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType

from python_objects import Function, Imported, Named, NotKnown, PLAIN
from triton_source import is_jit

KEPT = {"triton.cdiv", "triton.next_power_of_2"}  # functions of Triton beside its language
REFUSED = {"triton.language.core.extern_elementwise", "triton.language.extern_elementwise"}  # reads a file of any name
# Attributes of the language's values, beside the public names of its classes.
VALUES = {"shape", "dtype", "value", "type", "element_ty", "scalar", "numel", "primitive_bitwidth", "int_bitwidth", "itemsize",
          "strides"}


class Failed(Exception):
    """Why a kernel cannot be compiled, or a list not be had."""


def own(path):
    """The object of a dotted name of Triton's language."""
    parts = path.split(".")
    if path in KEPT or path == "triton":
        return importlib.import_module("triton") if len(parts) == 1 else getattr(importlib.import_module("triton"), parts[1])
    if parts[:2] != ["triton", "language"] or path in REFUSED or any(part.startswith("_") for part in parts):
        raise Failed(f"'{path[:60]}' is not Triton's language")
    found = importlib.import_module("triton.language")
    for at, part in enumerate(parts[2:], 3):
        if isinstance(found, ModuleType) and not hasattr(found, part):
            try:
                importlib.import_module(".".join(parts[:at]))
            except ImportError:
                pass
        if not hasattr(found, part):
            raise Failed(f"Triton has no '{path[:60]}'")
        found = getattr(found, part)
        is_module = isinstance(found, ModuleType)
        module = found.__name__ if is_module else getattr(found, "__module__", None) or "triton.language"  # a number has none
        if not (module + ".").startswith(("triton.language.", *(() if is_module else ("triton._C.",)))):
            raise Failed(f"'{path[:60]}' is not Triton's language")
    return found


def value_attributes():
    core = importlib.import_module("triton.language.core")
    classes = [one for one in vars(core).values() if isinstance(one, type) and one.__module__.startswith("triton.")]
    return VALUES | {name for one in classes for name in dir(one) if not name.startswith("_")}


class Slice:
    """`names`: what the module holds beside its functions. `functions`: their text. `aliases`: what else they are called."""

    def __init__(self, file, kernel):
        self.values, self.names, self.functions, self.aliases, self.made = file.values, {}, [], {}, {}
        self.attributes = value_attributes()
        self.kernel = self.add(kernel.node, kernel.scope)

    def worked_out(self, value, what):
        """A value as Triton takes it: plain, of plain values, or Triton's own."""
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(self.worked_out(one, what) for one in value)
        if isinstance(value, Named) and (value.path + ".").startswith("triton."):
            return own(value.path)
        raise Failed(f"{what} is not known without running the file")

    def value(self, text, scope, what):
        """The value of an expression, by the reader: nothing of it is run."""
        try:
            node = ast.parse(text, mode="eval").body if isinstance(text, str) else text
            self.values.steps = 0
            found = self.values.value(node, scope)
            self.values.weigh([found], node=node)
            return self.worked_out(found, what)
        except (NotKnown, SyntaxError, ValueError, RecursionError) as error:
            raise Failed(f"{what} is not known without running the file: {error}") from None

    def add(self, node, scope):
        """A jit function, and what it names. Its name in the module."""
        if node in self.made:
            return self.made[node]
        name = node.name if node.name not in self.made.values() else f"{node.name}_{len(self.made)}"
        self.made[node] = name
        arguments = self.arguments(node, scope)
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        local = {one.arg for one in given if one} | {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(
            one.ctx, ast.Store)}
        for statement in node.body:
            for one in ast.walk(statement):
                self.check(one, scope, local)
        plain = ast.FunctionDef(**{field: getattr(node, field, []) for field in node._fields})
        plain.name, plain.args, plain.returns = name, arguments, None
        plain.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        self.functions.append(ast.unparse(ast.fix_missing_locations(plain)))
        return name

    def arguments(self, node, scope):
        """Its parameters: annotations say only that one is a constant, defaults are worked out."""
        def plain(arg):
            constant = arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation)
            return ast.arg(arg.arg, ast.parse("tl.constexpr", mode="eval").body if constant else None)

        def default(one):
            if one is None:
                return None
            name = f"default_{len(self.names)}_of_{node.name}"
            self.names[name] = self.value(one, scope, f"the default '{ast.unparse(one)[:60]}' of '{node.name}'")
            return ast.Name(name, ast.Load())

        a = node.args
        return ast.arguments([plain(arg) for arg in a.posonlyargs], [plain(arg) for arg in a.args], a.vararg and plain(a.vararg),
                             [plain(arg) for arg in a.kwonlyargs], [default(one) for one in a.kw_defaults],
                             a.kwarg and plain(a.kwarg), [default(one) for one in a.defaults])

    def check(self, node, scope, local):
        if isinstance(node, ast.Name) and (node.id.startswith("__") or node.id == "getattr"):
            raise Failed(f"'{node.id[:60]}' is not Triton's language")
        if isinstance(node, ast.Name) and node.id not in local:
            self.take(node.id, scope)
        elif isinstance(node, ast.Attribute):
            path = self.path_of(node, scope, local)
            if path:
                own(path)
            elif node.attr not in self.attributes:
                raise Failed(f"'.{node.attr[:60]}' is not Triton's language")

    def path_of(self, node, scope, local):
        """`triton.language.math.exp` of tl.math.exp; None of an attribute of what is no module."""
        if isinstance(node, ast.Name):
            value = self.found(node.id, scope) if node.id not in local else None
            path = value.path if isinstance(value, Named) else None
        elif isinstance(node, ast.Attribute):
            path = self.path_of(node.value, scope, local)
            path = f"{path}.{node.attr}" if path else None
            if path and not isinstance(node.value, ast.Name) and not isinstance(own(path.rpartition(".")[0]), ModuleType):
                return None
        else:
            return None
        return path if path and (path + ".").startswith("triton.") else None

    def found(self, name, scope):
        holder = scope.holder(name)
        value = holder.names[name] if holder else None
        if isinstance(value, Imported):
            self.values.steps = 0
            value = self.values.resolve(value, holder)
        return value

    def take(self, name, scope):
        """Gives the module what a name of a body means. One that is not known stays away, and Triton says so if it is
        needed."""
        value = self.found(name, scope)
        if isinstance(value, Function):
            if isinstance(value.node, ast.Lambda) or not any(map(is_jit, value.node.decorator_list)):
                return
            made = self.add(value.node, value.scope)
            if self.aliases.setdefault(name, made) != made or name in self.names:
                raise Failed(f"two things of its files are called '{name}'")
            return
        if value is None and scope.holder(name) is None:
            return  # Python's or nobody's
        try:
            constant = self.worked_out(value, name)
        except Failed:
            return
        if isinstance(value, (*PLAIN, list, tuple)):
            constant = own("triton.language.constexpr")(tuple(constant) if isinstance(constant, list) else constant)
        if str(self.names.setdefault(name, constant)) != str(constant) or name in self.aliases:
            raise Failed(f"two things of its files are called '{name}'")

    def load(self, folder):
        """The slice as a module. Triton wants its functions to have a file."""
        path = os.path.join(folder, "convtune_kernel.py")
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n\n".join(self.functions) + "\n")
        loader = importlib.machinery.SourceFileLoader("convtune_kernel", path)
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader("convtune_kernel", loader))
        sys.modules["convtune_kernel"] = module
        vars(module).update({**self.names, "triton": own("triton"), "tl": own("triton.language")})
        loader.exec_module(module)
        vars(module).update({name: getattr(module, made) for name, made in self.aliases.items()})
        return module
