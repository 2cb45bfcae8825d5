"""Files and statements followed as far as they go: what names come to, what a function returns."""

import ast
import itertools
import os

from python_objects import Class, Config, Function, Imported, Instance, is_decorated, Named, NotKnown, PLAIN, Raised, Scope, Tensor

MOST_FILES = 200  # that are followed through imports
MOST_CHARACTERS = 4 << 20  # per of them
CAUGHT = ("KeyError", "IndexError", "LookupError", "Exception")  # by name, what catches a lookup that fails


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


class Statements:
    """The part of Values that follows files and statements; expressions are of the other parts."""

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
            return Class(imported.named.text, scope, value.body, value.bases)
        if isinstance(value, Function):
            here = Function(value.node, value.scope)
            here.made = imported.named.text, imported.named.scopes
            return here  # by the name that it has here, as what follows
        return imported.named if isinstance(value, Named) else value

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
                    source = text.read(MOST_CHARACTERS + 1)
                if len(source) <= MOST_CHARACTERS:
                    self.modules[file] = self.module(ast.parse(source), file)
            except (OSError, ValueError, SyntaxError, RecursionError, NotKnown):
                pass
        return self.modules[file]

    # Statements

    def follow(self, body, scope):
        """Statements as far as they go: what cannot be worked out is carried by its name."""
        try:
            self.followed(body, scope)
        except (Returned, Left):
            pass  # for this branch; another may go on

    def followed(self, body, scope):
        for statement in body:
            try:
                self.execute(statement, scope, True)
            except NotKnown as error:
                self.is_whole &= not isinstance(statement, (ast.For, ast.While))
                self.forget([statement], scope, str(error))

    def forget(self, body, scope, why):
        for node in itertools.chain.from_iterable(ast.walk(statement) for statement in body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                scope.names[node.id] = Named(node.id, None, frozenset([scope]), why)
        self.forget_attributes(body, scope, why)

    @staticmethod
    def forget_attributes(body, scope, why):
        """Forgets the attributes of objects that statements may have set."""
        for node in itertools.chain.from_iterable(ast.walk(statement) for statement in body):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                holder = scope.holder(node.value.id)
                if holder is not None and isinstance(holder.names[node.value.id], Instance):
                    holder.names[node.value.id].names[node.attr] = Named(ast.unparse(node), None, frozenset(), why)

    def execute(self, node, scope, tolerant=False):
        self.count(node)
        kind = type(node)
        if kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            scope.names[node.name] = Function(node, scope)
        elif kind is ast.ClassDef:
            inner = Scope(scope)
            self.follow([one for one in node.body if isinstance(one, (ast.Assign, ast.AnnAssign))], inner)
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and is_decorated(one, "classmethod"):
                    inner.names[one.name] = Function(one, scope)
            methods = {one.name: Function(one, scope) for one in node.body if isinstance(one, ast.FunctionDef)
                       and not is_decorated(one, "property")}
            scope.names[node.name] = Class(node.name, scope, inner, tuple(map(ast.unparse, node.bases)), methods)
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
            load = ast.copy_location(ast.BinOp(loaded(node.target), node.op, node.value), node)
            self.assign_from(load, [node.target], scope)
        elif kind is ast.If:
            self.branch(node, scope, tolerant)
        elif kind is ast.For:
            self.loop(node, scope, tolerant)
        elif kind is ast.Try:
            self.attempt(node, scope, tolerant)
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
            return self.followed(body, scope)
        for statement in body:
            self.execute(statement, scope)

    def attempt(self, node, scope, tolerant):
        try:
            self.block(node.body + node.orelse, scope, tolerant)
        except Raised:
            caught = [one for one in node.handlers if one.type is None or ast.unparse(one.type) in CAUGHT]
            if not caught:
                raise
            self.block(caught[0].body, scope, tolerant)
        self.block(node.finalbody, scope, tolerant)

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
        left = self.side(node.body, scope)
        one = scope.names
        scope.names = dict(before)
        other_left = self.side(node.orelse, scope)
        self.forget_attributes([node], scope, "it depends on what is not known")
        if left or other_left:
            if left and other_left:
                raise Returned(scope.returned[-1])
            scope.names = scope.names if left else one  # for the side that goes on
            return None
        for name in set(one) | set(scope.names):
            a, b = one.get(name), scope.names.get(name)
            same = type(a) is type(b) and (a is b or self.equal(a, b, node))
            if same:
                continue
            if name in before or not (name in one) != (name in scope.names):
                scope.names[name] = Named(name, None, frozenset([scope]), f"'{name}' depends on what is not known")
            else:  # bound on one side alone
                scope.names[name] = a if name in one else b
        return None

    def side(self, body, scope):
        """Follows one side of a branch that may have been taken; whether it ends in a return."""
        try:
            self.followed(body, scope)
        except Returned as returned:
            scope.returned.append(returned.value)
            return True
        except Left:
            self.is_whole = False
        return False

    def equal(self, a, b, node=None):
        try:
            if isinstance(a, Tensor) and isinstance(b, Tensor):
                a, b = a.shape, b.shape
            self.weigh(a, b, node=node)
            return isinstance(a, PLAIN + (list, tuple)) and bool(a == b)
        except Exception:  # an error that another type's comparison raises
            return False

    def leaves(self, body):
        """True where nothing but a refusal stands there, or a call that does not count."""
        refuses = any(isinstance(item, ast.Raise) for item in body) or not self.launched
        return all(isinstance(item, (ast.Raise, ast.Pass, ast.Assert)) or refuses and isinstance(item, ast.Expr) for item in body)

    def loop(self, node, scope, tolerant):
        for item in self.items(self.value(node.iter, scope), node):
            self.count(node)
            self.assign(node.target, item, scope)
            try:
                self.block(node.body, scope, bool(self.launched))
            except Break:
                return
            except Continue:
                continue
        self.block(node.orelse, scope, tolerant)

    def turns(self, node, scope):
        while self.truth(node.test, scope):
            self.count(node)
            try:
                self.block(node.body, scope, bool(self.launched))
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
            elif isinstance(holder, Instance):
                holder.names[target.attr] = value
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, scope)
            if isinstance(holder, (dict, list)):
                key = self.value(target.slice, scope)
                self.weigh(key, node=target)
                try:
                    holder[key] = value
                except (TypeError, IndexError) as error:
                    raise NotKnown(str(error), target.lineno) from None


def loaded(target):
    class Load(ast.NodeTransformer):
        def generic_visit(self, node):
            if hasattr(node, "ctx"):
                node.ctx = ast.Load()
            return super().generic_visit(node)

    return Load().visit(ast.parse(ast.unparse(target), mode="eval").body)


