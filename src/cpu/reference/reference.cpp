// The `reference` algorithm: the oracle's sums in double precision for a whole result, of everything that a
// problem may ask.
#include "cpu/reference/reference.h"

#include <algorithm>
#include <vector>

#include "base/fork_gate.h"
#include "cpu/base/parallel.h"
#include "cpu/reference/oracle.h"
#include "problem/element.h"
#include "problem/epilogue.h"
#include "problem/rewrite.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

// The smallest i >= 0 with i * stride >= distance.
int64_t first_reaching(int64_t distance, int64_t stride) {
  return distance <= 0 ? 0 : (distance + stride - 1) / stride;
}

// Output columns computed together: their sums stay in the first-level cache.
constexpr int64_t kColumns = 128;

// A row of an activation tensor: where its first element lies, and how far apart the others are.
struct Row {
  int64_t first, step;
};
Row row_of(Layout layout, int64_t n, int64_t c, int64_t d, int64_t h, int64_t channels, int64_t depth,
           int64_t height, int64_t width) {
  if (layout == Layout::nchw) return {(((n * channels + c) * depth + d) * height + h) * width, 1};
  return {((n * depth + d) * height + h) * width * channels + c, channels};
}

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(const ConvProblem& problem, int threads)
      : asked_(problem), problem_(joined(problem)), threads_(threads) {}

  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(problem_.weight_elements() + problem_.bias_elements()) * sizeof(float);
  }

  // The weights as floats, then the bias (zeros where the problem has none).
  void pack(const void* w, const void* bias, void* packed, Stream) const override {
    const int64_t weights = problem_.weight_elements();
    auto* const to = static_cast<float*>(packed);
    for (int64_t i = 0; i < weights; ++i) to[i] = load(problem_.dtype.w, w, i);
    for (int64_t i = 0; i < problem_.bias_elements(); ++i)
      to[weights + i] = problem_.bias ? load(problem_.dtype.bias, bias, i) : 0;
  }

  void run(const Tensors& tensors, const void* packed, Stream) const override {
    const auto* const w = static_cast<const float*>(packed);
    if (problem_.direction != Direction::forward) return run_backward(tensors, w);
    std::vector<float> x = to_floats(problem_.dtype.x, tensors.x, asked_.input_elements());
    if (asked_.cache > 0)
      x = join_frames(asked_, to_floats(problem_.dtype.x, tensors.cache, asked_.cache_elements()), x);
    parallel_for(threads_, problem_.n * problem_.k, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane)
        for (int64_t z = 0; z < problem_.z(); ++z)
          write_plane(x.data(), w, tensors, plane / problem_.k, plane % problem_.k, z);
    });
  }

 private:
  void run_backward(const Tensors& tensors, const float* w) const {
    const ConvProblem& a = problem_;
    const bool for_weights = a.direction == Direction::backward_weights;
    const std::vector<float> dy = to_floats(a.dtype.y, tensors.dy, a.output_elements());
    const std::vector<float> x =
        for_weights ? to_floats(a.dtype.x, tensors.x, a.input_elements()) : std::vector<float>();
    const std::vector<float> residual =
        to_floats(a.result_type(), tensors.residual, a.residual ? a.residual_elements() : 0);
    const HostValues values{
        .x = x.data(), .w = w, .bias = w + a.weight_elements(), .residual = residual.data(), .dy = dy.data()};
    const ResultShape result = result_of(a);
    void* const to = for_weights ? tensors.dw : tensors.dx;
    parallel_for(threads_, result.elements + result.bias_elements, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double value = oracle(a, values, i).value;
        if (i < result.elements)
          store(result.type, to, i, value);
        else
          store(result.bias_type, tensors.dbias, i - result.elements, value);
      }
    });
  }

  void write_plane(const float* x, const float* w, const Tensors& tensors, int64_t n, int64_t k,
                   int64_t z) const {
    const ConvProblem& a = problem_;
    const int64_t p_size = a.p(), q_size = a.q();
    const auto bias = static_cast<double>(w[a.weight_elements() + k]);
    for (int64_t p = 0; p < p_size; ++p) {
      const Row row = row_of(a.layout, n, k, z, p, a.k, a.z(), p_size, q_size);
      for (int64_t q = 0; q < q_size; q += kColumns) {
        double sums[kColumns];
        const int64_t columns = std::min(kColumns, q_size - q);
        sum_columns(x, w, n, k, z, p, q, columns, sums);
        for (int64_t i = 0; i < columns; ++i) {
          const int64_t at = row.first + (q + i) * row.step;
          const double residual = a.residual ? static_cast<double>(load(a.dtype.y, tensors.residual, at)) : 0;
          const double value = epilogue(a, sums[i], bias, residual);
          if (a.snake != Snake::after) store(a.dtype.y, tensors.y, at, value);
          if (a.snake == Snake::none) continue;
          const auto number = [&](int64_t which) {
            return static_cast<double>(w[a.weight_elements() + which * a.k + k]);
          };
          const int64_t behind = a.snake == Snake::beside ? a.residual_elements() : 0;
          store(a.dtype.y, tensors.y, at + behind, snaked(a, value, number(1), number(2)));
        }
      }
    }
  }

  // sums[i] = the sum of products of output (n, k, z, p, q + i), for i < columns.
  void sum_columns(const float* x, const float* w, int64_t n, int64_t k, int64_t z, int64_t p, int64_t q,
                   int64_t columns, double* sums) const {
    const ConvProblem& a = problem_;
    const int64_t channels = a.c / a.groups, first_channel = k / (a.k / a.groups) * channels;
    std::fill_n(sums, columns, 0.0);
    const float* tap = w + k * channels * a.t * a.r * a.s;
    for (int64_t line = 0; line < channels * a.t * a.r; ++line) {
      const int64_t c = line / (a.t * a.r), t = line / a.r % a.t, r = line % a.r;
      const int64_t d = z * a.stride_d + t * a.dilation_d - a.pad_front;
      const int64_t h = p * a.stride_h + r * a.dilation_h - a.pad_top;
      if (d < 0 || d >= a.d || h < 0 || h >= a.h) {
        tap += a.s;
        continue;
      }
      const Row row = row_of(a.layout, n, first_channel + c, d, h, a.c, a.d, a.h, a.w);
      for (int64_t s = 0; s < a.s; ++s, ++tap) {
        // Column q + i reads input column start + i * stride_w: keep those inside the image.
        const int64_t start = q * a.stride_w + s * a.dilation_w - a.pad_left;
        const int64_t begin = first_reaching(-start, a.stride_w);
        const int64_t end = std::min(columns, first_reaching(a.w - start, a.stride_w));
        const double weight = *tap;
        for (int64_t i = begin; i < end; ++i)
          sums[i] += weight * static_cast<double>(x[row.first + (start + i * a.stride_w) * row.step]);
      }
    }
  }

  const ConvProblem asked_, problem_;  // the second without a cache
  const int threads_;
};

class Reference final : public Algorithm {
 public:
  std::string_view name() const override { return "reference"; }
  Device::Kind device_kind() const override { return Device::Kind::cpu; }
  bool reference() const override { return true; }

  Support supports(const ConvProblem&, const DeviceInfo&) const override { return Support::yes(); }

  std::vector<Config> candidates(const ConvProblem&, const DeviceInfo&) const override { return {Config{}}; }

  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    if (!config.values.empty())
      return Support::no("it has nothing to configure, and the config is '" + to_string(config) + "'");
    return supports(problem, device);
  }

  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    if (const Support support = accepts(problem, device, config); !support)
      throw Error(ErrorKind::unsupported, "reference cannot run this problem: " + support.reason());
    return std::make_unique<ReferenceExecutable>(problem, device.units);
  }

  std::string source_hash() const override { return "reference-2"; }
};

}  // namespace

const Algorithm& reference() {
  return once([] { return Reference(); });
}

}  // namespace convtune::cpu
