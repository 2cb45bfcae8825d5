// Watched tensors: compared with what they were, without a question to Python.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "torch/operator_table.h"
#include "torch/python.h"
#include "torch/python_call.h"

namespace convtune::torch {

namespace {

// Tensors as they were: Python's objects, and where they are in C++ as long as those live.
struct Watch {
  std::vector<Object*> objects;
  std::vector<Watched> tensors;
  std::vector<std::pair<Object*, std::int64_t>> counters;  // with their versions
};
constexpr const char* kWatch = "convtune.watch";

std::int64_t version_of(Object* object) {
  const void* tensor = nullptr;
  if (!read_tensor(object, tensor) || !tensor) throw std::runtime_error("no tensor");
  return version(reinterpret_cast<TensorHandle>(&tensor));
}

void destroy_watch(Object* capsule) {
  const auto* const watch = static_cast<const Watch*>(python.within(capsule, kWatch));
  for (const auto& counter : watch->counters) python.drop(counter.first);
  delete watch;
}

bool is_same(const Watch& watch, Object* tuple) try {
  const std::size_t count = watch.objects.size();
  if (python.size(tuple) != static_cast<std::ptrdiff_t>(count)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    if (python.item(tuple, static_cast<std::ptrdiff_t>(i)) != watch.objects[i]) return false;
    const void* tensor = watch.tensors[i].identity;
    if (!watch.tensors[i].holds_for(reinterpret_cast<TensorHandle>(&tensor))) return false;
  }
  return std::all_of(watch.counters.begin(), watch.counters.end(),
                     [](const auto& counter) { return version_of(counter.first) == counter.second; });
} catch (const std::exception&) {  // nobody counts the changes of a tensor of inference mode
  return false;
}

Object* call_same(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  const auto& watch = *static_cast<const Watch*>(python.within(self, kWatch));
  return another(count == 1 && is_same(watch, arguments[0]) ? python.yes : python.no);
}

}  // namespace

void* python_watch(void* tensors, void* counters) try {
  static Method method{"same", reinterpret_cast<void (*)()>(call_same), kFastCall, nullptr};
  if (!has_python()) return nullptr;
  auto watch = std::make_unique<Watch>();
  for (std::ptrdiff_t i = 0; i < python.size(tensors); ++i) {
    Object* const object = python.item(tensors, i);
    const void* tensor = nullptr;
    if (!read_tensor(object, tensor) || !tensor) return another(python.none);
    const auto handle = reinterpret_cast<TensorHandle>(&tensor);
    if (!storage(handle)) return another(python.none);
    watch->objects.push_back(object);
    watch->tensors.push_back(Watched::of(handle, version(handle)));
  }
  for (std::ptrdiff_t i = 0; i < python.size(counters); ++i)
    watch->counters.emplace_back(python.item(counters, i), version_of(python.item(counters, i)));
  for (const auto& counter : watch->counters) python.take(counter.first);
  Object* const self = python.capsule(watch.release(), kWatch, destroy_watch);
  Object* const made = python.function_of(&method, self, nullptr);
  python.drop(self);
  return made;
} catch (const std::exception&) {
  return another(python.none);
}

}  // namespace convtune::torch
