"""On a GPU: CUDA graphs, streams, TF32, cuDNN in a graph, and optimize on a small model."""

import gc

import pytest
from torch_support import assert_near, double_conv2d, on_gpu, tensors, torch

import convtune
import convtune.torch

pytestmark = on_gpu


def captured(run):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run()
    return graph, y


@pytest.mark.parametrize("kind", ["module", "function", "operator"])
def test_a_graph_sees_weights_that_change(kind):
    x, w, bias = tensors("cuda", (4, 3, 32, 32), 8)
    module = convtune.nn.Conv2d(3, 8, 3).cuda().eval()
    with torch.no_grad():
        module.weight.copy_(w), module.bias.copy_(bias)
        if kind == "module":
            w, bias = module.weight, module.bias
        run = {
            "module": lambda: module(x),
            "function": lambda: convtune.conv2d(x, w, bias),
            "operator": lambda: torch.ops.convtune.conv2d(x, w, bias, (1, 1), (0, 0, 0, 0), (1, 1), 1),
        }[kind]
        run()
        graph, y = captured(run)
        for change in (lambda: w.mul_(2), lambda: w.data.mul_(2), lambda: bias.data.add_(1), lambda: x.neg_()):
            change()
            graph.replay()
            assert_near(y, double_conv2d(x, w, bias), tf32=True)
            convtune.torch.forget_packed(w)  # an eager call does not see writes through `.data` by itself
            assert torch.equal(run(), y)
        module = run = None
        convtune.clear_caches()
        gc.collect()
        graph.replay()  # its kernels stay loaded
        assert_near(y, double_conv2d(x, w, bias), tf32=True)


def test_a_graph_of_what_never_ran_says_prepare():
    x = tensors("cuda", (3, 3, 21, 23), 8)[0]
    module = convtune.nn.Conv2d(3, 8, 3).cuda().eval()
    with torch.no_grad():
        with pytest.raises(convtune.Error, match="prepare"):
            captured(lambda: module(x))
        torch.cuda.synchronize()
        module.prepare((3, 3, 21, 23))
        graph, y = captured(lambda: module(x))
        graph.replay()
        assert_near(y, double_conv2d(x, module.weight, module.bias), tf32=True)


def test_a_training_step_in_a_graph():
    x = tensors("cuda", (8, 3, 16, 16))[0]
    torch.manual_seed(0)
    pairs = []
    for kind in (torch.nn.Conv2d, convtune.nn.Conv2d):
        torch.manual_seed(1)
        module = kind(3, 8, 3).cuda()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

        def step(module=module, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=False)
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph, loss = captured(step)
        for _ in range(10):
            graph.replay()
        torch.cuda.synchronize()
        pairs.append((float(loss), module))
    assert abs(pairs[0][0] - pairs[1][0]) < 1e-3 * abs(pairs[0][0])
    # Evaluated eagerly after replays, whose steps no version counts.
    module = pairs[1][1].eval()
    with torch.no_grad():
        assert_near(module(x), double_conv2d(x, module.weight, module.bias), tf32=True)


def test_reduce_overhead():
    torch._dynamo.reset()
    module = convtune.nn.Conv2d(3, 8, 3, padding=1).cuda().eval()
    compiled = torch.compile(lambda x: module(x).relu(), mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for step in range(5):
            x = tensors("cuda", (4, 3, 32, 32), seed=step)[0]
            expected = double_conv2d(x, module.weight, module.bias, padding=(1, 1, 1, 1)).relu()
            assert_near(compiled(x), expected, tf32=True)
            module.weight.mul_(1.1)


def test_streams():
    x, w, bias = tensors("cuda", (16, 16, 64, 64), 32)
    expected = double_conv2d(x, w, bias)
    convtune.conv2d(x, w, bias)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    for step in range(20):
        stream = streams[step % 3]
        with torch.cuda.stream(stream):
            w2 = w * (step + 1)
            y = convtune.conv2d(x, w2, bias)
            z = convtune.conv2d(x, w, bias)
        stream.synchronize()
        assert_near(z, expected, tf32=True)
        if step % 7 == 0:
            assert_near(y, double_conv2d(x, w2, bias), tf32=True)


def test_tf32_is_what_pytorch_allows():
    x, w, bias = tensors("cuda", (2, 16, 20, 20), 8)
    expected = double_conv2d(x, w, bias)
    rest = (1, 1), (0, 0, 0, 0), (1, 1), 1

    def error():
        return float((convtune.conv2d(x, w, bias).double() - expected).abs().max())

    before = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = False
        assert convtune.torch.convolution_of(x, w, bias, *rest).problem.precision == "fp32"
        exact = error()
        torch.backends.cudnn.allow_tf32 = True
        assert convtune.torch.convolution_of(x, w, bias, *rest).problem.precision == "tf32"
        assert exact < 2e-5 and error() > 10 * exact
        assert float((convtune.conv2d(x, w, bias, precision="fp32").double() - expected).abs().max()) < 2e-5
    finally:
        torch.backends.cudnn.allow_tf32 = before


def test_cudnn_in_a_graph_is_pytorchs(monkeypatch):
    from convtune.convolution import Convolution

    x, w, bias = tensors("cuda", (2, 16, 20, 20), 8)
    original = Convolution.__init__
    monkeypatch.setattr(Convolution, "__init__", lambda self, problem, device, *_: original(self, problem, device, "cudnn"))
    try:
        convtune.clear_caches()
        with torch.no_grad():
            y = convtune.conv2d(x, w, bias)
            assert_near(y, double_conv2d(x, w, bias), tf32=True)
            graph, z = captured(lambda: convtune.conv2d(x, w, bias))
            w.mul_(2)
            graph.replay()
            assert_near(z, double_conv2d(x, w, bias), tf32=True)
    finally:
        convtune.clear_caches()


def test_optimize_and_restore():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, 1, 1), torch.nn.ReLU()
    )
    model = model.cuda().eval()
    x = torch.randn(32, 3, 224, 224, device="cuda")
    with torch.no_grad():
        expected = model(x)
        assert convtune.optimize(model, x, budget=2, progress=False) is model
        report = model.convtune_report
        print(report)
        assert report.kept and all(layer.swapped for layer in report.layers)
        assert type(model[0]) is convtune.nn.Conv2d
        assert_near(model(x), expected, tf32=True)
        model[0].weight.mul_(2), model[0].bias.mul_(2)
        changed = model(x)
        graph, y = captured(lambda: model(x))
        graph.replay()
        assert torch.equal(y, changed)
        assert model(x[:5]).shape[0] == 5  # not proven: PyTorch's
        convtune.restore(model)
        assert type(model[0]) is torch.nn.Conv2d
        assert_near(changed, model(x), tf32=True)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9, reason="these kernels are Hopper's (sm_90a)"
)
@pytest.mark.parametrize("problem, algorithm", [
    ("mb4ic3ih224oc128kh16sh16 bias=0 precision=tf32", "direct_patch_sm90"),
    ("mb4ic64ih28oc64kh3ph1 bias=0 dtype=bf16 layout=nhwc", "implicit_gemm_half_sm90"),
    ("mb4ic64ih28oc64kh3ph1 bias=0 dtype=bf16 layout=nhwc", "direct_body_half_sm90"),
])  # fmt: skip
def test_tensors_at_many_places(problem, algorithm):
    """Kernels that TMA feeds: the driver's map of a tensor is kept by its address, and of no more than 16."""
    problem = convtune.Problem.parse(problem)
    convolution = convtune.Convolution(problem, "cuda:0", algorithm)
    half = problem.dtype == "bf16"
    dtype, lies = (torch.bfloat16, torch.channels_last) if half else (torch.float32, torch.contiguous_format)
    torch.manual_seed(0)
    w = (torch.rand(problem.k, problem.c, problem.r, problem.s, device="cuda") - 0.5).to(dtype)
    packed = torch.empty(convolution.packed_bytes, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    convolution.pack_raw(w.data_ptr(), 0, packed.data_ptr(), stream)
    made = {"dtype": dtype, "device": "cuda", "memory_format": lies}
    places = []
    for _ in range(40):
        x = torch.rand(problem.n, problem.c, problem.h, problem.w, device="cuda").to(dtype).to(memory_format=lies)
        expected = torch.conv2d(x.double(), w.double(), stride=problem.stride, padding=problem.padding[:2])
        places.append((x, torch.empty(expected.shape, **made), expected))
    for order in (range(40), [0, 1] * 4, range(39, -1, -1)):
        for i in order:
            x, y, _ = places[i]
            y.zero_()
            convolution.run_raw(x.data_ptr(), packed.data_ptr(), y.data_ptr(), stream)
        for i in order:
            _, y, expected = places[i]
            assert float((y - expected).abs().max() / expected.square().mean().sqrt()) < 3e-2, i
