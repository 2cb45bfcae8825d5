"""Models that are edited, hooked, cut or copied after optimize: each gives what the same model gives that was never
optimized."""

import copy
import io
import pickle
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch_support import assert_near, torch, with_statistics

from torch.nn.utils import prune

import convtune
from convtune.torch.modules import whole
from convtune.torch.modules.structure import followers

nn = torch.nn
fuse = nn.utils.fusion.fuse_conv_bn_eval
X = torch.rand(2, 3, 14, 14)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.act = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.1)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        self.layers = nn.ModuleList([nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.SiLU()])
        self.adds, self.runs = False, 1

    def forward(self, x):
        y = self.conv1(x)
        z = self.act(self.bn1(y))
        if self.adds:
            z = z + y
        y = self.conv2(z)
        for _ in range(self.runs):
            y = self.bn2(y)
        for layer in self.layers:
            y = layer(y)
        return y + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.block = Block()
        self.tail = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU6(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))

    def forward(self, x):
        return self.tail(self.block(self.stem(x)))


def made():
    torch.manual_seed(0)
    return with_statistics(Net())


def optimized(net):
    """As optimize leaves it where every convolution is proven."""
    found = followers(net)
    assert len(found) == 6
    for convolution, behind in found.items():
        whole.swap(convolution, "", False, behind)
    return net


def norm(seed, kind=nn.BatchNorm2d, features=8):
    torch.manual_seed(seed)
    other = kind(features)
    nn.init.uniform_(other.running_mean, -1, 1)
    nn.init.uniform_(other.running_var, 0.5, 3)
    return other.eval()


class Frozen(nn.BatchNorm2d):
    """With the values of torchvision's, detectron's and detr's."""

    def forward(self, x):
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        torch.manual_seed(4)
        self.base, self.more = base, nn.Conv2d(8, 8, 1, bias=False)

    def forward(self, x):
        self.seen = self.base(x)
        return self.seen + self.more(x)


def without_the_second(self, x):
    """Another forward of a block."""
    y = self.conv1(x)
    return self.act(self.bn1(y)) + y


def put(net, values):
    """Sets attributes, modules among them, by their dotted names."""
    for name, value in values.items():
        parent, _, own = name.rpartition(".")
        setattr(net.get_submodule(parent), own, value)


# Each edits the model, or uses parts of it, and may return more values to be compared.
EDITS = {
    "nothing": lambda net: None,
    # modules that are exchanged
    "another_activation": lambda net: put(net, {"stem.2": nn.SiLU(), "block.act": nn.GELU()}),
    "activation_to_identity": lambda net: put(net, dict.fromkeys(("stem.2", "block.act"), nn.Identity())),
    "norm_to_identity": lambda net: put(net, dict.fromkeys(("stem.1", "block.bn1"), nn.Identity())),
    "another_norm": lambda net: put(net, {"stem.1": norm(1), "block.bn1": norm(2)}),
    "frozen_norm": lambda net: put(net, {"stem.1": norm(1, Frozen), "block.bn1": norm(2, Frozen)}),
    "another_convolution": lambda net: torch.manual_seed(3) and put(
        net, {"stem.0": nn.Conv2d(3, 8, 3, 2), "block.conv1": nn.Conv2d(8, 8, 3, padding=1)}
    ),
    "fused_by_pytorch": lambda net: put(net, {
        name: module
        for conv, bn in (("stem.0", "stem.1"), ("tail.2", "tail.3"), ("block.conv1", "block.bn1"))
        for name, module in ((conv, fuse(net.get_submodule(conv), net.get_submodule(bn))), (bn, nn.Identity()))
    }),
    "convolution_wrapped": lambda net: put(net, {"block.conv1": Adapter(net.block.conv1)}) or [net(X), net.block.conv1.seen],
    "in_another_order": lambda net: put(
        net, {"block.layers.1": net.block.layers[2], "block.layers.2": net.block.layers[1]}
    ) or net.tail.insert(1, nn.Tanh()) and None,
    "order_of_names": lambda net: net.tail._modules.update({"1": net.tail._modules.pop("1")}),
    "a_nested_setattr": lambda net: (put(net, {"block.act": nn.Tanh()}), net.set_submodule("tail.1", nn.Softplus()))[2:],
    "another_class": lambda net: put(net, {"stem.2.__class__": nn.SiLU, "block.bn1.__class__": nn.BatchNorm2d}),
    # Functions that somebody calls
    "forward_of_a_module": lambda net: [
        net.stem[0].forward(X), net.stem[0]._conv_forward(X, net.stem[0].weight, None), net.stem.forward(X)
    ],
    "another_forward": lambda net: put(net, {
        "block.forward": types.MethodType(lambda self, x: self.conv1(x) - self.bn1(x), net.block),
        "tail.0.forward": lambda x: x + 1,
    }),
    "forward_of_the_class": lambda net: put(
        net, {"block.__class__": type("Other", (type(net.block),), {"forward": without_the_second})}
    ),
    "parts_of_the_model": lambda net: [
        *(nn.Sequential(*list(net.stem.children())[:at])(X) for at in (1, 2, 3)),
        *(net.stem[:1](X), net.stem[:2](X), net.stem[1:](net.stem[:1](X))),
    ],
    "hook_that_changes": lambda net: [
        net.stem[0].register_forward_hook(lambda module, args, y: y + 1),
        net.block.bn1.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        net.block.layers[2].register_forward_hook(lambda module, args, y: y - args[0]),
    ][3:],
    "traced_by_fx": lambda net: torch.fx.symbolic_trace(net)(X),
    "traced_by_jit": lambda net: torch.jit.trace(net, X)(X),
    "functional_call": lambda net: torch.func.functional_call(
        net, {name: one + 0.1 for name, one in net.state_dict().items() if one.is_floating_point()}, (X,)
    ),
    "norm_never_compiled": lambda net: [
        put(net, {"block.forward": torch._dynamo.disable(net.block.forward)}), torch.compile(net, backend="aot_eager")(X)
    ][1:],
    "vmapped": lambda net: torch.func.vmap(net)(X[None]),
    # attributes
    "settings_of_activations": lambda net: put(
        net, {"block.act.negative_slope": 0.7, "tail.1.max_val": 0.2, "stem.2.inplace": False}
    ),
    "settings_of_norms": lambda net: put(
        net, {"stem.1.eps": 0.5, "block.bn1.affine": False, "block.bn1.weight": None, "block.bn1.bias": None}
    ),
    "batch_statistics": lambda net: put(net, {
        f"{one}.{name}": None if name.startswith("running") else False
        for one in ("stem.1", "block.bn1") for name in ("track_running_stats", "running_mean", "running_var")
    }),
    "a_branch_of_forward": lambda net: put(net, {"block.adds": True}),
    "a_loop_of_forward": lambda net: put(net, {"block.runs": 2}),
    "no_loop_of_forward": lambda net: put(net, {"block.runs": 0}),
    "padding": lambda net: put(net, {
        "block.conv1.padding_mode": "reflect", "block.conv1._reversed_padding_repeated_twice": [1, 1, 1, 1],
        "block.conv2.stride": (1, 1),
    }),
    # parameters
    "parameters_counted": lambda net: [
        net(X), net.stem[1].weight.mul_(2), net.block.conv1.weight.add_(0.1), net.tail[0].bias.zero_()
    ][:1],
    "pruned": lambda net: [prune.l1_unstructured(one, "weight", 0.5) for one in (net.block.conv1, net.block.bn1)][2:],
    "half": lambda net: [net.double()(X.double()).float(), net.float()][:1],
    # Changes undone
    "restored": lambda net: [
        put(net, {"stem.2": nn.SiLU()}), net.block.conv1.register_forward_hook(lambda module, args, y: y + 1),
        convtune.restore(net),
    ][3:],
}  # fmt: skip


def edit(function):
    EDITS[function.__name__] = function
    return function


@edit
def fused_by_a_detector(net):
    """The norm goes, the activation stays, the block gets another forward."""
    block = net.block
    block.conv1 = fuse(block.conv1, block.bn1)
    delattr(block, "bn1")
    block.forward = lambda x: block.act(block.conv1(x)) + x


@edit
def one_module_twice(net):
    net.tail.append(net.tail[2])
    net.tail.append(net.tail[1])
    net.block.layers.append(net.block.layers[1])


def hooked(register):
    """All that a hook is told, of every convolution, norm and activation."""

    def edited(net):
        seen = []

        def hook(*values):
            seen.extend(one for one in torch.utils._pytree.tree_leaves(values[1:]) if isinstance(one, torch.Tensor))
            seen[:] = [one.detach().clone() for one in seen]

        kinds = nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU
        handles = [getattr(one, register)(hook) for one in net.modules() if isinstance(one, kinds)]
        net(X)
        for handle in handles:
            handle.remove()
        return seen

    return edited


EDITS["forward_hooks"] = hooked("register_forward_hook")
EDITS["forward_pre_hooks"] = hooked("register_forward_pre_hook")


@edit
def hooks_of_all_modules(net):
    seen = []
    register = nn.modules.module.register_module_forward_hook
    handle = register(lambda module, args, y: seen.append(y.clone()) if isinstance(module, nn.Conv2d) else None)
    net(X)
    handle.remove()
    return seen


@edit
def gradients(net):
    """Grad-CAM: activations and their gradients at a convolution."""
    seen = []
    net.block.conv1.register_forward_hook(lambda module, args, y: seen.append(y))
    net.block.conv1.register_full_backward_hook(lambda module, given, got: seen.append(got[0]))
    with torch.enable_grad():
        net(X).square().sum().backward()
    return [one.detach() for one in seen] + [net.stem[0].weight.grad]


@edit
def each_called_alone(net):
    block, y = net.block, net.stem[0](X)
    return [y, net.stem[1](y), net.stem[2](y.clone()), block.conv1(y), block.bn1(y), block.act(y), net.tail[0](y)]


@edit
def features_extracted(net):
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    names = {"stem.0": "a", "stem.1": "b", "block.conv1": "c", "block.act": "d"}
    features = extraction.create_feature_extractor(net, return_nodes=names)(X)
    return [features[name] for name in "abcd"]


@edit
def buffers_by_data(net):
    before = net(X)
    for one in (net.stem[1], net.block.bn1):
        one.running_mean.data = one.running_mean + 1
        one.running_var.data = one.running_var * 4
    return before


@edit
def parametrized(net):
    class Twice(nn.Module):
        def forward(self, weight):
            return weight * 2

    nn.utils.parametrizations.weight_norm(net.block.conv1)
    for module in (net.stem[0], net.stem[1], net.tail[0]):
        nn.utils.parametrize.register_parametrization(module, "weight", Twice())


@edit
def trained(net):
    net.train()
    values = [net(X)]
    net.eval()
    net.block.bn1.train()
    return [*values, net(X), net(X), net.block.bn1.running_mean.clone()]


@edit
def deep_copy(net):
    other = copy.deepcopy(net)
    other.stem[2] = other.block.act = nn.SiLU()
    one = copy.deepcopy(net.block.conv1)
    return [other(X), one(net.stem(X)), copy.deepcopy(net.stem)(X), copy.copy(net)(X)]


@edit
def pickled(net):
    other = pickle.loads(pickle.dumps(net))
    values = [other(X)]
    other.stem[2] = nn.SiLU()
    other.block.bn1.register_forward_hook(lambda *_: values.append(_[2].clone()))
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return [*values, other(X), *values, torch.load(file, weights_only=False)(X)]


@edit
def compiled(net):
    values = [torch.compile(net, backend="aot_eager", fullgraph=True)(X)]
    net.stem[2] = nn.SiLU()
    net.block.bn1.register_forward_hook(lambda module, args, y: y + 1)
    return [*values, torch.compile(net, backend="aot_eager")(X)]


@edit
def compiled_in_part(net):
    """Parts run as Dynamo's graphs, and parts as they stand."""
    values = []
    for part in (net.stem[0], net.stem[1], net.block.bn1, net.block.conv2, net.tail):
        part.forward = torch.compile(part.forward, backend="aot_eager")
        values.append(net(X))
    return values


@edit
def exported(net):
    return [torch.export.export(net, (X,), strict=strict).module()(X) for strict in (False, True)]


@edit
def raised_within(net):
    """Nothing stays behind of a call that did not end."""
    handle = net.block.layers[0].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        net(X)
    handle.remove()
    return [net.stem[0](X), net.block.bn1(net.stem(X))]


@edit
def by_threads(net):
    """One thread hooks, the others call."""
    stop = threading.Event()

    @torch.no_grad()
    def call(_):
        return [net(X) for _ in range(20)][-1]

    @torch.no_grad()
    def hook():
        while not stop.is_set():
            net.block.conv1.register_forward_hook(lambda *_: None).remove()
            net.stem[0](X)

    with ThreadPoolExecutor(4) as pool:
        hooks = pool.submit(hook)
        try:
            return list(pool.map(call, range(3)))
        finally:
            stop.set()
            hooks.result()


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*deprecated")
def test_as_the_plain_model(name):
    answers = []
    for net in (made(), optimized(made())):
        torch._dynamo.reset()
        with torch.no_grad():
            net(X)
            values = EDITS[name](net)
            values = [] if values is None else [values] if isinstance(values, torch.Tensor) else list(values)
            answers.append([*values, net(X), net(X)])
    torch._dynamo.reset()
    plain, ours = answers
    assert len(plain) == len(ours)
    for one, other in zip(ours, plain):
        assert_near(one, other)
