"""A Triton file: its autotuned kernels, and their lists as far as they are known."""

import ast
import importlib.util

from python_objects import Config, Function, Imported, Named, NotKnown, Scope
from python_values import Values
from triton_launches import Launches
from triton_source import at_line, configs_of_call, is_jit, Kernel, KernelUse, last_name, Refused, Text

MOST_CONFIGS = 20_000
MOST_TEXT = 2_000_000  # names, values and characters of all of them


def statements_before(body, kernel):
    """Returns the statements that run before the kernel's list is read, the branch of an `if`, `with` or `try` round it too."""
    found = []
    for node in body:
        if node.lineno < kernel.anchor and node.end_lineno < kernel.line:
            found.append(node)
        elif isinstance(node, (ast.If, ast.With, ast.Try)) and node.lineno < kernel.anchor <= node.end_lineno:
            for inner in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                if inner and inner[0].lineno <= kernel.anchor <= inner[-1].end_lineno:
                    found += statements_before(inner, kernel)
    return found


# Other ways to write a kernel, by what a file imports, and what each has in place of Triton's list.
OTHERS = {"tilelang": "TileLang, whose tiles and threads its own autotuner chooses",
          "helion": "Helion, whose autotuner searches block sizes, warps and stages by itself",
          "torch.utils.cpp_extension": "CUDA C++ in a text, whose launches name their threads",
          "cupy": "CUDA C++ in a text, whose launches name their threads",
          "numba": "Numba, whose launches name their threads"}


def other_of(tree):
    """The language of a file's kernels where that is not Triton, and the line that says so."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
            [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) and node.module else [])
        for name in names:
            for module, what in OTHERS.items():
                if (name + ".").startswith(module + "."):
                    return f"{what} (line {node.lineno})"
    return ""


def not_python(source, error):
    is_cuda = "__global__" in source or "#include" in source
    return at_line(error.lineno or 1, "this is no Python, but CUDA C++: only lists of Triton's autotuner are refined" if is_cuda
                   else f"this is no Python: {error.msg}")


class File(Launches):
    def __init__(self, source, path, target):
        self.path = path
        self.text = Text(source[1:] if source.startswith("\ufeff") else source)
        self.mark = source.startswith("\ufeff")
        try:
            self.tree = ast.parse(self.text.bytes)
        except SyntaxError as error:
            raise not_python(source, error) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise Refused(f"this is no Python: {error}") from None
        self.known = known_on(target)
        self.values = Values(self.known)
        self.module = self.values.module(self.tree, path)
        self.functions = {}  # by name: the last of it
        self.all_launches = None
        self.kernels = []
        self.find(self.tree.body, [])
        self.find_assigned()
        self.kernels.sort(key=lambda kernel: kernel.line)
        listed = {id(kernel.node) for kernel in self.kernels if kernel.call}
        self.kernels = [kernel for kernel in self.kernels if kernel.call or id(kernel.node) not in listed]

    # Kernels

    def find(self, body, chain):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
                self.find_decorated(node, chain)
                self.find(node.body, [*chain, node])
            elif isinstance(node, ast.ClassDef):
                self.find(node.body, [*chain, node])
            else:
                for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                    inner = getattr(node, field, None)
                    if isinstance(inner, list):
                        self.find([item for item in inner if isinstance(item, ast.stmt)], chain)
                        for item in inner:
                            if not isinstance(item, ast.stmt):
                                self.find(item.body, chain)

    def find_decorated(self, node, chain):
        if any(self.is_of_another(one) for one in node.decorator_list):
            return
        calls = [one for one in node.decorator_list if isinstance(one, ast.Call) and last_name(one) != "heuristics"
                 and configs_of_call(one) is not None]
        tuned = [one for one in node.decorator_list if last_name(one) == "autotune"]
        jit = any(is_jit(one) for one in node.decorator_list)
        if not jit and not tuned:
            return
        if not jit:
            calls = []
        kernel = Kernel(node.name, node.decorator_list[0].lineno, node, chain)
        call = calls[0] if calls else tuned[0] if tuned else None
        if call is not None:
            kernel.call, kernel.anchor = call, call.lineno
            if isinstance(call, ast.Call):
                kernel.list = configs_of_call(call)
            if not jit:
                kernel.list, kernel.why = None, f"'{node.name}' is autotuned and no @triton.jit"
        self.kernels.append(kernel)

    def is_of_another(self, decorator):
        """True where a decorator is of another language of kernels: @tilelang.jit."""
        root = decorator.func if isinstance(decorator, ast.Call) else decorator
        while isinstance(root, ast.Attribute):
            root = root.value
        value = self.module.names.get(root.id) if isinstance(root, ast.Name) else None
        path = getattr(value.named if isinstance(value, Imported) else value, "path", None) or ""
        return path.split(".")[0] in ("tilelang", "helion")

    def find_assigned(self):
        """`tuned = triton.autotune(...)(kernel)`."""
        for owner in ast.walk(self.tree):
            if not isinstance(owner, (ast.Assign, ast.Expr, ast.Return, ast.AnnAssign)) or owner.value is None:
                continue
            for node in ast.walk(owner.value):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and node.args
                        and last_name(node.func) == "autotune" and configs_of_call(node.func) is not None):
                    continue
                inner = node.args[0]
                while isinstance(inner, ast.Call) and inner.args:
                    inner = inner.args[0]
                name = last_name(inner)
                definition = self.functions.get(name)
                kernel = Kernel(name or "?", owner.lineno, definition, self.chain_of(owner.lineno))
                kernel.call, kernel.list, kernel.anchor = node.func, configs_of_call(node.func), owner.lineno
                if isinstance(owner, ast.Assign):
                    kernel.names |= {last_name(target) for target in owner.targets} - {""}
                self.kernels.append(kernel)

    def chain_of(self, line):
        found, body = [], self.tree.body
        while True:
            inside = [node for node in body if hasattr(node, "body") and isinstance(node.body, list)
                      and node.lineno <= line <= node.end_lineno]
            if not inside:
                return found
            if isinstance(inside[0], (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.append(inside[0])
            parts = [getattr(inside[0], field, []) for field in ("body", "orelse", "finalbody")]
            body = [item for part in parts for item in part]

    def scope_of(self, kernel):
        scope = self.module
        for at, node in enumerate(kernel.chain):
            inner = Scope(scope)
            if isinstance(node, ast.ClassDef):
                if at + 1 < len(kernel.chain):
                    continue  # a function within does not see the names of its class
            else:
                for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg,
                            node.args.kwarg]:
                    if arg is not None:
                        inner.names[arg.arg] = Named(arg.arg, None, frozenset([inner]),
                                                     f"'{arg.arg}' is a parameter of '{node.name}'")
            self.values.follow(statements_before(node.body, kernel), inner)
            scope = inner
        return scope

    # Lists

    def read_list(self, kernel):
        kernel.scope = self.scope_of(kernel)
        if kernel.why:
            return
        if kernel.list is None:
            kernel.why = f"'{last_name(kernel.call)}' of line {kernel.anchor} has no list of configs that stands there"
            return
        self.values.steps = 0
        try:
            value = self.values.value(kernel.list, kernel.scope)
            if isinstance(value, Named):
                raise NotKnown(value.why or f"'{value.text[:60]}' is not known here", kernel.list.lineno)
            if not isinstance(value, (list, tuple)):
                raise NotKnown("it is no list", kernel.list.lineno)
            if len(value) > MOST_CONFIGS:
                raise NotKnown(f"it has more than {MOST_CONFIGS} configs", kernel.list.lineno)
            for item in value:
                if not isinstance(item, Config):
                    raise NotKnown("an item of it is no triton.Config" if not isinstance(item, Named) else
                                   f"'{item.text[:60]}' is not known here", kernel.list.lineno)
            self.values.weigh([[one.meta, one.others] for one in value], node=kernel.list, most=MOST_TEXT)
            kernel.configs = list(value)
        except NotKnown as error:
            kernel.why = str(error) + (f" (line {error.line})" if error.line else "")
        except RecursionError:
            kernel.why = "it is nested too deeply"

    def visible(self, scopes, kernel):
        return scopes <= set(kernel.scope.chain())

    def written(self, value, kernel, what):
        """A value as text that means the same where the list stands."""
        if not self.visible(self.values.scopes(value), kernel):
            raise NotKnown(f"{what} is {self.values.text(value)[:60]}, a name that is not seen where the list stands")
        return self.values.text(value)

    def maker(self, kernel):
        for config in kernel.configs[:1]:
            if isinstance(config.maker, Named) and self.visible(config.maker.scopes, kernel):
                return config.maker.text
        for scope in kernel.scope.chain():
            for name, value in scope.names.items():
                named = value.named if isinstance(value, Imported) else value
                if isinstance(named, Named) and named.path == "triton":
                    return f"{name}.Config"
                if isinstance(named, Named) and named.path == "triton.Config":
                    return name
        return None

    def described(self, config, kernel):
        found = {"meta": [], "others": [], "warps": 4, "stages": 3, "line": config.line, "hidden": ""}
        try:
            for name, value in config.meta.items():
                found["meta"].append([name, self.written(value, kernel, name)])
            for name, value in config.others.items():
                if name in ("num_warps", "num_stages"):
                    if isinstance(value, bool) or not isinstance(value, int):
                        raise NotKnown(f"its {name} is {self.values.text(value)[:60]}, no number that is known")
                    found["warps" if name == "num_warps" else "stages"] = max(-1, min(value, 1 << 20))
                else:
                    found["others"].append([name, self.written(value, kernel, name)])
        except NotKnown as error:
            found["hidden"] = str(error)
        return found

    def read(self):
        answer = {"kernels": [], "layers": self.layers(), "triton": has_triton(), "other": other_of(self.tree)}
        for at, kernel in enumerate(self.kernels):
            if kernel.call is not None:
                self.read_list(kernel)
            else:
                kernel.scope = self.scope_of(kernel)
                self.read_launches(kernel)
                if kernel.why == "":
                    continue  # a helper that other kernels call, or one that is launched as Triton likes
            use = KernelUse(kernel.node, self.functions) if kernel.node else None
            literal = isinstance(kernel.list, (ast.List, ast.Tuple)) and all(
                isinstance(item, ast.Call) for item in kernel.list.elts)
            hooks = sorted({word.arg for word in self.list_words(kernel) if word.arg and "hook" in word.arg})
            answer["kernels"].append({
                "at": at, "name": kernel.name, "line": kernel.line,
                "listed": kernel.call is not None, "literal": literal, "why": kernel.why or "",
                "stages": kernel.stages, "blocks": [[name, str(value)] for name, value in kernel.blocks.items()],
                "configs": [self.described(config, kernel) for config in kernel.configs],
                "maker": self.maker(kernel) or "", "loops": use.loops() if use else "any",
                "loads": len(use.loaded) if use else None, "fixed": use.fixed() if use else "",
                "hooks": hooks, "in_place": self.repeats_harm(kernel, use),
                "protected": kernel.call is not None and isinstance(kernel.call, ast.Call) and any(
                    word.arg in ("reset_to_zero", "restore_value") or (word.arg or "").endswith("hook")
                    for word in kernel.call.keywords),
                "pruned": kernel.call is not None and isinstance(kernel.call, ast.Call) and any(
                    word.arg == "prune_configs_by" for word in kernel.call.keywords)})
        return answer

    def list_words(self, kernel):
        """The keywords of every Config that the list's expression, or what of the file it names, makes."""
        found, seen, work = [], set(), [kernel.list] if kernel.list is not None else []
        while work:
            node = work.pop()
            for one in ast.walk(node):
                if isinstance(one, ast.Call) and last_name(one) == "Config":
                    found += one.keywords
                elif isinstance(one, ast.Name) and one.id not in seen:
                    seen.add(one.id)
                    holder = kernel.scope.holder(one.id)
                    value = holder.names[one.id] if holder else None
                    if isinstance(value, Function):
                        work.append(value.node)
                    work += [item.value for item in self.tree.body if isinstance(item, ast.Assign) and any(
                        isinstance(target, ast.Name) and target.id == one.id for target in item.targets)]
        return found


def has_triton():
    try:
        return importlib.util.find_spec("triton") is not None
    except (ImportError, ValueError):
        return False


def known_on(target):
    capability = (target.get("major", 8), target.get("minor", 0))
    arch = 10 * capability[0] + capability[1]
    active = "triton.runtime.driver.active.get_current_target()"
    return {"torch.version.hip": None, "torch.version.cuda": "12.8", "torch.version.xpu": None,
            "torch.cuda.is_available()": True, "torch.xpu.is_available()": False, "torch.cuda.device_count()": 1,
            "torch.are_deterministic_algorithms_enabled()": False,
            "torch.cuda.get_device_capability()": capability, f"{active}.backend": "cuda", f"{active}.arch": arch,
            f"{active}.warp_size": 32, "triton.runtime.driver.active.get_current_device()": 0,
            "triton.runtime.driver.active.utils.get_device_properties()": {
                "max_shared_mem": target.get("shared", 101376), "multiprocessor_count": target.get("sms", 1)},
            "torch.cuda.get_device_properties().multi_processor_count": target.get("sms", 1),
            "torch.cuda.get_device_properties().major": capability[0],
            "torch.cuda.get_device_properties().minor": capability[1],
            "torch.cuda.get_device_name()": target.get("product", ""), "os.environ": {}, "typing.TYPE_CHECKING": False}
