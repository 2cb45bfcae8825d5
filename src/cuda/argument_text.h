// What a kernel is given, as CUDA C++ writes it: a rehearsal notes launches in these words.
#pragma once

#include <string>
#include <type_traits>

#include "cuda/extents.h"

namespace convtune::cuda {

// The memory of a rehearsal: addresses that nothing may look behind. They are multiples of 16 and of no more,
// so that what is chosen by them holds for every tensor that is aligned so.
enum class Operand { x, w, bias, packed, y };
void* rehearsed_address(Operand operand);

// "x", "packed + 8", "reinterpret_cast<unsigned*>(packed)", "nullptr". Of floats or unsigned ints.
std::string pointer_text(const void* pointer, bool is_const, bool is_float);

template <class T>
std::string argument_text(const T& argument) {
  if constexpr (std::is_same_v<T, bool>) {
    return argument ? "true" : "false";
  } else if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    return pointer_text(argument, std::is_const_v<To>, std::is_same_v<std::remove_const_t<To>, float>);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(argument);
  } else {
    return to_cuda(argument);
  }
}

}  // namespace convtune::cuda
