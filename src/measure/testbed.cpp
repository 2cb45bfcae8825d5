// See testbed.h.
#include "measure/testbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/random_bits.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/caches.h"
#include "cpu/base/parallel.h"
#include "problem/element.h"
#include "problem/rewrite.h"

namespace convtune {

void Backend::fill_at(void* tensor, const std::vector<std::int64_t>& offsets,
                      const std::vector<unsigned char>& element) {
  for (const std::int64_t offset : offsets)
    upload(static_cast<unsigned char*>(tensor) + static_cast<std::size_t>(offset) * element.size(),
           element.data(), element.size());
}

std::vector<unsigned char> Backend::read_at(const void* tensor, const std::vector<std::int64_t>& offsets,
                                            std::size_t element_bytes) {
  std::vector<unsigned char> bytes(offsets.size() * element_bytes);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    download(&bytes[i * element_bytes],
             static_cast<const unsigned char*>(tensor) + static_cast<std::size_t>(offsets[i]) * element_bytes,
             element_bytes);
  return bytes;
}

void Backend::move_rows(const Rows& rows, Stream) {
  auto* to = static_cast<unsigned char*>(rows.to);
  const auto* from = static_cast<const unsigned char*>(rows.from);
  for (std::size_t i = 0; i < rows.count; ++i, to += rows.to_pitch) {
    if (from)
      std::memcpy(to, from + i * rows.from_pitch, rows.bytes);
    else
      std::memset(to, 0, rows.bytes);
  }
}

namespace {

constexpr std::size_t kCanaryBytes = 4096;
constexpr unsigned char kCanary = 0xCB;
constexpr std::int64_t kMaxSets = 8;
constexpr double kMinSampleUs = 50;
constexpr std::size_t kBytesASample = 4096;  // an output is copied whole where that takes no longer

// Calls body(begin, end) for parts of [0, count) on all of the CPU: a first layer's output has 2 billion
// elements.
template <class Body>
void in_parts(std::int64_t count, const Body& body) {
  cpu::parallel_for(cpu::backend().info().units, count,
                    [&](std::int64_t begin, std::int64_t end) { body(begin, end); });
}

// Tells whether numbers of the type are exact in products of the precision.
bool is_exact(DType type, Precision precision) {
  if (precision == Precision::automatic || precision == Precision::fp32)
    return true;  // the sum's own rounding covers them
  const ElementRow& row = element_row(type);
  return row.products == precision || (precision == Precision::tf32 && row.mantissa_bits <= 11);
}

// Tells whether the activation of an exact sum is exact.
bool is_exact(Activation activation) {
  return activation == Activation::none || activation == Activation::relu || activation == Activation::clip;
}

// True where operands below their type's least normal number are operands as others are: not where products
// are less precise than operands, nor where a GPU's tensor cores multiply parts of an f32.
bool keeps_denormals(const ConvProblem& a, Device::Kind kind) {
  const auto& [x, w, y, bias] = a.dtype;
  return std::ranges::all_of(std::array{x, w, y, bias},
                             [](DType type) { return element_row(type).keeps_denormals; }) &&
         ((a.precision == Precision::fp32 && kind == Device::Kind::cpu) ||
          std::ranges::count(std::array{x, w, y}, DType::f32) == 0);
}

// How far a sum of TestData::denormal may be off: by the last places of its terms, or by all of them. The
// other operand is 3 at most.
double lost_to_denormals(const ConvProblem& problem, Device::Kind kind) {
  const double terms = static_cast<double>(cpu::result_of(problem).terms) + 3;
  return 4 * terms * (keeps_denormals(problem, kind) ? 0x1p-149 : 0x1p-126);
}

}  // namespace

TimedFrom timed_from(const ConvProblem& problem, const DeviceInfo& device) {
  return cpu::caches_keep(problem, device) ? TimedFrom::caches : TimedFrom::memory;
}

double error_limit(const ConvProblem& problem) {
  const ConvProblem& a = problem;
  // Both directions' other operand is dy.
  const DType one = a.direction == Direction::backward_data ? a.dtype.y : a.dtype.x;
  const DType other = a.direction == Direction::backward_weights ? a.dtype.y : a.dtype.w;
  const bool exact = is_exact(one, a.precision) && is_exact(other, a.precision);
  const double operands = exact ? 0 : 2 * std::ldexp(1.0, a.precision == Precision::bf16 ? -8 : -11);
  return operands +
         8 * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(cpu::result_of(problem).terms) + 1);
}

std::int64_t affordable_samples(const ConvProblem& problem, std::int64_t most) {
  constexpr std::int64_t kTermsOfASecond = std::int64_t{1} << 26, kFewest = 64;
  const std::int64_t terms = std::max<std::int64_t>(1, cpu::result_of(problem).terms);
  return std::clamp(kTermsOfASecond / terms, std::min(kFewest, most), most);
}

void* Testbed::Fenced::data() const {
  return static_cast<unsigned char*>(memory.get()) + kCanaryBytes + behind;
}

Testbed::Fenced Testbed::fenced(std::size_t bytes) {
  Fenced result{backend_.allocate(bytes + behind_ + 2 * kCanaryBytes), bytes, behind_};
  const std::vector<unsigned char> canary(kCanaryBytes, kCanary);
  auto* const data = static_cast<unsigned char*>(result.data());
  backend_.upload(data - kCanaryBytes, canary.data(), kCanaryBytes);
  backend_.upload(data + bytes, canary.data(), kCanaryBytes);
  return result;
}

// NaN everywhere: what nobody writes shows, and no timed run is the first to touch a page.
void Testbed::poison(const Fenced& result, DType type) {
  const std::vector<unsigned char> nan(std::min(result.bytes, std::size_t{1} << 20),
                                       element_row(type).nan_byte);
  for (std::size_t done = 0; done < result.bytes;) {
    const std::size_t bytes = std::min(nan.size(), result.bytes - done);
    backend_.upload(static_cast<unsigned char*>(result.data()) + done, nan.data(), bytes);
    done += bytes;
  }
}

bool Testbed::intact(const Fenced& fenced) const {
  std::vector<unsigned char> canary(kCanaryBytes);
  const auto* const data = static_cast<const unsigned char*>(fenced.data());
  for (const unsigned char* const fence : {data - kCanaryBytes, data + fenced.bytes}) {
    backend_.download(canary.data(), fence, kCanaryBytes);
    if (std::any_of(canary.begin(), canary.end(), [](unsigned char c) { return c != kCanary; })) return false;
  }
  return true;
}

Testbed::Fenced Testbed::to_device(DType type, const std::vector<float>& values) {
  std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  in_parts(std::ssize(values), [&](std::int64_t begin, std::int64_t end) {
    store_all(type, values.data() + begin, end - begin, bytes.data() + begin * size_of(type));
  });
  Fenced device = fenced(bytes.size());
  backend_.upload(device.data(), bytes.data(), bytes.size());
  return device;
}

Testbed::Set Testbed::make_set() {
  const auto bytes = [](std::int64_t elements, DType type) {
    return static_cast<std::size_t>(elements * size_of(type));
  };
  const DTypes& types = problem_.dtype;
  Set set;
  set.x = to_device(types.x, host_.x);
  set.cache = to_device(types.x, host_.cache);
  set.residual = to_device(problem_.result_type(), host_.residual);
  set.dy = to_device(types.y, host_.dy);
  set.result = fenced(bytes(result_.elements, result_.type));
  set.dbias = fenced(bytes(result_.bias_elements, result_.bias_type));
  const auto used = [](const Fenced& tensor) { return tensor.bytes > 0 ? tensor.data() : nullptr; };
  set.tensors = {.x = used(set.x),
                 .cache = used(set.cache),
                 .residual = used(set.residual),
                 .dy = used(set.dy),
                 .dbias = used(set.dbias)};
  switch (problem_.direction) {
    case Direction::forward:
      set.tensors.y = used(set.result);
      break;
    case Direction::backward_data:
      set.tensors.dx = used(set.result);
      break;
    case Direction::backward_weights:
      set.tensors.dw = used(set.result);
      break;
  }
  poison(set.result, result_.type);
  poison(set.dbias, result_.bias_type);
  return set;
}

void Testbed::begin_tensors(std::size_t behind) {
  behind_ = behind;
  for (Set& set : sets_) set = {}, set = make_set();
}

Testbed::Testbed(const ConvProblem& problem, Backend& backend, TestData data, std::uint64_t seed,
                 std::int64_t samples, TimedFrom from)
    : problem_(problem),
      backend_(backend),
      data_(data),
      result_(cpu::result_of(problem)),
      host_(test_tensors(problem, data, seed)) {
  w_ = to_device(problem.dtype.w, host_.w);
  bias_ = to_device(problem.dtype.bias, host_.bias);

  sets_.push_back(make_set());
  const Set& first = sets_.front();
  const double set_bytes = static_cast<double>(first.x.bytes + first.cache.bytes + first.residual.bytes +
                                               first.dy.bytes + first.result.bytes + first.dbias.bytes);
  const double cache_bytes = static_cast<double>(std::max(backend.info().l3_bytes, backend.info().l2_bytes));
  // Sets of real data are timed: those that come from memory must not fit the caches together. One serves a
  // check, and where memory is short.
  const bool stays = from == TimedFrom::caches && backend.info().device.kind == Device::Kind::cpu &&
                     cpu::caches_keep(set_bytes, backend.info());
  std::int64_t sets = 1;
  if (data == TestData::real && !stays)
    sets = std::clamp(static_cast<std::int64_t>(std::min(std::ceil(2 * cache_bytes / (set_bytes + 1)),
                                                         kMostFlushedBytes / (set_bytes + 1))),
                      std::int64_t{1}, kMaxSets);
  while (std::ssize(sets_) < sets) {
    try {
      sets_.push_back(make_set());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      break;
    }
  }
  choose_samples(random_bits(seed, 3), samples);
}

void Testbed::choose_samples(std::uint64_t seed, std::int64_t samples) {
  const std::int64_t total = result_.elements + result_.bias_elements;
  const bool all = samples == 0 || samples >= total;
  samples_.resize(static_cast<std::size_t>(all ? total : samples));
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    // The ends of the result, where padding and tails meet, then anywhere.
    std::int64_t index = static_cast<std::int64_t>(i);
    if (!all)
      index = i == 0   ? 0
              : i == 1 ? total - 1
                       : static_cast<std::int64_t>(random_bits(seed, i) % static_cast<std::uint64_t>(total));
    samples_[i].index = index;
  }
  const ConvProblem whole = joined(problem_);
  const std::vector<float> frames =
      problem_.cache > 0 ? cpu::join_frames(problem_, host_.cache, host_.x) : std::vector<float>();
  const cpu::HostValues values{problem_.cache > 0 ? frames.data() : host_.x.data(), host_.w.data(),
                               host_.bias.data(), host_.residual.data(), host_.dy.data()};
  in_parts(std::ssize(samples_), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Sample& sample = samples_[static_cast<std::size_t>(i)];
      sample.oracle = cpu::oracle(whole, values, sample.index);
    }
  });
  double squares = 0;
  for (const Sample& sample : samples_) squares += sample.oracle.value * sample.oracle.value;
  oracle_rms_ = samples_.empty() ? 0 : std::sqrt(squares / static_cast<double>(samples_.size()));
}

// By the sum's error, which no activation here makes more than half as large again, and the rounding of the
// result; an eager problem rounds up to four times.
bool Testbed::is_right(const Sample& sample, float got, const Executable& executable) const {
  const bool sum_rounded = executable.rounds_sum();
  const DType type = sample.index < result_.elements ? result_.type : result_.bias_type;
  const auto& [once, magnitude, sum, of_rounded_sum] = sample.oracle;
  const double value = sum_rounded ? of_rounded_sum : once;
  const double expected = rounded(type, value), error = std::abs(static_cast<double>(got) - expected);
  if (static_cast<double>(got) == expected) return true;  // infinities too
  if (!std::isfinite(expected)) return std::isnan(expected) && std::isnan(got);
  const double denormals =
      data_ == TestData::denormal ? lost_to_denormals(problem_, backend_.info().device.kind) : 0;
  const bool exact_sum = data_ != TestData::real && executable.exact_on_integers() &&
                         (denormals == 0 || keeps_denormals(problem_, backend_.info().device.kind));
  const bool snaked = problem_.snake == Snake::after || sample.index >= problem_.residual_elements();
  const bool exact_activation = is_exact(problem_.activation) && (problem_.snake == Snake::none || !snaked);
  if (exact_sum && exact_activation) return false;
  // Errors of expf, erff, tanhf and what is made of them. cuDNN's gelu_tanh is off by 1.84e-6 at 1 and -1.
  const double functions = problem_.activation == Activation::gelu_tanh ? 0x1p-19 : 0x1p-20;
  const double roundings = problem_.rounding == Rounding::eager && !exact_sum
                               ? std::max(4 * magnitude, std::abs(value))
                           : sum_rounded && !exact_sum ? std::abs(value) + std::abs(sum)
                                                       : std::abs(value);
  // A number of an infinite sum is an activation's limit.
  if (!std::isfinite(magnitude)) return !exact_activation && error <= functions;
  const double of_sum = (exact_sum ? 0 : (exact_activation ? 1 : 1.5) * error_limit(problem_)) +
                        (exact_activation ? 0 : functions);
  // A sigmoid of nothing is a half: its own last place counts, however small the sum is. Two of them.
  const double of_type = type != DType::f32 || !exact_activation ? 2 * unit_roundoff(type) : 0;
  return error <= of_sum * magnitude + of_type * roundings + denormals +
                      element_row(type).least_denormal();  // NaN: false
}

void Testbed::pack(const Executable& executable, void* packed) const {
  if (problem_.direction != Direction::backward_weights)
    executable.pack(w_.data(), bias_.bytes > 0 ? bias_.data() : nullptr, packed, nullptr);
}

// The samples as they stand in the result.
std::vector<float> Testbed::read_samples(const Set& set) {
  std::vector<float> values(samples_.size());
  const auto read = [&](const Fenced& tensor, DType type, std::int64_t first, std::int64_t elements) {
    std::vector<std::int64_t> offsets;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      if (const std::int64_t offset = samples_[i].index - first; offset >= 0 && offset < elements)
        offsets.push_back(offset), places.push_back(i);
    const bool whole = tensor.bytes <= offsets.size() * kBytesASample;
    std::vector<unsigned char> bytes(whole ? tensor.bytes : 0);
    if (whole)
      backend_.download(bytes.data(), tensor.data(), bytes.size());
    else
      bytes = backend_.read_at(tensor.data(), offsets, static_cast<std::size_t>(size_of(type)));
    for (std::size_t i = 0; i < places.size(); ++i)
      values[places[i]] = load(type, bytes.data(), whole ? offsets[i] : static_cast<std::int64_t>(i));
  };
  read(set.result, result_.type, 0, result_.elements);
  read(set.dbias, result_.bias_type, result_.elements, result_.bias_elements);
  return values;
}

CheckResult Testbed::check(const Executable& executable) {
  Fenced packed = fenced(executable.packed_bytes());
  pack(executable, packed.data());

  const Set& set = sets_[0];
  const Fenced& result_tensor = set.result;
  if (result_tensor.bytes <= samples_.size() * kBytesASample) {
    poison(result_tensor, result_.type);
  } else {
    std::vector<std::int64_t> offsets;
    for (const Sample& sample : samples_)
      if (sample.index < result_.elements) offsets.push_back(sample.index);
    backend_.fill_at(result_tensor.data(), offsets,
                     std::vector<unsigned char>(static_cast<std::size_t>(size_of(result_.type)),
                                                element_row(result_.type).nan_byte));
  }
  poison(set.dbias, result_.bias_type);
  if (problem_.n > 0 || problem_.direction == Direction::backward_weights)
    executable.run(set.tensors, packed.data(), nullptr);
  backend_.synchronize(nullptr);
  const std::vector<float> results = read_samples(set);

  CheckResult result;
  double worst = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    if (!is_right(sample, results[i], executable) && result.failure.empty())
      result.failure =
          fmt::format("{} is {}, the oracle says {}", cpu::name_of_element(problem_, sample.index),
                      results[i], sample.oracle.value);
    worst = std::max(worst, std::abs(static_cast<double>(results[i]) - sample.oracle.value));
  }
  result.max_error = oracle_rms_ > 0 ? worst / oracle_rms_ : worst;
  const std::pair<const Fenced*, const char*> fences[] = {
      {&set.x, "the input"},
      {&set.cache, "the cache"},
      {&w_, "the weights"},
      {&bias_, "the bias"},
      {&set.residual, "the residual"},
      {&set.dy, "the output's gradient"},
      {&packed, "the packed weights"},
      {&set.result, problem_.direction == Direction::forward ? "the output" : "the gradient"},
      {&set.dbias, "the bias's gradient"}};
  for (const auto& [fence, name] : fences)
    if (result.failure.empty() && !intact(*fence)) result.failure = fmt::format("it wrote outside {}", name);
  return result;
}

Testbed::Timed Testbed::prepare(const Executable& executable) {
  Timed timed;
  timed.bed_ = this;
  timed.executable_ = &executable;
  timed.packed_ = backend_.allocate(executable.packed_bytes());
  pack(executable, timed.packed_.get());
  return timed;
}

double Testbed::Timed::sample_us() {
  const auto backend_time = [this](const auto& work) { return bed_->backend_.time_us(work); };
  const auto run = [&] {
    bed_->next_set_ = (bed_->next_set_ + 1) % bed_->sets_.size();
    executable_->run(bed_->sets_[bed_->next_set_].tensors, packed_.get(), nullptr);
  };
  if (repeats_ == 0) {
    const double once = backend_time(run);  // the check before has loaded the code and grown the buffers
    repeats_ = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(std::ceil(kMinSampleUs / std::max(once, 0.1))), 1, 1000);
    if (repeats_ == 1) return once;
  }
  return backend_time([&] {
           for (std::int64_t i = 0; i < repeats_; ++i) run();
         }) /
         static_cast<double>(repeats_);
}

}  // namespace convtune
