"""Builds the signature that Triton compiles a launch for: types, constants, and what is a multiple of 16. It decides whether
loads are wide and loops are pipelined. Read of the file's own launch; what that does not say is assumed.
"""

import ast
import itertools
import re

from python_objects import Named, NotKnown, Tensor
from python_values import Values
from triton_source import KernelUse


TYPES = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}
MOST_TRUTHS = 2  # truth values that are not known, and are compiled both ways


def launch_values(file, kernel, given, dtype):
    """Each parameter's value at the launch, as far as it is known there, for tensors of the type."""
    def ask(values, node, scope):
        found = {}
        for name, value in file.arguments(kernel, node).items():
            try:
                found[name] = values.value(value, scope)
            except NotKnown:
                pass
        return found

    try:
        return file.launched(kernel, given, ask, TYPES[dtype])
    except NotKnown:
        return {}


def number_at(value):
    """A value as a constant: a number, text, or what Triton's language names."""
    value = Values.one(value)
    is_own = isinstance(value, Named) and value.path.startswith("triton.language.")
    return value if is_own or isinstance(value, (int, float, bool, str)) else None


def truths(kernel, constants, defaults):
    """The constants that are not known and are asked for as truth values alone: each combination of them; none where
    there are too many."""
    params = [*kernel.node.args.posonlyargs, *kernel.node.args.args, *kernel.node.args.kwonlyargs]
    names = [arg.arg for arg in params if arg.annotation is not None and "constexpr" in ast.unparse(arg.annotation)
             and arg.arg not in constants and arg.arg not in defaults and is_truth(kernel.node, arg.arg)]
    if len(names) > MOST_TRUTHS:
        return [{}]
    return [dict(zip(names, values)) for values in itertools.product((False, True), repeat=len(names))]


def is_truth(kernel, name):
    """True where a body asks for a name as a truth value, and hands it over at most."""
    asked, handed, used = set(), set(), set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name) and node.id == name:
            used.add(node)
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            asked.add(node.test)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            asked.add(node.operand)
        elif isinstance(node, ast.BoolOp):
            asked |= set(node.values)
        elif isinstance(node, ast.Call):
            handed |= {*node.args, *[word.value for word in node.keywords]}
    return used <= asked | handed and (bool(used & asked) or not used)


def signature_of(file, kernel, given, dtype):
    """Returns the signature of the parameters: types, constants, and what is a multiple of 16."""
    use = KernelUse(kernel.node, file.functions)
    launch = launch_values(file, kernel, given, dtype)
    expressions = {}
    for call, _ in file.launches(kernel):
        expressions = {name: ast.unparse(value) for name, value in file.arguments(kernel, call).items()}
    pointers = use.pointers() | {name for name, value in launch.items() if isinstance(value, Tensor)}
    inner = inner_strides(expressions, ranks_of(file.tree))
    types, constants, multiples, assumed = {}, {}, [], []
    for name in use.params:
        value = launch.get(name)
        if name in use.constexprs:
            plain = number_at(value)
            if plain is not None or name in launch and value is None:
                constants[name] = plain
            continue
        if name in launch and value is None:
            constants[name] = None  # a pointer that is not given
        elif name in pointers:
            types[name] = pointer_type(name, expressions.get(name, ""), dtype)
            multiples.append(name)
        elif isinstance(number_at(value), bool):
            types[name] = "i1"
        elif isinstance(number_at(value), int):
            if value == 1:
                constants[name] = 1
            else:
                types[name] = "i32" if abs(number_at(value)) < 1 << 31 else "i64"
                if number_at(value) % 16 == 0:
                    multiples.append(name)
        elif isinstance(number_at(value), float) or re.search(
                r"eps|scale|alpha|beta|slope|momentum|^p$|prob|lr$|_f$|rate|margin|temperature", name):
            types[name] = "fp32"
        elif name in inner:
            constants[name] = 1
        else:
            types[name] = "i32"
            multiples.append(name)
            assumed.append(name)
    return types, constants, multiples, assumed, use


def pointer_type(name, expression, dtype):
    low = f"{name} {expression}".lower()
    if re.search(r"ind(ex|ices)|idx|label|target|token_ids|offsets|cu_seqlens|block_table|seq_?lens?", low):
        return "*i64"
    return "*" + dtype


def ranks_of(tree):
    """How many extents a tensor has, by what its shape is unpacked into: `batch, rows, columns = x.shape`."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
            continue
        shape = node.value.func if isinstance(node.value, ast.Call) and not node.value.args else node.value
        names = node.targets[0].elts
        if isinstance(shape, ast.Attribute) and shape.attr in ("shape", "size") and not any(
                isinstance(name, ast.Starred) for name in names):
            found.setdefault(ast.unparse(shape.value), set()).add(len(names))
    return {name: counts.pop() for name, counts in found.items() if len(counts) == 1}


def inner_strides(expressions, ranks):
    """Among every tensor's strides at the launch the last axis's: 1, since tensors are contiguous. Where a tensor's rank is
    not known, it is that of another with the same strides; else the last stride is the last axis's, but for stride(0)
    alone, which leads from row to row."""
    tensors, inner = {}, set()
    for name, text in expressions.items():
        if match := re.fullmatch(r"(\w+(?:\.\w+)*)\.stride\((-?\d+)\)", text):
            tensors.setdefault(match[1], {})[int(match[2])] = name
    for tensor, strides in tensors.items():
        alike = [ranks[other] for other, its in tensors.items() if other in ranks and set(its) == set(strides)]
        rank = ranks.get(tensor) or next(iter(alike), max(strides) + 1 if max(strides) > 0 else 0)
        inner.update(strides[axis] for axis in (-1, rank - 1) if axis in strides)
    return inner


def types_to_try(kernel, dtype):
    """Whatever float tensors may hold: the wrapper does not say, and some bodies take one type alone."""
    if dtype:
        return [dtype]
    text = ast.unparse(kernel.node)
    named = [short for name, short in (("bfloat16", "bf16"), ("float16", "fp16")) if f"tl.{name}" in text]
    return [*named[:1], *[one for one in ("fp32", "fp16", "bf16") if one not in named[:1]]]
