#include "torch/python.h"

#include <dlfcn.h>

#include <cstring>
#include <type_traits>

#include "base/fork_gate.h"

namespace convtune::torch {

Interpreter python{};

namespace {

Object* plain[2]{};        // torch.Tensor, torch.nn.Parameter
std::ptrdiff_t place = 0;  // of the tensor's address in an object of those: 0 where that is not known

const void* word_at(Object* object, std::ptrdiff_t offset) {
  const void* word = nullptr;
  std::memcpy(&word, static_cast<const char*>(object) + offset, sizeof word);
  return word;
}

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
      bind(python.integer, RTLD_DEFAULT, "PyLong_AsLong") &&
      bind(python.number, RTLD_DEFAULT, "PyLong_FromVoidPtr") &&
      bind(python.size, RTLD_DEFAULT, "PyTuple_Size") && bind(python.item, RTLD_DEFAULT, "PyTuple_GetItem") &&
      bind(python.value, RTLD_DEFAULT, "PyDict_GetItem") &&
      bind(python.type, RTLD_DEFAULT, "PyObject_Type") &&
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

}  // namespace

bool has_python() {
  return once([] { return find_python(); });
}

Object* another(Object* object) {
  python.take(object);
  return object;
}

bool is_plain(Object* object) {
  Object* const type = python.type(object);
  python.drop(type);  // the object has another reference to it
  return type == plain[0] || type == plain[1];
}

bool read_tensor(Object* object, const void*& tensor) {
  tensor = nullptr;
  if (object == python.none) return true;
  if (place != 0 && is_plain(object)) {
    tensor = word_at(object, place);
  } else if (Object* const number = python.attribute(object, python.cdata)) {
    tensor = python.pointer(number);
    python.drop(number);
  }
  if (!tensor) python.forget_error();
  return tensor != nullptr;
}

void learn_tensors(Object* tensor, Object* parameter, Object* one, Object* other) {
  plain[0] = another(tensor), plain[1] = another(parameter);
  const void *of_one = nullptr, *of_other = nullptr;
  if (!read_tensor(one, of_one) || !read_tensor(other, of_other) || !of_one || of_one == of_other) return;
  constexpr std::ptrdiff_t kHead = 16, kLast = 32;  // PyTorch's smallest object of a tensor has 40 bytes
  for (std::ptrdiff_t at = kHead; at <= kLast && place == 0; at += 8)
    if (word_at(one, at) == of_one && word_at(other, at) == of_other) place = at;
}

Object* object_of(const void* tensor) {
  Object* object = nullptr;
  try {  // PyTorch may throw, and there are C functions above
    object = python.wrap(tensor);
  } catch (...) {
  }
  if (object) return object;
  python.forget_error();
  return another(python.none);
}

}  // namespace convtune::torch
