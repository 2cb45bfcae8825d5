// Python's functions are those of its limited interface, which every version from 3.10 on keeps, declared
// here and looked up in the process, like PyTorch's (shim.h). One is PyTorch's and has a C++ name: how a
// tensor becomes a Python object.
#include "torch/python_call.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <exception>
#include <type_traits>

#include "torch/table.h"

namespace convtune::torch {

namespace {

using Object = void;  // PyObject
using Function = Object*(Object* self, Object* const* arguments, std::ptrdiff_t count);

struct Method {  // PyMethodDef
  const char* name;
  Function* function;
  int flags;
  const char* documentation;
};

struct Python {
  Object* (*function_of)(Method*, Object* self, Object* module);
  Object* (*attribute)(Object*, Object* name);
  Object* (*text)(const char*);
  const char* (*utf8)(Object* text, std::ptrdiff_t* size);
  void* (*pointer)(Object* number);
  void (*take)(Object*);
  void (*drop)(Object*);
  void (*forget_error)();
  void* (*let_others_run)();
  void (*run_again)(void* state);
  Object* none;
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
  const bool all = torch && bind(python.wrap, torch, "_Z16THPVariable_WrapRKN2at10TensorBaseE") &&
                   bind(python.function_of, RTLD_DEFAULT, "PyCFunction_NewEx") &&
                   bind(python.attribute, RTLD_DEFAULT, "PyObject_GetAttr") &&
                   bind(python.text, RTLD_DEFAULT, "PyUnicode_InternFromString") &&
                   bind(python.utf8, RTLD_DEFAULT, "PyUnicode_AsUTF8AndSize") &&
                   bind(python.pointer, RTLD_DEFAULT, "PyLong_AsVoidPtr") &&
                   bind(python.take, RTLD_DEFAULT, "Py_IncRef") &&
                   bind(python.drop, RTLD_DEFAULT, "Py_DecRef") &&
                   bind(python.forget_error, RTLD_DEFAULT, "PyErr_Clear") &&
                   bind(python.let_others_run, RTLD_DEFAULT, "PyEval_SaveThread") &&
                   bind(python.run_again, RTLD_DEFAULT, "PyEval_RestoreThread") &&
                   bind(python.none, RTLD_DEFAULT, "_Py_NoneStruct");
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
  python.take(python.none);
  return python.none;
}

Object* call(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count == 5)
    if (const Tensor y = answer(arguments)) return object_of(y.get());
  python.take(python.none);
  return python.none;
}

}  // namespace

void* python_call() {
  static const bool can = find_python();
  constexpr int kFastCall = 0x80;  // METH_FASTCALL
  static Method method{"conv2d_ready", call, kFastCall, nullptr};
  return can ? python.function_of(&method, nullptr, nullptr) : nullptr;
}

void* python_object(const void* tensor) {
  return object_of(&tensor);
}

}  // namespace convtune::torch
