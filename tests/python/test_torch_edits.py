"""Models that are edited, hooked, cut or copied after optimize: each gives what the same model gives that was never
optimized."""

import copy
import io
import pickle
import threading
import types

import pytest
from torch_support import assert_near, torch

import convtune
from convtune.torch.modules import whole
from convtune.torch.modules.structure import followers

nn = torch.nn
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
    net = Net()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.2, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return net.eval()


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


# Each edits the model, or uses parts of it, and may return more values to be compared.
EDITS = {}


def edit(function):
    EDITS[function.__name__] = function
    return function


@edit
def nothing(net):
    pass


# ---- modules that are exchanged ----


@edit
def another_activation(net):
    net.stem[2] = nn.SiLU()
    net.block.act = nn.GELU()


@edit
def activation_to_identity(net):
    net.stem[2] = net.block.act = nn.Identity()


@edit
def norm_to_identity(net):
    net.stem[1] = net.block.bn1 = nn.Identity()


@edit
def another_norm(net):
    net.stem[1], net.block.bn1 = norm(1), norm(2)


@edit
def frozen_norm(net):
    class Frozen(nn.BatchNorm2d):  # with the values of torchvision's, detectron's and detr's
        def forward(self, x):
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            shift = self.bias - self.running_mean * scale
            return x * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)

    net.stem[1], net.block.bn1 = norm(1, Frozen), norm(2, Frozen)


@edit
def another_convolution(net):
    torch.manual_seed(3)
    net.stem[0], net.block.conv1 = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 8, 3, padding=1)


@edit
def fused_by_pytorch(net):
    fuse = nn.utils.fusion.fuse_conv_bn_eval
    for at, (conv, bn) in ((net.stem, "01"), (net.tail, "23")):
        at[int(conv)], at[int(bn)] = fuse(at[int(conv)], at[int(bn)]), nn.Identity()
    net.block.conv1, net.block.bn1 = fuse(net.block.conv1, net.block.bn1), nn.Identity()


@edit
def fused_by_a_detector(net):
    """The norm goes, the activation stays, the block gets another forward."""
    block = net.block
    block.conv1 = nn.utils.fusion.fuse_conv_bn_eval(block.conv1, block.bn1)
    delattr(block, "bn1")
    block.forward = lambda x: block.act(block.conv1(x)) + x


@edit
def convolution_wrapped(net):
    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            torch.manual_seed(4)
            self.base, self.more = base, nn.Conv2d(8, 8, 1, bias=False)

        def forward(self, x):
            self.seen = self.base(x)
            return self.seen + self.more(x)

    net.block.conv1 = Adapter(net.block.conv1)
    net(X)
    return net.block.conv1.seen


@edit
def one_module_twice(net):
    net.tail.append(net.tail[2])
    net.tail.append(net.tail[1])
    net.block.layers.append(net.block.layers[1])


@edit
def in_another_order(net):
    layers = net.block.layers
    layers[1], layers[2] = layers[2], layers[1]
    net.tail.insert(1, nn.Tanh())


@edit
def order_of_names(net):
    net.tail._modules["1"] = net.tail._modules.pop("1")


@edit
def a_nested_setattr(net):
    setattr(net.get_submodule("block"), "act", nn.Tanh())
    net.set_submodule("tail.1", nn.Softplus())


@edit
def another_class(net):
    net.stem[2].__class__ = nn.SiLU
    net.block.bn1.__class__ = nn.BatchNorm2d


# ---- what somebody sees or calls ----


def hooked(register):
    """All that a hook is told, of every convolution, norm and activation."""

    def edited(net):
        seen = []

        def hook(*values):
            seen.extend(one for one in torch.utils._pytree.tree_leaves(values[1:]) if isinstance(one, torch.Tensor))
            seen[:] = [one.detach().clone() for one in seen]

        handles = [
            getattr(module, register)(hook)
            for module in net.modules()
            if isinstance(module, (nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.SiLU))
        ]
        net(X)
        for handle in handles:
            handle.remove()
        return seen

    return edited


EDITS["forward_hooks"] = hooked("register_forward_hook")
EDITS["forward_pre_hooks"] = hooked("register_forward_pre_hook")


@edit
def hook_that_changes(net):
    net.stem[0].register_forward_hook(lambda module, args, y: y + 1)
    net.block.bn1.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    net.block.layers[2].register_forward_hook(lambda module, args, y: y - args[0])


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
def parts_of_the_model(net):
    children = list(net.stem.children())
    return [nn.Sequential(*children[:at])(X) for at in (1, 2, 3)] + [net.stem[:1](X), net.stem[:2](X), net.stem[1:](net.stem[:1](X))]


@edit
def forward_of_a_module(net):
    return [net.stem[0].forward(X), net.stem[0]._conv_forward(X, net.stem[0].weight, None), net.stem.forward(X)]


@edit
def another_forward(net):
    net.block.forward = types.MethodType(lambda self, x: self.conv1(x) - self.bn1(x), net.block)
    net.tail[0].forward = lambda x: x + 1


@edit
def forward_of_the_class(net):
    class Other(type(net.block)):
        def forward(self, x):
            y = self.conv1(x)
            return self.act(self.bn1(y)) + y

    net.block.__class__ = Other


@edit
def features_extracted(net):
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    names = {"stem.0": "a", "stem.1": "b", "block.conv1": "c", "block.act": "d"}
    features = extraction.create_feature_extractor(net, return_nodes=names)(X)
    return [features[name] for name in "abcd"]


@edit
def traced_by_fx(net):
    return torch.fx.symbolic_trace(net)(X)


@edit
def functional_call(net):
    torch.manual_seed(5)
    state = {name: one + torch.rand_like(one) for name, one in net.state_dict().items() if one.is_floating_point()}
    return torch.func.functional_call(net, state, (X,))


@edit
def vmapped(net):
    return torch.func.vmap(net)(X[None])


# ---- attributes ----


@edit
def settings_of_activations(net):
    net.block.act.negative_slope = 0.7
    net.tail[1].max_val = 0.2
    net.stem[2].inplace = False


@edit
def settings_of_norms(net):
    net.stem[1].eps = 0.5
    net.block.bn1.affine = False
    net.block.bn1.weight = net.block.bn1.bias = None


@edit
def batch_statistics(net):
    for one in (net.stem[1], net.block.bn1):
        one.track_running_stats, one.running_mean, one.running_var = False, None, None


@edit
def a_branch_of_forward(net):
    net.block.adds = True


@edit
def a_loop_of_forward(net):
    net.block.runs = 2


@edit
def no_loop_of_forward(net):
    net.block.runs = 0


@edit
def padding(net):
    net.block.conv1.padding_mode, net.block.conv2.stride = "reflect", (1, 1)
    net.block.conv1._reversed_padding_repeated_twice = [1, 1, 1, 1]


# ---- parameters and buffers ----


@edit
def buffers_by_data(net):
    before = net(X)
    for one in (net.stem[1], net.block.bn1):
        one.running_mean.data = one.running_mean + 1
        one.running_var.data = one.running_var * 4
    return before


@edit
def parameters_counted(net):
    before = net(X)
    net.stem[1].weight.mul_(2)
    net.block.conv1.weight.add_(0.1)
    net.tail[0].bias.zero_()
    return before


@edit
def pruned(net):
    from torch.nn.utils import prune

    prune.l1_unstructured(net.block.conv1, "weight", 0.5)
    prune.l1_unstructured(net.block.bn1, "weight", 0.5)


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
def half(net):
    net.double()
    values = net(X.double())
    net.float()
    return values.float()


# ---- copies ----


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
def restored(net):
    net.stem[2] = nn.SiLU()
    net.block.conv1.register_forward_hook(lambda module, args, y: y + 1)
    convtune.restore(net)


# ---- compilers ----


@edit
def compiled(net):
    torch._dynamo.reset()
    values = [torch.compile(net, backend="aot_eager", fullgraph=True)(X)]
    net.stem[2] = nn.SiLU()
    net.block.bn1.register_forward_hook(lambda module, args, y: y + 1)
    values.append(torch.compile(net, backend="aot_eager")(X))
    torch._dynamo.reset()
    return values


@edit
def compiled_in_part(net):
    """Parts run as Dynamo's graphs, and parts as they stand."""
    torch._dynamo.reset()
    values = []
    for part in (net.stem[0], net.stem[1], net.block.bn1, net.block.conv2, net.tail):
        part.forward = torch.compile(part.forward, backend="aot_eager")
        values.append(net(X))
    torch._dynamo.reset()
    return values


@edit
def norm_never_compiled(net):
    torch._dynamo.reset()
    net.block.forward = torch._dynamo.disable(net.block.forward)
    values = torch.compile(net, backend="aot_eager")(X)
    torch._dynamo.reset()
    return values


@edit
def exported(net):
    values = [torch.export.export(net, (X,), strict=strict).module()(X) for strict in (False, True)]
    torch._dynamo.reset()
    return values


@edit
def traced_by_jit(net):
    return torch.jit.trace(net, X)(X)


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
    """One of them hooks, the others call."""
    values, stop = [None] * 3, threading.Event()

    def call(number):
        with torch.no_grad():
            for _ in range(20):
                values[number] = net(X)

    def hook():
        while not stop.is_set():
            net.block.conv1.register_forward_hook(lambda *_: None).remove()
            with torch.no_grad():
                net.stem[0](X)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    other = threading.Thread(target=hook)
    for one in [*threads, other]:
        one.start()
    for one in threads:
        one.join()
    stop.set()
    other.join()
    return values


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*deprecated")
def test_as_the_plain_model(name):
    answers = []
    for net in (made(), optimized(made())):
        with torch.no_grad():
            net(X)
            values = EDITS[name](net)
            values = [] if values is None else [values] if isinstance(values, torch.Tensor) else list(values)
            answers.append([*values, net(X), net(X)])
    plain, ours = answers
    assert len(plain) == len(ours)
    for one, other in zip(ours, plain):
        assert_near(one, other)
