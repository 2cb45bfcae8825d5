// Python's functions are those of its limited interface, which every version from 3.10 on keeps, declared
// here and looked up in the process, like PyTorch's (shim.h). One is PyTorch's and has a C++ name: how a
// tensor becomes a Python object.
#include "torch/python_call.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "torch/table.h"

namespace convtune::torch {

namespace {

using Object = void;  // PyObject

struct Method {  // PyMethodDef
  const char* name;
  void (*function)();
  int flags;
  const char* documentation;
};

struct Python {
  Object* (*function_of)(Method*, Object* self, Object* module);
  Object* (*attribute)(Object*, Object* name);
  Object* (*text)(const char*);
  const char* (*utf8)(Object* text, std::ptrdiff_t* size);
  void* (*pointer)(Object* number);
  Object* (*number)(void* pointer);
  std::ptrdiff_t (*size)(Object* tuple);
  Object* (*item)(Object* tuple, std::ptrdiff_t);  // borrowed
  Object* (*capsule)(void* pointer, const char* name, void (*destroy)(Object*));
  void* (*within)(Object* capsule, const char* name);
  Object* (*call)(Object* function, ...);  // its arguments, and a null
  void (*take)(Object*);
  void (*drop)(Object*);
  void (*forget_error)();
  void* (*let_others_run)();
  void (*run_again)(void* state);
  Object *none, *yes, *no;
  Object* (*wrap)(const void* tensor);  // THPVariable_Wrap(const at::TensorBase&)
  Object* cdata;                        // "_cdata"
};

Python python{};

bool find_python() {
  const auto bind = [](auto*& to, void* library, const char* name) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, name));
    return to != nullptr;
  };
  void* const torch = ::dlopen("libtorch_python.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  const bool all =
      torch && bind(python.wrap, torch, "_Z16THPVariable_WrapRKN2at10TensorBaseE") &&
      bind(python.function_of, RTLD_DEFAULT, "PyCFunction_NewEx") &&
      bind(python.attribute, RTLD_DEFAULT, "PyObject_GetAttr") &&
      bind(python.text, RTLD_DEFAULT, "PyUnicode_InternFromString") &&
      bind(python.utf8, RTLD_DEFAULT, "PyUnicode_AsUTF8AndSize") &&
      bind(python.pointer, RTLD_DEFAULT, "PyLong_AsVoidPtr") &&
      bind(python.number, RTLD_DEFAULT, "PyLong_FromVoidPtr") &&
      bind(python.size, RTLD_DEFAULT, "PyTuple_Size") && bind(python.item, RTLD_DEFAULT, "PyTuple_GetItem") &&
      bind(python.capsule, RTLD_DEFAULT, "PyCapsule_New") &&
      bind(python.within, RTLD_DEFAULT, "PyCapsule_GetPointer") &&
      bind(python.call, RTLD_DEFAULT, "PyObject_CallFunctionObjArgs") &&
      bind(python.take, RTLD_DEFAULT, "Py_IncRef") && bind(python.drop, RTLD_DEFAULT, "Py_DecRef") &&
      bind(python.forget_error, RTLD_DEFAULT, "PyErr_Clear") &&
      bind(python.let_others_run, RTLD_DEFAULT, "PyEval_SaveThread") &&
      bind(python.run_again, RTLD_DEFAULT, "PyEval_RestoreThread") &&
      bind(python.none, RTLD_DEFAULT, "_Py_NoneStruct") && bind(python.yes, RTLD_DEFAULT, "_Py_TrueStruct") &&
      bind(python.no, RTLD_DEFAULT, "_Py_FalseStruct");
  return all && (python.cdata = python.text("_cdata")) != nullptr;
}

// Of a tensor its address, of None null; false for anything else.
bool read_tensor(Object* object, const void*& tensor) {
  tensor = nullptr;
  if (object == python.none) return true;
  if (Object* const number = python.attribute(object, python.cdata)) {
    tensor = python.pointer(number);
    python.drop(number);
  }
  if (!tensor) python.forget_error();
  return tensor != nullptr;
}

// None where there is none.
Tensor answer(Object* const* arguments) {
  std::array<const void*, 4> tensors{};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!read_tensor(arguments[i], tensors[i])) return {};
  std::ptrdiff_t size = 0;
  const char* const how = python.utf8(arguments[4], &size);
  if (!how) python.forget_error();
  if (!how || !tensors[0] || !tensors[1]) return {};
  const auto handle = [&](std::size_t i) {  // an at::Tensor is one address
    return tensors[i] ? reinterpret_cast<TensorHandle>(&tensors[i]) : nullptr;
  };
  Tensor y;
  void* const state = python.let_others_run();
  try {
    y = run_if_ready({handle(0), handle(1), handle(2), handle(3), {how, static_cast<std::size_t>(size)}});
  } catch (const std::exception&) {  // the long way fails, too, and says it in Python's words
  }
  python.run_again(state);
  return y;
}

Object* another(Object* object) {
  python.take(object);
  return object;
}

// A new reference to a tensor as Python's object, or to None where that cannot be: PyTorch may throw, and
// there are C functions above.
Object* object_of(const void* tensor) {
  Object* object = nullptr;
  try {
    object = python.wrap(tensor);
  } catch (...) {
  }
  if (object) return object;
  python.forget_error();
  return another(python.none);
}

Object* call(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count == 5)
    if (const Tensor y = answer(arguments)) return object_of(y.get());
  return another(python.none);
}

struct Bound {
  const convtune_convolution* convolution;
  std::int32_t device;
  Object* otherwise;
};

// False where it is to be done otherwise: a tensor that is none, an odd place in half precision, which no
// kernel reads, and whatever fails, which is said in Python's words then. No residual: None.
bool run_bound(const Bound& bound, Object* x, Object* packed, Object* residual, Object* y) try {
  const auto address_of = [](Object* object) -> void* {
    const void* tensor = nullptr;
    return read_tensor(object, tensor) && tensor ? address(reinterpret_cast<TensorHandle>(&tensor)) : nullptr;
  };
  const bool adds = residual != python.none;
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  tensors.x = address_of(x), tensors.y = address_of(y);
  tensors.residual = adds ? address_of(residual) : nullptr;
  const void* const weights = address_of(packed);
  const auto places =
      reinterpret_cast<std::uintptr_t>(tensors.x) | reinterpret_cast<std::uintptr_t>(tensors.residual);
  if (!tensors.x || !tensors.y || !weights || (adds && !tensors.residual) || (places & 3) != 0) return false;
  void* stream = nullptr;
  if (bound.device >= 0)
    check(shim->get_current_cuda_stream(bound.device, &stream), "get_current_cuda_stream");
  void* const state = python.let_others_run();
  const convtune_status status = adds
                                     ? convtune_run_tensors(bound.convolution, &tensors, weights, stream)
                                     : convtune_run(bound.convolution, tensors.x, weights, tensors.y, stream);
  python.run_again(state);
  return status == CONVTUNE_OK;
} catch (const std::exception&) {
  return false;
}

// (x, packed, out=y) or (x, packed, residual, out=y): values by name come behind the others.
Object* call_bound(Object* self, Object* const* arguments, std::ptrdiff_t count, Object* names) {
  const auto& bound = *static_cast<const Bound*>(python.pointer(self));
  bool is_by_name = false;
  if (names && python.size(names) > 0) {
    std::ptrdiff_t length = 0;
    const char* const name = python.utf8(python.item(names, 0), &length);
    is_by_name = python.size(names) == 1 && name && std::string_view(name) == "out";
    if (!is_by_name) return python.call(bound.otherwise, nullptr);  // which says what it takes
  }
  const std::ptrdiff_t all = count + (is_by_name ? 1 : 0);
  if (all < 3 || all > 4) return python.call(bound.otherwise, nullptr);
  Object* const residual = all == 4 ? arguments[2] : python.none;
  Object* const y = arguments[all - 1];
  if (run_bound(bound, arguments[0], arguments[1], residual, y)) return another(python.none);
  return python.call(bound.otherwise, arguments[0], arguments[1], residual, y, nullptr);
}

// What tensors were: Python's objects, and where they are in C++ as long as those live.
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

constexpr int kFastCall = 0x80, kKeywords = 0x02;  // METH_FASTCALL, METH_KEYWORDS

bool can_call() {
  static const bool can = find_python();
  return can;
}

}  // namespace

void* python_call() {
  static Method method{"conv2d_ready", reinterpret_cast<void (*)()>(call), kFastCall, nullptr};
  return can_call() ? python.function_of(&method, nullptr, nullptr) : nullptr;
}

void* python_bound(const convtune_convolution* convolution, std::int32_t device, void* otherwise) {
  static Method method{"conv2d_bound", reinterpret_cast<void (*)()>(call_bound), kFastCall | kKeywords,
                       nullptr};
  if (!can_call()) return nullptr;
  if (device >= 0 && !shim->get_current_cuda_stream) return another(otherwise);
  python.take(otherwise);
  Object* const self =
      python.number(new Bound{convolution, device, otherwise});  // never freed: see the header
  Object* const made = python.function_of(&method, self, nullptr);
  python.drop(self);
  return made;
}

void* python_watch(void* tensors, void* counters) try {
  static Method method{"same", reinterpret_cast<void (*)()>(call_same), kFastCall, nullptr};
  if (!can_call()) return nullptr;
  auto watch = std::make_unique<Watch>();
  for (std::ptrdiff_t i = 0; i < python.size(tensors); ++i) {
    Object* const object = python.item(tensors, i);
    const void* tensor = nullptr;
    if (!read_tensor(object, tensor) || !tensor) return another(python.none);
    const auto handle = reinterpret_cast<TensorHandle>(&tensor);
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

void* python_object(const void* tensor) {
  return object_of(&tensor);
}

}  // namespace convtune::torch
