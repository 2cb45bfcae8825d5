// See testbed.h.
#include "measure/testbed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/random_bits.h"
#include "cpu/cpu.h"
#include "cpu/parallel.h"
#include "cpu/reference.h"

namespace convtune {

void Backend::fill_at(float* tensor, const std::vector<std::int64_t>& offsets, float value) {
  for (const std::int64_t offset : offsets) upload(tensor + offset, &value, sizeof value);
}

std::vector<float> Backend::read_at(const float* tensor, const std::vector<std::int64_t>& offsets) {
  std::vector<float> values(offsets.size());
  for (std::size_t i = 0; i < offsets.size(); ++i) download(&values[i], tensor + offsets[i], sizeof(float));
  return values;
}

namespace {

constexpr std::size_t kCanaryBytes = 4096;
constexpr unsigned char kCanary = 0xCB;
constexpr std::int64_t kMaxSets = 8;
constexpr double kMinSampleUs = 50;
constexpr std::size_t kBytesASample = 4096;  // an output is copied whole where that takes no longer

void fill(std::vector<float>& values, std::uint64_t seed, TestData data) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random_bits(seed, i);
    values[i] = data == TestData::integer
                    ? static_cast<float>(static_cast<int>(bits % 7) - 3)
                    : static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) / (1 << 23);
  }
}

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::tf32:
    case Precision::fp16:
      return std::ldexp(1.0, -11);
    case Precision::bf16:
      return std::ldexp(1.0, -8);
    default:
      return 0;  // fp32 products: the sum's own rounding covers them
  }
}

}  // namespace

double error_limit(Precision precision, std::int64_t terms) {
  return 2 * unit_roundoff(precision) + 8 * std::ldexp(1.0, -24) * std::sqrt(static_cast<double>(terms) + 1);
}

void* Testbed::Fenced::data() const {
  return static_cast<unsigned char*>(memory.get()) + kCanaryBytes;
}

Testbed::Fenced Testbed::fenced(std::size_t bytes) {
  Fenced result{backend_.allocate(bytes + 2 * kCanaryBytes), bytes};
  const std::vector<unsigned char> canary(kCanaryBytes, kCanary);
  backend_.upload(result.memory.get(), canary.data(), kCanaryBytes);
  backend_.upload(static_cast<unsigned char*>(result.data()) + bytes, canary.data(), kCanaryBytes);
  return result;
}

// NaN everywhere: what nobody writes shows, and no timed run is the first to touch a page.
void Testbed::poison(const Fenced& output) {
  const std::vector<float> nan(std::min(output.bytes / sizeof(float), std::size_t{1} << 18),
                               std::numeric_limits<float>::quiet_NaN());
  for (std::size_t done = 0; done < output.bytes;) {
    const std::size_t bytes = std::min(nan.size() * sizeof(float), output.bytes - done);
    backend_.upload(static_cast<unsigned char*>(output.data()) + done, nan.data(), bytes);
    done += bytes;
  }
}

bool Testbed::intact(const Fenced& fenced) const {
  std::vector<unsigned char> canary(kCanaryBytes);
  for (const std::size_t offset : {std::size_t{0}, kCanaryBytes + fenced.bytes}) {
    backend_.download(canary.data(), static_cast<const unsigned char*>(fenced.memory.get()) + offset,
                      kCanaryBytes);
    if (std::any_of(canary.begin(), canary.end(), [](unsigned char c) { return c != kCanary; })) return false;
  }
  return true;
}

Testbed::Testbed(const Conv2dProblem& problem, Backend& backend, TestData data, std::uint64_t seed,
                 std::int64_t samples)
    : problem_(problem), backend_(backend), data_(data) {
  x_host_.resize(static_cast<std::size_t>(problem.input_elements()));
  w_host_.resize(static_cast<std::size_t>(problem.weight_elements()));
  fill(x_host_, random_bits(seed, 0), data);
  fill(w_host_, random_bits(seed, 1), data);
  if (problem.bias) {
    bias_host_.resize(static_cast<std::size_t>(problem.k));
    fill(bias_host_, random_bits(seed, 2), data);
  }
  const auto to_device = [&](const std::vector<float>& host) {
    Fenced device = fenced(host.size() * sizeof(float));
    backend_.upload(device.data(), host.data(), device.bytes);
    return device;
  };
  w_ = to_device(w_host_);
  bias_ = to_device(bias_host_);

  const auto output_bytes = static_cast<std::size_t>(problem.output_elements()) * sizeof(float);
  const double set_bytes = static_cast<double>(x_host_.size() * sizeof(float) + output_bytes) + 1;
  const double cache_bytes = static_cast<double>(std::max(backend.info().l3_bytes, backend.info().l2_bytes));
  // Sets of real data are timed: together they must not fit the caches. One set serves a check, and where
  // memory is short.
  std::int64_t sets = 1;
  if (data == TestData::real)
    sets = std::clamp(static_cast<std::int64_t>(
                          std::min(std::ceil(2 * cache_bytes / set_bytes), kMostFlushedBytes / set_bytes)),
                      std::int64_t{1}, kMaxSets);
  for (std::int64_t i = 0; i < sets; ++i) {
    try {
      Fenced x = to_device(x_host_), y = fenced(output_bytes);
      x_.push_back(std::move(x));
      y_.push_back(std::move(y));
    } catch (const Error& error) {
      if (i == 0 || error.kind() != ErrorKind::unsupported) throw;
      break;
    }
    poison(y_.back());
  }
  choose_samples(random_bits(seed, 3), samples);
}

void Testbed::choose_samples(std::uint64_t seed, std::int64_t samples) {
  const std::int64_t total = problem_.output_elements(), p = problem_.p(), q = problem_.q();
  const bool all = samples == 0 || samples >= total;
  samples_.resize(static_cast<std::size_t>(all ? total : samples));
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    // The corners of the output, where padding and tails meet, then anywhere.
    std::int64_t index = static_cast<std::int64_t>(i);
    if (!all)
      index = i == 0   ? 0
              : i == 1 ? total - 1
                       : static_cast<std::int64_t>(random_bits(seed, i) % static_cast<std::uint64_t>(total));
    samples_[i] = {
        index / (q * p * problem_.k), index / (q * p) % problem_.k, index / q % p, index % q, 0, 0};
  }
  cpu::parallel_for(cpu::backend().info().units, static_cast<std::int64_t>(samples_.size()),
                    [&](int, std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        Sample& sample = samples_[static_cast<std::size_t>(i)];
                        const cpu::OracleValue oracle =
                            cpu::oracle(problem_, x_host_.data(), w_host_.data(),
                                        problem_.bias ? bias_host_.data() : nullptr, sample.n, sample.k,
                                        sample.p, sample.q);
                        sample.value = oracle.value;
                        sample.magnitude = oracle.magnitude;
                      }
                    });
  double squares = 0;
  for (const Sample& sample : samples_) squares += sample.value * sample.value;
  oracle_rms_ = samples_.empty() ? 0 : std::sqrt(squares / static_cast<double>(samples_.size()));
}

std::int64_t Testbed::output_offset(const Sample& s) const {
  const std::int64_t p = problem_.p(), q = problem_.q();
  return problem_.layout == Layout::nchw ? ((s.n * problem_.k + s.k) * p + s.p) * q + s.q
                                         : ((s.n * p + s.p) * q + s.q) * problem_.k + s.k;
}

std::string Testbed::locate(const Sample& s, float got) const {
  return fmt::format("y[n={}, k={}, p={}, q={}] is {}, the oracle says {}", s.n, s.k, s.p, s.q, got, s.value);
}

CheckResult Testbed::check(const Executable& executable) {
  Fenced packed = fenced(executable.packed_bytes());
  executable.pack(w_.data(), problem_.bias ? bias_.data() : nullptr, packed.data(), nullptr);

  auto* y = static_cast<float*>(y_[0].data());
  const bool whole = y_[0].bytes <= samples_.size() * kBytesASample;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::int64_t> offsets;
  for (const Sample& sample : samples_) offsets.push_back(output_offset(sample));
  if (whole)
    poison(y_[0]);
  else
    backend_.fill_at(y, offsets, nan);
  if (problem_.n > 0) executable.run(x_[0].data(), packed.data(), y, nullptr);
  backend_.synchronize(nullptr);
  std::vector<float> all(whole ? y_[0].bytes / sizeof(float) : 0);
  backend_.download(all.data(), y, all.size() * sizeof(float));
  const std::vector<float> sampled = whole ? std::vector<float>() : backend_.read_at(y, offsets);

  CheckResult result;
  const double limit =
      error_limit(problem_.precision, problem_.c / problem_.groups * problem_.r * problem_.s);
  double worst = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    const float got = whole ? all[static_cast<std::size_t>(offsets[i])] : sampled[i];
    const double error = std::abs(static_cast<double>(got) - sample.value);
    const bool right =
        data_ == TestData::integer ? error == 0 : error <= limit * sample.magnitude;  // NaN: false
    if (!right && result.failure.empty()) result.failure = locate(sample, got);
    worst = std::max(worst, error);
  }
  result.max_error = oracle_rms_ > 0 ? worst / oracle_rms_ : worst;
  const std::pair<const Fenced*, const char*> fences[] = {{&x_[0], "the input"},
                                                          {&w_, "the weights"},
                                                          {&bias_, "the bias"},
                                                          {&packed, "the packed weights"},
                                                          {&y_[0], "the output"}};
  for (const auto& [fence, name] : fences)
    if (result.failure.empty() && !intact(*fence)) result.failure = fmt::format("it wrote outside {}", name);
  return result;
}

Testbed::Timed Testbed::prepare(const Executable& executable) {
  Timed timed;
  timed.bed_ = this;
  timed.executable_ = &executable;
  timed.packed_ = backend_.allocate(executable.packed_bytes());
  executable.pack(w_.data(), problem_.bias ? bias_.data() : nullptr, timed.packed_.get(), nullptr);
  return timed;
}

double Testbed::Timed::sample_us() {
  const auto backend_time = [this](const auto& work) { return bed_->backend_.time_us(work); };
  const auto run = [&] {
    bed_->next_set_ = (bed_->next_set_ + 1) % bed_->x_.size();
    executable_->run(bed_->x_[bed_->next_set_].data(), packed_.get(), bed_->y_[bed_->next_set_].data(),
                     nullptr);
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
