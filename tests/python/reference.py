"""The tests' oracle: a convolution in double, by its definition, in a few lines of NumPy."""

import numpy


def conv2d(x, w, bias=None, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, relu=False):
    """`padding`: (top, left, bottom, right). Padding never multiplies: a window's padded pixels are left out."""
    x, w = numpy.asarray(x, numpy.float64), numpy.asarray(w, numpy.float64)
    n, c, height, width = x.shape
    k, c_of_group, r, s = w.shape
    top, left, bottom, right = padding
    p = (height + top + bottom - dilation[0] * (r - 1) - 1) // stride[0] + 1
    q = (width + left + right - dilation[1] * (s - 1) - 1) // stride[1] + 1
    y = numpy.zeros((n, k, p, q))
    if bias is not None:
        y += numpy.asarray(bias, numpy.float64)[None, :, None, None]
    with numpy.errstate(invalid="ignore", over="ignore"):
        for row in range(p):
            for column in range(q):
                for i in range(r):
                    for j in range(s):
                        at = row * stride[0] + i * dilation[0] - top, column * stride[1] + j * dilation[1] - left
                        if 0 <= at[0] < height and 0 <= at[1] < width:
                            pixels = x[:, :, at[0], at[1]].reshape(n, groups, c_of_group, 1)
                            taps = w[:, :, i, j].reshape(groups, k // groups, c_of_group)
                            products = numpy.einsum("ngci,gkc->ngk", pixels, taps)
                            y[:, :, row, column] += products.reshape(n, k)
    return numpy.where(y < 0, 0, y) if relu else y


def close(y, expected, taps):
    """Within what sums of `taps` products in fp32 may differ by; NaN and Inf where the oracle has them."""
    expected = expected.astype(numpy.float32)
    numpy.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-6 * max(taps, 1) ** 0.5 * 4, equal_nan=True)
