"""convtune::conv2d_packed, by C++ and by Python: what nodes of compiled graphs are."""

import pytest
from torch_support import assert_near, on_gpu, torch

import convtune
from convtune.torch import folding, packed as torch_packed, run
from convtune.torch.folding import Fold, Packing
from convtune.torch.packed import conv2d_packed

functional = torch.nn.functional


def images(*shape, device):
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)


def packed_call(device, dtype, channels_last, adds=True):
    """(the packed operator's arguments, what it must give) of a chain with a residual, or none, and an activation."""
    x, w, z = (images(*shape, device=device).to(dtype) for shape in ((2, 16, 9, 8), (16, 16, 3, 3), (2, 16, 9, 8)))
    bias = images(16, device=device)
    if channels_last:
        x, z = (one.contiguous(memory_format=torch.channels_last) for one in (x, z))
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    problem = run.problem_of(x, w, True, *how, "auto", "silu", adds, bias.dtype)
    convolution = convtune.Convolution(problem, device)
    plan = run.choice_line(device, problem, problem, convolution.plan.algorithm, convolution.plan.config)
    packing = Packing(Fold((0, 1, None, None, None, None), 0.0, dtype, as_they_are=True), convolution)
    sum_ = functional.conv2d(x.double(), w.double(), bias.double(), padding=1) + (z.double() if adds else 0)
    return (x, *packing.of([w, bias]), z if adds else None, plan), functional.silu(sum_)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=on_gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_packed(device, dtype, channels_last):
    arguments, expected = packed_call(device, dtype, channels_last)
    tolerance = {torch.float32: 1e-3, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    y = conv2d_packed(*arguments)
    assert y.dtype is dtype and y.stride() == arguments[0].stride()
    assert (y.double() - expected).abs().max() < tolerance * expected.abs().max()
    assert torch.equal(torch_packed._kernel(*arguments), y)  # Python's, where the operator is C++'s
    torch.library.opcheck(conv2d_packed, arguments, test_utils=("test_schema", "test_faketensor"))
    x, packed, z, plan = arguments
    for y in (conv2d_packed(x.to(memory_format=other), packed, z.to(memory_format=other), plan)
              for other in (torch.contiguous_format, torch.channels_last)):  # fmt: skip
        assert y.stride() == x.stride() and (y.double() - expected).abs().max() < tolerance * expected.abs().max()
    elsewhere = "another device" + plan[plan.index("\t") :]
    for wrong in ((x[:1], packed, z, plan), (x, packed[:8], z, plan), (x, packed, z[:1], plan), (x, packed, z, "plan"),
                  (x, packed, z, elsewhere), (x.double(), packed, z, plan)):  # fmt: skip
        for operator in (conv2d_packed, torch_packed._kernel):
            with pytest.raises((convtune.InvalidArgument, RuntimeError)):
                operator(*wrong)


def test_graphs_share_what_is_packed_alike():
    w, bias = images(16, 16, 3, 3, device="cpu"), images(16, device="cpu")
    how, of_others = ((1, 1), (1, 1, 1, 1), (1, 1), 1), set(folding._shared)

    def packed(bias, inputs=2):
        problem = run.problem_of(torch.empty(2, 16, 9, 8), w, bias is not None, *how, "auto", "none", False, torch.float32)
        places = (inputs - 2, None if bias is None else inputs - 1, None, None, None, None)
        packing = Packing(Fold(places, 0.0, torch.float32, as_they_are=True), convtune.Convolution(problem, "cpu"))
        return packing.of([None] * (inputs - 2) + [w, bias])[0]

    first = packed(bias)
    kept = first.clone()
    assert packed(bias) is first and packed(bias, inputs=5) is first  # at other places of another graph's inputs
    assert packed(None) is not first and packed(bias.clone()) is not first
    w.mul_(2)
    other = packed(bias)
    assert other is not first and torch.equal(first, kept) and not torch.equal(other, kept)
    assert packed(bias) is other
    del other, first
    assert not any(held.memory() is not None for key, held in folding._shared.items() if key not in of_others)  # no graph, no copy


def test_graphs_that_share_see_what_another_one_packed():
    """Weights that are exchanged and put back, as averages of training's are, while one of two graphs runs."""
    w, bias = images(16, 16, 3, 3, device="cpu"), images(16, device="cpu")
    problem = run.problem_of(torch.empty(2, 16, 9, 8), w, True, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "none", False, torch.float32)
    packing = Packing(Fold((0, 1, None, None, None, None), 0.0, torch.float32, as_they_are=True), convtune.Convolution(problem, "cpu"))
    first, second = (folding.Folded([packing], (w, bias)) for _ in range(2))
    memory = first.tensors[0][0]
    assert second.tensors[0][0] is memory
    own, kept = w.data, memory.clone()
    w.data = own * 2
    assert first.refresh((w, bias)) and not torch.equal(memory, kept)
    w.data = own
    assert second.refresh((w, bias)) and torch.equal(memory, kept)  # it has not run meanwhile, and its weights are as it saw them
    assert first.refresh((w, bias)) and torch.equal(memory, kept)
    assert not first.refresh((w, bias)) and not second.refresh((w, bias))  # they do not make each other look again


def test_packed_calls_are_planned_anew_when_caches_are_cleared():
    arguments, expected = packed_call("cpu", torch.float32, False)
    threads = next(one.units for one in convtune.devices() if one.device == "cpu")
    try:
        for operator in (conv2d_packed, torch_packed._kernel):
            assert_near(operator(*arguments), expected)
            convtune.set_cpu_threads(threads + 1)  # another kind of device
            with pytest.raises((convtune.InvalidArgument, RuntimeError), match="compiled for"):
                operator(*arguments)
            convtune.set_cpu_threads(threads)
            assert_near(operator(*arguments), expected)
    finally:
        convtune.set_cpu_threads(threads)


@on_gpu
def test_a_packed_call_that_never_ran_is_refused_while_a_graph_is_recorded():
    arguments, expected = packed_call("cuda:0", torch.float16, True)
    for operator in (conv2d_packed, torch_packed._kernel):
        convtune.clear_caches()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises((convtune.Error, RuntimeError), match="a CUDA graph is being recorded"):
            with torch.cuda.graph(graph):
                operator(*arguments)
        torch.cuda.synchronize()
        operator(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = operator(*arguments)
        convtune.clear_caches()
        graph.replay()  # its kernels stay loaded
        assert (y.double() - expected).abs().max() < 1e-3 * expected.abs().max()
