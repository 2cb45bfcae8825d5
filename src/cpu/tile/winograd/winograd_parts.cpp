// See winograd_parts.h.
#include "cpu/tile/winograd/winograd_parts.h"

#include <algorithm>

#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {

std::vector<WinogradPart> winograd_parts(std::int64_t taps, std::int64_t stride) {
  std::vector<WinogradPart> parts;
  for (std::int64_t phase = 0; phase < std::min(taps, stride); ++phase)
    for (std::int64_t first = phase; first < taps; first += kWinogradTaps * stride)
      parts.push_back(
          {first, static_cast<int>(std::min<std::int64_t>((taps - first - 1) / stride + 1, kWinogradTaps))});
  return parts;
}

WinogradAxis::WinogradAxis(std::int64_t taps, std::int64_t stride, int m)
    : parts(winograd_parts(taps, stride)) {
  for (std::size_t part = 0; part < parts.size(); ++part) {
    // Fewer taps lack products before the last.
    const int count = m + parts[part].taps - 1, all = winograd_inputs(m);
    for (int index = 0; index < count; ++index) {
      const int product = index + 1 < count ? index : all - 1;
      products.push_back({part, product, parts_with[product]++});
    }
  }
}

}  // namespace convtune::cpu
