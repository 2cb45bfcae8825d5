"""Inductor's code for convtune::conv2d_packed: a call of the kernel on memory of its own, with the operator's bits."""

import sys

import pytest
from test_torch_packed import images, packed_call
from torch_support import by_cpp, each_device, torch

import convtune
from convtune.torch.graph.lowering import bound, install
from convtune.torch.packed import conv2d_packed

pytestmark = by_cpp


@pytest.fixture
def compiled():
    """(the function compiled by inductor, what it gives, the code that inductor wrote)."""
    install()
    torch._dynamo.reset()

    def made(function, *arguments, **options):
        with torch.no_grad():
            run = torch.compile(function, fullgraph=True, dynamic=False, options=options)
            y, code = torch._inductor.utils.run_and_get_code(run, *arguments)
        return run, y, "\n".join(code)

    yield made
    torch._dynamo.reset()


def is_a_call(code):
    code = "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("#"))  # which name the graph's nodes
    return "bound(" in code and "ops.convtune" not in code


def test_what_is_computed_lies_as_the_plan_reads_it_at_once(compiled):
    """Traced it lies channels first: inductor does not write it so to copy it then."""
    (x, packed, _, plan), _ = packed_call("cpu", torch.float32, True, adds=False)
    _, y, code = compiled(lambda x: conv2d_packed(x * 2, packed, None, plan), x.contiguous())
    assert torch.equal(y, conv2d_packed(x * 2, packed, None, plan)) and y.stride() == x.stride()
    assert is_a_call(code) and code.count("= empty_strided") == 2


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_chains_of_calls(device, dtype, channels_last, compiled):
    """With a residual and something of inductor's between two of them."""
    (x, packed, z, plan), _ = packed_call(device if device == "cpu" else "cuda:0", dtype, channels_last)

    def chain(x, packed, z):
        y = conv2d_packed(x, packed, z, plan)
        return conv2d_packed(y * 0.5, packed, conv2d_packed(y, packed, y, plan), plan)

    run, y, code = compiled(chain, x, packed, z)
    assert is_a_call(code) and code.count(f"{plan!r}, ") == 1  # one plan is bound once
    expected = chain(x, packed, z)
    assert torch.equal(y, expected) and y.stride() == expected.stride()
    assert torch.equal(run(x.flip(0), packed, z), chain(x.flip(0), packed, z))


def test_images_that_lie_otherwise_are_copied_by_inductor(compiled):
    (x, packed, z, plan), _ = packed_call("cpu", torch.float32, False)
    for other in (x.to(memory_format=torch.channels_last), torch.cat([x, x], 1)[:, 16:], x.transpose(2, 3).mT):
        _, y, code = compiled(lambda x, packed, z: conv2d_packed(x, packed, z, plan), other, packed, z)
        assert is_a_call(code)
        assert torch.equal(y, conv2d_packed(other, packed, z, plan)) and y.stride() == x.stride()


def test_images_at_odd_places(compiled):
    """The graph is compiled for one whose numbers begin at a multiple of 4 bytes."""
    (x, packed, z, plan), _ = packed_call("cpu", torch.bfloat16, True)
    memory = torch.zeros(x.numel() + 1, dtype=x.dtype)
    odd = torch.as_strided(memory, x.shape, x.stride(), 1).copy_(x)
    run, y, code = compiled(lambda x, packed, z: conv2d_packed(x, packed, z, plan), x, packed, z)
    assert is_a_call(code) and odd.data_ptr() & 3
    assert torch.equal(run(odd, packed, z), y) and torch.equal(run(x, packed, z), y)


def test_what_a_call_cannot_do_stays_the_operator(compiled):
    """A plan that runs in the other layout, and code without Python."""
    (x, packed, z, plan), expected = packed_call("cpu", torch.float32, True)
    fields = plan.split("\t")
    problem = convtune.Problem.parse(fields[1])
    other = convtune.Convolution(problem.replace(layout="nchw"), "cpu")
    turned = "\t".join([fields[0], fields[1], "nchw", other.plan.algorithm, other.plan.config])
    memory = torch.zeros(other.packed_bytes, dtype=torch.uint8)
    w, bias = images(16, 16, 3, 3, device="cpu"), images(16, device="cpu")
    convtune.tensors.pack_into(memory, other, w, bias)
    _, y, code = compiled(lambda x, packed, z: conv2d_packed(x, packed, z, turned), x, memory, z)
    assert "ops.convtune.conv2d_packed" in code and "bound(" not in code
    assert (y.double() - expected).abs().max() < 1e-3 * expected.abs().max() and y.stride() == x.stride()
    _, y, code = compiled(lambda x, packed, z: conv2d_packed(x, packed, z, plan), x, packed, z, cpp_wrapper=True)
    assert "bound(" not in code and torch.equal(y, conv2d_packed(x, packed, z, plan))


def test_a_call_outlives_the_caches(compiled):
    (x, packed, z, plan), _ = packed_call("cpu", torch.float32, False)
    run, y, _ = compiled(lambda x, packed, z: conv2d_packed(x, packed, z, plan), x, packed, z)
    convtune.clear_caches()
    assert torch.equal(run(x, packed, z), y)


@each_device
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_a_bound_call_is_a_function_in_c(device, channels_last, adds):
    """The bound function leaves what it cannot do to Python's, whose errors say what is wrong."""
    where = "cpu" if device == "cpu" else "cuda:0"
    (x, packed, z, plan), _ = packed_call(where, torch.bfloat16, channels_last, adds)
    call, images = bound(plan, -1 if device == "cpu" else 0), (z,) if adds else ()
    assert type(call) is type(len)
    expected = conv2d_packed(x, packed, z, plan)
    y = torch.empty_like(expected)
    odd = torch.as_strided(torch.zeros(x.numel() + 1, dtype=x.dtype, device=device), x.shape, x.stride(), 1).copy_(x)
    for image in (x, odd):
        assert call(image, packed, *images, out=y.zero_()) is None
        assert torch.equal(y, expected)
    counted = [sys.getrefcount(one) for one in (x, packed, z, y, call)]
    for _ in range(100):
        call(x, packed, *images, out=y)
    assert [sys.getrefcount(one) for one in (x, packed, z, y, call)] == pytest.approx(counted, abs=50)
    with pytest.raises(convtune.InvalidArgument, match="null"):
        call(x, packed, *images, out=torch.empty(0, dtype=x.dtype, device=device))
    for wrong in ((x, packed), (x,), (x, packed, z, y, y)):
        with pytest.raises(TypeError):
            call(*wrong)
    with pytest.raises(AttributeError):
        call(7, packed, *images, out=y)
