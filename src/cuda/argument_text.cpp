// Operands lie apart in a number line of addresses by more than any device has.
#include "cuda/argument_text.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "convtune/error.h"

namespace convtune::cuda {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"x", "w", "bias", "packed", "y"};  // by Operand
constexpr int kApart = 44;                                                             // bits
constexpr std::uintptr_t kBegin = 16;

}  // namespace

void* rehearsed_address(Operand operand) {
  const auto index = static_cast<std::uintptr_t>(operand) + 1;
  return std::bit_cast<void*>((index << kApart) + kBegin);
}

std::string pointer_text(const void* pointer, bool is_const, bool is_float) {
  if (!pointer) return "nullptr";
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t index = address >> kApart, offset = address - (index << kApart) - kBegin;
  if (index < 1 || index > kNames.size() || offset % sizeof(float) != 0)
    throw Error(ErrorKind::internal, "a rehearsal was given memory that it does not know");
  std::string text(kNames[index - 1]);
  if (offset > 0) text += fmt::format(" + {}", offset / sizeof(float));
  return is_float ? text : fmt::format("reinterpret_cast<{}unsigned*>({})", is_const ? "const " : "", text);
}

}  // namespace convtune::cuda
