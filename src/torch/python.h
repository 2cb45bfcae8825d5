// Python as this library uses it: functions of its limited interface, which every version from 3.10 on keeps,
// declared here and looked up in the process, like PyTorch's (shim.h). One is PyTorch's and has a C++ name:
// how a tensor becomes a Python object.
#pragma once

#include <cstddef>

namespace convtune::torch {

using Object = void;  // PyObject

struct Method {  // PyMethodDef
  const char* name;
  void (*function)();
  int flags;
  const char* documentation;
};
inline constexpr int kFastCall = 0x80, kKeywords = 0x02;  // METH_FASTCALL, METH_KEYWORDS

struct Interpreter {
  Object* (*function_of)(Method*, Object* self, Object* module);
  Object* (*attribute)(Object*, Object* name);
  Object* (*text)(const char*);
  const char* (*utf8)(Object* text, std::ptrdiff_t* size);
  void* (*pointer)(Object* number);
  long (*integer)(Object* number);
  Object* (*number)(void* pointer);
  std::ptrdiff_t (*size)(Object* tuple);
  Object* (*item)(Object* tuple, std::ptrdiff_t);     // borrowed
  Object* (*value)(Object* dictionary, Object* key);  // borrowed
  Object* (*type)(Object*);
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
extern Interpreter python;

// True where all of these functions are there: looked up at the first call.
bool has_python();

// The object itself, with one more reference.
Object* another(Object* object);
// True for exactly a torch.Tensor or a Parameter: of no other class, which may do otherwise.
bool is_plain(Object* object);
// Reads a tensor's address in C++, null for None; false for anything else.
bool read_tensor(Object* object, const void*& tensor);
// A new reference to a tensor as Python's object, or to None where that cannot be.
Object* object_of(const void* tensor);
// Learns which two classes are plain, and by two live tensors where such an object keeps its tensor's
// address:
// `_cdata` tells it at 500 instructions a time.
void learn_tensors(Object* tensor, Object* parameter, Object* one, Object* other);

}  // namespace convtune::torch
