// A pair of convolutions in double, rounded where its kernel rounds, and the kernel compared with it.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/random_bits.h"
#include "contract/backend.h"
#include "convtune/pair.h"
#include "problem/element.h"

namespace convtune::pairs {

// Whole numbers, whose sums are exact; the same with some NaN and infinities among them; or any numbers.
enum class Data { integer, non_finite, real };

struct PairTensors {
  std::vector<float> x, first, first_bias, second, second_bias;  // each a number of the problem's type
  std::vector<float> first_alpha, first_scale, second_alpha, second_scale, behind_alpha, behind_scale;
};

inline PairTensors pair_tensors(const PairProblem& a, Data data, std::uint64_t seed) {
  std::uint64_t drawn_bits = 0;
  const auto bits = [&] { return random_bits(seed, drawn_bits++); };
  const auto number = [&](double spread) {
    const auto drawn = static_cast<std::int64_t>(bits() >> 40);  // 24 bits
    return data == Data::real || a.activation == PairActivation::snake
               ? static_cast<float>((static_cast<double>(drawn) / (1 << 23) - 1) * spread)
               : static_cast<float>(drawn % 5 - 2);
  };
  const auto tensor = [&](std::int64_t count, double spread, int special) {
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& one : numbers)
      one = static_cast<float>(rounded(a.dtype, static_cast<double>(number(spread))));
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int i = 0; i < special; ++i)
      numbers[bits() % numbers.size()] = i % 3 == 0   ? std::numeric_limits<float>::quiet_NaN()
                                         : i % 3 == 1 ? kInfinity
                                                      : -kInfinity;
    return numbers;
  };
  const auto spread = [&](std::int64_t taps) { return 1.5 / std::sqrt(static_cast<double>(a.c * taps)); };
  const int in_x = data == Data::non_finite && seed % 3 != 0 ? 2 : 0;
  const int in_w = data == Data::non_finite && seed % 3 != 1 ? 1 : 0;
  PairTensors all;
  all.x = tensor(a.n * a.t * a.c, 2, in_x);
  all.first = tensor(a.c * a.c * a.first_taps, spread(a.first_taps), in_w);
  all.first_bias = tensor(a.c, 1, 0);
  all.second = tensor(a.c * a.c * a.second_taps, spread(a.second_taps), in_w);
  all.second_bias = tensor(a.c, 1, 0);
  if (a.activation == PairActivation::snake)
    for (auto* numbers : {&all.first_alpha, &all.first_scale, &all.second_alpha, &all.second_scale,
                          &all.behind_alpha, &all.behind_scale})
      for (std::int64_t i = 0; i < a.c; ++i)
        numbers->push_back(static_cast<float>(0.2 + static_cast<double>(bits() >> 40) / (1 << 23)));
  return all;
}

// Rounded to the type.
inline float pair_activated(const PairProblem& a, double v, std::int64_t channel,
                            const std::vector<float>& alpha, const std::vector<float>& scale) {
  const auto i = static_cast<std::size_t>(channel);
  double value = v > 0 ? v : v * static_cast<double>(a.slope);
  if (a.activation == PairActivation::snake) {
    const double sine = std::sin(static_cast<double>(alpha[i]) * v);
    value = v + static_cast<double>(scale[i]) * sine * sine;
  }
  return static_cast<float>(rounded(a.dtype, value));
}

inline std::vector<float> pair_expected(const PairProblem& a, const PairTensors& all) {
  const auto count = static_cast<std::size_t>(a.n * a.t * a.c);
  const auto activated = [&](double v, std::int64_t channel, const std::vector<float>& alpha,
                             const std::vector<float>& scale) {
    return pair_activated(a, v, channel, alpha, scale);
  };
  const auto round = [&](double v) { return static_cast<float>(rounded(a.dtype, v)); };
  const auto convolved = [&](const std::vector<float>& x, const std::vector<float>& w,
                             const std::vector<float>& bias, std::int64_t taps, std::int64_t dilation) {
    std::vector<double> y(count);
    std::vector<float> rows(w.size());  // [filter][tap][channel]
    for (std::int64_t i = 0; i < std::ssize(w); ++i)
      rows[static_cast<std::size_t>((i / (a.c * taps) * taps + i % taps) * a.c + i / taps % a.c)] =
          w[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0; i < a.n * a.t; ++i)
      for (std::int64_t k = 0; k < a.c; ++k) {
        double sum = static_cast<double>(bias[static_cast<std::size_t>(k)]);
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const std::int64_t at = i % a.t + (tap - taps / 2) * dilation;
          if (at < 0 || at >= a.t) continue;
          const float* const from = x.data() + (i / a.t * a.t + at) * a.c;
          const float* const weights = rows.data() + (k * taps + tap) * a.c;
          for (std::int64_t c = 0; c < a.c; ++c)
            sum += static_cast<double>(from[c]) * static_cast<double>(weights[c]);
        }
        y[static_cast<std::size_t>(i * a.c + k)] = sum;
      }
    return y;
  };
  std::vector<float> middle(count), y(count);
  for (std::size_t i = 0; i < count; ++i)
    middle[i] = round(activated(static_cast<double>(all.x[i]), static_cast<std::int64_t>(i) % a.c,
                                all.first_alpha, all.first_scale));
  const auto first = convolved(middle, all.first, all.first_bias, a.first_taps, a.dilation);
  for (std::size_t i = 0; i < count; ++i)
    middle[i] =
        round(activated(first[i], static_cast<std::int64_t>(i) % a.c, all.second_alpha, all.second_scale));
  const auto second = convolved(middle, all.second, all.second_bias, a.second_taps, 1);
  for (std::size_t i = 0; i < count; ++i) y[i] = round(second[i] + static_cast<double>(all.x[i]));
  if (a.snake == Snake::none) return y;
  std::vector<float> behind(count);  // Snakes of y as it is stored
  for (std::size_t i = 0; i < count; ++i)
    behind[i] = round(activated(static_cast<double>(y[i]), static_cast<std::int64_t>(i) % a.c,
                                all.behind_alpha, all.behind_scale));
  if (a.snake == Snake::after) return behind;
  y.insert(y.end(), behind.begin(), behind.end());
  return y;
}

// Tensors of a problem and what is expected of them, which takes seconds of many channels: for all its
// configs.
struct PairCase {
  Data data;
  PairTensors tensors;
  std::vector<float> expected;

  PairCase(const PairProblem& a, Data what, std::uint64_t seed)
      : data(what), tensors(pair_tensors(a, what, seed)), expected(pair_expected(a, tensors)) {}
};

// Says what is wrong with a pair's y, or nothing: exact where sums are, else within some units in the last
// place of what its terms are worth; and nothing written outside of y.
inline std::string pair_fault(const Pair& pair, Backend& gpu, const PairCase& one) {
  const PairProblem& a = pair.problem();
  const auto& [data, all, expected] = one;
  const auto size = static_cast<std::size_t>(size_of(a.dtype));
  const auto to_device = [&](const std::vector<float>& numbers) {
    std::vector<unsigned char> bytes(numbers.size() * size);
    store_all(a.dtype, numbers.data(), std::ssize(numbers), bytes.data());
    auto block = gpu.allocate(bytes.size());
    gpu.upload(block.get(), bytes.data(), bytes.size());
    return block;
  };
  const auto floats = [&](const std::vector<float>& numbers) {
    auto block = gpu.allocate(numbers.size() * sizeof(float) + 4);
    if (!numbers.empty()) gpu.upload(block.get(), numbers.data(), numbers.size() * sizeof(float));
    return block;
  };
  std::vector<float> given = all.x;
  for (std::size_t i = 0; a.activated && i < all.x.size(); ++i)
    given.push_back(pair_activated(a, static_cast<double>(all.x[i]), static_cast<std::int64_t>(i) % a.c,
                                   all.first_alpha, all.first_scale));
  const auto x = to_device(given), first = to_device(all.first), first_bias = to_device(all.first_bias),
             second = to_device(all.second), second_bias = to_device(all.second_bias),
             first_alpha = floats(all.first_alpha), first_scale = floats(all.first_scale),
             second_alpha = floats(all.second_alpha), second_scale = floats(all.second_scale),
             behind_alpha = floats(all.behind_alpha), behind_scale = floats(all.behind_scale);
  constexpr std::size_t kCanary = 256;  // bytes
  constexpr unsigned char kUntouched = 0x5a;
  std::vector<unsigned char> result(expected.size() * size + 2 * kCanary, kUntouched);
  const auto y = gpu.allocate(result.size()), packed = gpu.allocate(pair.packed_bytes());
  gpu.upload(y.get(), result.data(), result.size());
  const auto number = [](const std::shared_ptr<void>& block) {
    return static_cast<const float*>(block.get());
  };
  try {
    pair.pack({first.get(), first_bias.get(), second.get(), second_bias.get(), number(first_alpha),
               number(first_scale), number(second_alpha), number(second_scale), number(behind_alpha),
               number(behind_scale)},
              packed.get());
    pair.run(x.get(), packed.get(), static_cast<unsigned char*>(y.get()) + kCanary);
    gpu.synchronize(nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  gpu.download(result.data(), y.get(), result.size());
  for (std::size_t i = 0; i < kCanary; ++i)
    if (result[i] != kUntouched || result[result.size() - 1 - i] != kUntouched)
      return "something is written outside of y";
  const double unit = a.dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const float got = load(a.dtype, result.data() + kCanary, static_cast<std::int64_t>(i));
    if (std::isnan(expected[i]) ? std::isnan(got) : got == expected[i]) continue;
    // A Snake behind is as steep as 5.9 here, and reads what is rounded.
    const bool is_behind = a.snake == Snake::after || static_cast<std::int64_t>(i) >= a.n * a.t * a.c;
    const double units = is_behind ? 8 : 2;
    const double off = std::abs(static_cast<double>(got) - static_cast<double>(expected[i]));
    if ((data == Data::real || a.activation == PairActivation::snake) &&
        off <= units * unit * (1 + std::abs(static_cast<double>(expected[i]))))
      continue;
    const auto position = static_cast<std::int64_t>(i) / a.c;
    return fmt::format("y at position {} channel {} is {} and should be {}", position,
                       static_cast<std::int64_t>(i) % a.c, got, expected[i]);
  }
  return "";
}
inline std::string pair_fault(const Pair& pair, Backend& gpu, Data data, std::uint64_t seed) {
  return pair_fault(pair, gpu, PairCase(pair.problem(), data, seed));
}

}  // namespace convtune::pairs
