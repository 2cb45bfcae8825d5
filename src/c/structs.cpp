// Sized structs and their fields: between convtune/c.h and the C++ face.
#include "c/structs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "convtune/error.h"

namespace convtune::c {
namespace {

constexpr std::size_t kLargest = 4096;  // no struct of any version: what struct_size says is garbage

const convtune_problem kProblem = CONVTUNE_PROBLEM_INIT;
const convtune_pair_problem kPairProblem = CONVTUNE_PAIR_PROBLEM_INIT;
const convtune_pair_weights kPairWeights = CONVTUNE_PAIR_WEIGHTS_INIT;
const convtune_tensors kTensors = CONVTUNE_TENSORS_INIT;
const convtune_cpu_executor kCpuExecutor = CONVTUNE_CPU_EXECUTOR_INIT;
const convtune_tune_options kTuneOptions = CONVTUNE_TUNE_OPTIONS_INIT;
const convtune_bench_options kBenchOptions = CONVTUNE_BENCH_OPTIONS_INIT;
const convtune_contest_options kContestOptions = CONVTUNE_CONTEST_OPTIONS_INIT;

Error bad(const std::string& message) {
  return Error(ErrorKind::invalid_argument, message);
}

// The caller's struct_size. Bytes are copied, here and below: beyond what the caller says there may be
// nothing.
template <typename Struct>
std::size_t size_of_struct(const Struct* from, const char* name) {
  require(from, name);
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < 2 * sizeof size || size > kLargest || size % alignof(Struct) != 0)
    throw bad(
        fmt::format("{0}: struct_size is {1}, but its size here is {2}; begin with its _INIT, which sets it",
                    name, size, sizeof(Struct)));
  return size;
}

template <typename Struct>
Struct read(const Struct* from, const Struct& defaults, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  const std::size_t size = size_of_struct(from, name);
  Struct to = defaults;
  std::memcpy(&to, from, std::min(size, sizeof to));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof to; i < size; ++i)
    if (bytes[i] != 0)
      throw bad(fmt::format(
          "{}: byte {} of {} is set, in a field that convtune {} (C face {}) does not know; it knows {}",
          name, i, size, CONVTUNE_VERSION, CONVTUNE_C_VERSION, sizeof to));
  return to;
}

template <typename Enum>
Enum checked(const char* field, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    throw bad(fmt::format("{} is {}; it must be 0 to {}", field, value, static_cast<std::int32_t>(last)));
  return static_cast<Enum>(value);
}
bool checked_flag(const char* field, std::int32_t value) {
  if (value != 0 && value != 1) throw bad(fmt::format("{} is {}; it must be 0 or 1", field, value));
  return value == 1;
}

// Numbers of a problem that are called and counted alike in both faces.
void copy_numbers(const auto& from, auto& to) {
  to.n = from.n, to.c = from.c, to.h = from.h, to.w = from.w;
  to.k = from.k, to.r = from.r, to.s = from.s, to.groups = from.groups;
  to.stride_h = from.stride_h, to.stride_w = from.stride_w;
  to.dilation_h = from.dilation_h, to.dilation_w = from.dilation_w;
  to.pad_front = from.pad_front, to.pad_top = from.pad_top, to.pad_left = from.pad_left;
  to.pad_back = from.pad_back, to.pad_bottom = from.pad_bottom, to.pad_right = from.pad_right;
  to.cache = from.cache;
  to.alpha = from.alpha, to.beta = from.beta;
}

// The numbers of the two faces are the same; of activations, tests/unit/problem/tensor_test.cpp says so.
static_assert(CONVTUNE_F32 == static_cast<int>(DType::f32) && CONVTUNE_F16 == static_cast<int>(DType::f16) &&
              CONVTUNE_BF16 == static_cast<int>(kLastDType));
static_assert(CONVTUNE_NCHW == static_cast<int>(Layout::nchw) &&
              CONVTUNE_NHWC == static_cast<int>(Layout::nhwc));
static_assert(CONVTUNE_AUTOMATIC == static_cast<int>(Precision::automatic) &&
              CONVTUNE_FP32 == static_cast<int>(Precision::fp32) &&
              CONVTUNE_TF32 == static_cast<int>(Precision::tf32) &&
              CONVTUNE_FP16 == static_cast<int>(Precision::fp16) &&
              CONVTUNE_BF16_PRODUCTS == static_cast<int>(Precision::bf16));
static_assert(CONVTUNE_FORWARD == static_cast<int>(Direction::forward) &&
              CONVTUNE_BACKWARD_DATA == static_cast<int>(Direction::backward_data) &&
              CONVTUNE_BACKWARD_WEIGHTS == static_cast<int>(Direction::backward_weights));
static_assert(CONVTUNE_ROUND_ONCE == static_cast<int>(Rounding::once) &&
              CONVTUNE_ROUND_EAGERLY == static_cast<int>(Rounding::eager));
static_assert(sizeof(convtune_problem) == sizeof(std::size_t) + 23 * sizeof(std::int64_t) +
                                              12 * sizeof(std::int32_t) + 2 * sizeof(float),
              "padding would be compared and read");

}  // namespace

void require(const void* pointer, const char* name) {
  if (!pointer) throw bad(fmt::format("{} is null", name));
}

ConvProblem read_problem(const convtune_problem* problem) {
  const convtune_problem from = read(problem, kProblem, "problem");
  ConvProblem to;
  copy_numbers(from, to);
  // Whatever a shorter struct lacks is 0, which means the usual.
  const auto or_1 = [](std::int64_t value) { return value == 0 ? 1 : value; };
  to.d = or_1(from.d), to.t = or_1(from.t);
  to.stride_d = or_1(from.stride_d), to.dilation_d = or_1(from.dilation_d);
  to.dtype = checked("problem: dtype", from.dtype, kLastDType);
  const auto own_type = [&](const char* field, std::int32_t value, DType& type) {
    if (value != 0) type = checked(field, value - 1, kLastDType);
  };
  own_type("problem: w_dtype - 1", from.w_dtype, to.dtype.w);
  own_type("problem: y_dtype - 1", from.y_dtype, to.dtype.y);
  own_type("problem: bias_dtype - 1", from.bias_dtype, to.dtype.bias);
  to.direction = checked("problem: direction", from.direction, Direction::backward_weights);
  to.residual = checked_flag("problem: residual", from.residual);
  to.rounding = checked("problem: rounding", from.rounding, Rounding::eager);
  to.layout = checked("problem: layout", from.layout, Layout::nhwc);
  to.precision = checked("problem: precision", from.precision, Precision::bf16);
  to.activation = checked("problem: activation", from.activation, kLastActivation);
  to.bias = checked_flag("problem: bias", from.bias);
  to.snake = checked("problem: snake", from.snake, Snake::beside);
  validate(to);
  return to;
}

void write_problem(const ConvProblem& problem, convtune_problem* to) {
  convtune_problem from = kProblem;
  from.struct_size = size_of_struct(to, "problem");
  copy_numbers(problem, from);
  const auto unless_1 = [](std::int64_t value) { return value == 1 ? 0 : value; };
  from.d = unless_1(problem.d), from.t = unless_1(problem.t);
  from.stride_d = unless_1(problem.stride_d), from.dilation_d = unless_1(problem.dilation_d);
  const DTypes& types = problem.dtype;
  const auto own_type = [&](DType type) { return type == types.x ? 0 : 1 + static_cast<std::int32_t>(type); };
  from.dtype = static_cast<std::int32_t>(types.x);
  from.w_dtype = own_type(types.w), from.y_dtype = own_type(types.y), from.bias_dtype = own_type(types.bias);
  from.direction = static_cast<std::int32_t>(problem.direction);
  from.residual = problem.residual ? 1 : 0;
  from.rounding = static_cast<std::int32_t>(problem.rounding);
  from.snake = static_cast<std::int32_t>(problem.snake);
  from.layout = static_cast<std::int32_t>(problem.layout);
  from.precision = static_cast<std::int32_t>(problem.precision);
  from.activation = static_cast<std::int32_t>(problem.activation);
  from.bias = problem.bias ? 1 : 0;
  const std::size_t fits = std::min(from.struct_size, sizeof from);
  const auto bytes_at = [](const convtune_problem& of, std::size_t i) {
    return reinterpret_cast<const unsigned char*>(&of) + i;
  };
  if (std::memcmp(bytes_at(from, fits), bytes_at(kProblem, fits), sizeof from - fits) != 0)
    throw bad(fmt::format("problem: {} has fields that a struct of {} bytes lacks; they take {}",
                          to_string(problem), from.struct_size, sizeof from));
  std::memcpy(to, &from, fits);
}

Device device_of(const char* text) {
  return text ? parse_device(text) : best_device();
}

PairProblem read_pair_problem(const convtune_pair_problem* problem) {
  const convtune_pair_problem from = read(problem, kPairProblem, "problem");
  PairProblem to;
  if (from.reserved != 0) throw bad(fmt::format("problem: reserved is {}; it must be 0", from.reserved));
  to.snake = checked("problem.snake", from.snake, Snake::beside);
  to.activated = checked_flag("problem.activated", from.activated);
  to.dtype = checked("problem.dtype", from.dtype, kLastDType);
  to.n = from.n, to.c = from.c, to.t = from.t;
  to.first_taps = from.first_taps, to.dilation = from.dilation, to.second_taps = from.second_taps;
  to.activation = checked("problem.activation", from.activation, PairActivation::snake);
  to.slope = from.slope;
  return to;
}

PairWeights read_pair_weights(const convtune_pair_weights* weights) {
  const convtune_pair_weights from = read(weights, kPairWeights, "weights");
  return {from.first,       from.first_bias,   from.second,       from.second_bias,  from.first_alpha,
          from.first_scale, from.second_alpha, from.second_scale, from.behind_alpha, from.behind_scale};
}

Tensors read_tensors(const convtune_tensors* tensors) {
  const convtune_tensors from = read(tensors, kTensors, "tensors");
  if (from.reserved != 0) throw bad(fmt::format("tensors: reserved is {}; it must be 0", from.reserved));
  return {.x = from.x,
          .cache = from.cache,
          .residual = from.residual,
          .dy = from.dy,
          .y = from.y,
          .cache_out = from.cache_out,
          .dx = from.dx,
          .dw = from.dw,
          .dbias = from.dbias,
          .dw_last = checked_flag("tensors: dw_last", from.dw_last)};
}

CpuExecutor read_cpu_executor(const convtune_cpu_executor* executor) {
  const convtune_cpu_executor from = read(executor, kCpuExecutor, "executor");
  return {.concurrency = from.concurrency, .parallel_for = from.parallel_for, .context = from.context};
}

convtune_tune_options read_tune_options(const convtune_tune_options* options) {
  if (!options) return kTuneOptions;
  const convtune_tune_options from = read(options, kTuneOptions, "options");
  checked_flag("options: retune", from.retune);
  checked_flag("options: save", from.save);
  return from;
}

convtune_bench_options read_bench_options(const convtune_bench_options* options) {
  return options ? read(options, kBenchOptions, "options") : kBenchOptions;
}

convtune_contest_options read_contest_options(const convtune_contest_options* options) {
  if (!options) return kContestOptions;
  const convtune_contest_options from = read(options, kContestOptions, "options");
  // So written, they refuse NaN too.
  if (!(from.min_gain >= 0 && from.min_gain < 1))
    throw bad(fmt::format("options: min_gain must lie in [0, 1), not {}", from.min_gain));
  if (!(from.confidence > 0 && from.confidence < 1))
    throw bad(fmt::format("options: confidence must lie between 0 and 1, not {}", from.confidence));
  if (!(from.max_seconds >= 0))
    throw bad(fmt::format("options: max_seconds must be 0 or more, not {}", from.max_seconds));
  if (!(from.min_rounds >= 1 && from.max_rounds >= from.min_rounds))
    throw bad(fmt::format("options: rounds from {} to {} are none", from.min_rounds, from.max_rounds));
  return from;
}

void write_contest_result(convtune_contest_result from, convtune_contest_result* to) {
  from.struct_size = size_of_struct(to, "result");
  std::memcpy(to, &from, std::min(from.struct_size, sizeof from));
}

}  // namespace convtune::c
