// convtune::conv2d_forward and convtune::conv_gradients for PyTorch's dispatcher, all registrations, and what
// the Python package calls of this library.
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "base/fork_gate.h"
#include "convtune/torch.h"
#include "torch/packed_weights.h"
#include "torch/plans.h"
#include "torch/preparing.h"
#include "torch/python.h"
#include "torch/python_call.h"
#include "torch/ready.h"
#include "torch/running.h"
#include "torch/stack.h"
#include "torch/step_calls.h"

namespace convtune::torch {

namespace {

constexpr const char* kSchema =
    "conv2d_forward(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str how) -> Tensor";

std::atomic<bool> has_package = false;  // convtune::conv2d_python is there to plan and pack

Call read(const Value* stack) {
  return {as_tensor(stack[0]), as_tensor(stack[1]), unboxed(stack[2]), unboxed(stack[3]), as_text(stack[4])};
}

// ---- Calls that are not in the table ----

// Weights that no Python object stands for: Python took its packed weights back within the call that packed
// them. Such a weight is C++'s own (a constant of AOTInductor), and what is packed of it is kept here.
class Unowned {
 public:
  bool contains(const void* weight) {
    const std::lock_guard guard(mutex_);
    return weights_.contains(weight);
  }
  void insert(const void* weight) {
    const std::lock_guard guard(mutex_);
    if (weights_.size() >= 4096) weights_.clear();
    weights_.insert(weight);
  }

 private:
  Mutex mutex_;
  std::unordered_set<const void*> weights_;
};
Unowned& unowned() {
  return *once([] { return new Unowned; });
}

thread_local std::int64_t offered = 0;  // by Python, last
thread_local std::string python_said;   // why its kernel failed

void call_python(Arguments& arguments, const char* name) {
  Value* const stack = arguments.hand_on();
  offered = 0;
  python_said.clear();
  if (shim->call_dispatcher(name, "", stack, kVersion) != 0)
    throw std::runtime_error(python_said.empty() ? std::string(name) + " failed" : python_said);
}

void conv2d_forward(Value* stack, std::uint64_t count, std::uint64_t) {
  Arguments arguments(stack, count);
  Tensor y;
  {
    const Call call = read(stack);
    y = run_if_ready(call);
    if (const void* const weight = identity(call.weight); !y && has_package && !unowned().contains(weight)) {
      call_python(arguments, "convtune::conv2d_python");
      if (offered != 0 && !Table::of_process().holds(offered)) unowned().insert(weight);
      return;
    }
    if (!y) y = run(prepare(call)->launch, call.x, call.residual);
  }
  arguments.free();
  stack[0] = as_value(y.release());
}

// conv2d_forward, but none where the call is not ready: for callers who can do without.
void conv2d_ready(Value* stack, std::uint64_t count, std::uint64_t) {
  Arguments arguments(stack, count);
  Tensor y = run_if_ready(read(stack));
  arguments.free();
  stack[0] = y ? boxed(as_value(y.release())) : 0;
}

void conv_gradients(Value* stack, std::uint64_t count, std::uint64_t) {
  Arguments arguments(stack, count, 3);
  Gradients made;
  if (!gradients_if_known(as_tensor(stack[0]), as_tensor(stack[1]), as_tensor(stack[2]), as_text(stack[3]),
                          made))
    return call_python(arguments, "convtune::conv_gradients_python");
  arguments.free();
  for (std::size_t i = 0; i < made.size(); ++i) {
    TensorHandle gradient = made[i].release();
    if (!gradient) check(shim->new_undefined_tensor(&gradient), "new_uninitialized_tensor");
    stack[i] = as_value(gradient);
  }
}

// ---- Registration ----

std::string registered(bool defined) {
  if (!find_shim()) return why_no_shim();
  void* library = nullptr;  // never freed: that would take the operators back
  if (!defined &&
      (shim->library_init_fragment("convtune", __FILE__, __LINE__, &library) != 0 ||
       shim->library_def(library, kSchema) != 0 || shim->library_def(library, kPackedSchema) != 0))
    return "PyTorch does not take the operators' schemas: are they registered already?";
  for (const char* const key : {"CPU", "CUDA"})
    if (shim->library_init_impl("convtune", key, __FILE__, __LINE__, &library) != 0 ||
        shim->library_impl(library, "conv2d_forward", conv2d_forward, kVersion) != 0 ||
        shim->library_impl(library, "conv2d_packed", conv2d_packed, kVersion) != 0 ||
        (defined && (shim->library_impl(library, "conv2d_ready", conv2d_ready, kVersion) != 0 ||
                     shim->library_impl(library, "conv_gradients", conv_gradients, kVersion) != 0)))
      return "PyTorch does not take the operators' kernels: are there others?";
  return {};
}

// ---- Offers ----

// A tensor by its address in C++.
TensorHandle handle_of(const void* const& tensor) {
  return reinterpret_cast<TensorHandle>(const_cast<const void**>(&tensor));
}

// False where PyTorch does not tell its setting of precision.
template <class Known>
bool read_key(Known& call, const char* how, bool any_precision) {
  const Precision set = any_precision ? Precision{Entry::kAnyPrecision, true} : float32_precision();
  call.how = how;
  call.precision = set.number;
  return set.known;
}

}  // namespace
}  // namespace convtune::torch

using namespace convtune::torch;  // NOLINT: this file is that namespace's outer side

extern "C" {

const char* convtune_torch_register(void) {
  const std::string& why = convtune::once([] { return registered(false); });
  return why.empty() ? nullptr : why.c_str();
}

// ---- Functions that the Python package calls; convtune/torch/native.py declares it ----

CONVTUNE_API const char* convtune_torch_register_defined(void) {
  const std::string& why = convtune::once([] { return registered(true); });
  if (why.empty()) has_package = true;
  return why.empty() ? nullptr : why.c_str();
}

// Puts a call that Python has planned, packed and run into the table, until `owner` drops it. Tensors are
// their addresses in C++ ("_cdata"); those that are not there are null. `weight_version`, `bias_version`:
// from before packing; `last`: the kernel's tensors lie channels last; `transposed`: they are dy and dx.
// Until it is dropped the caller holds weak references to the storages of weight and bias. False where it
// does not take it.
CONVTUNE_API bool convtune_torch_offer(std::int64_t owner, const void* x, const void* weight,
                                       const void* bias, const void* residual, const void* y, const char* how,
                                       const convtune_convolution* convolution, const void* packed,
                                       void* stream, bool last, std::int64_t weight_version,
                                       std::int64_t bias_version, bool any_precision, bool transposed) {
  try {
    auto entry = std::make_shared<Entry>();
    Launch& launch = entry->launch;
    if (!read_key(*entry, how, any_precision) || !read_form(handle_of(x), launch.x) ||
        !read_form(handle_of(y), launch.y))
      return false;
    if (residual && !read_form(handle_of(residual), launch.residual)) return false;
    if (!storage(handle_of(weight)) || (bias && !storage(handle_of(bias)))) return false;
    entry->weight = Watched::of(handle_of(weight), weight_version);
    entry->weight_sizes = read_sizes(handle_of(weight));
    if (bias) {
      entry->bias = Watched::of(handle_of(bias), bias_version);
      entry->kept.push_back(Tensor::sharing(handle_of(bias)));  // or its address becomes another's
    }
    launch.convolution = convolution;
    launch.packed = packed;
    launch.stream = stream;
    launch.last = last;
    launch.transposed = transposed;
    entry->owner = owner;
    Table::of_process().drop(owner);
    Table::of_process().add(std::move(entry));
    offered = owner;
    return true;
  } catch (...) {
    return false;
  }
}

// Offers a call that packs its weights: `owner` is nobody, and the convolution lives until all is
// cleared.
CONVTUNE_API bool convtune_torch_offer_forward(const void* x, const void* weight, const void* bias,
                                               const void* residual, const void* y, const char* how,
                                               const convtune_convolution* convolution, bool last,
                                               bool transposed, bool any_precision) {
  try {
    auto call = std::make_shared<StepCall>();
    auto& [of_x, of_weight, of_bias, of_residual] = call->tensors;
    Launch& launch = call->forward.launch;
    if (!read_key(*call, how, any_precision) || !read_form(handle_of(x), of_x) ||
        !read_form(handle_of(weight), of_weight) || (bias && !read_row(handle_of(bias), of_bias)) ||
        (residual && !read_form(handle_of(residual), of_residual)) || !read_form(handle_of(y), launch.y))
      return false;
    launch.convolution = convolution;
    launch.x = of_x, launch.residual = of_residual;
    launch.last = last, launch.transposed = transposed;
    call->forward.weight = of_weight;
    call->forward.lies = reads_weights(convolution) && lies_as(of_weight, dense(of_weight, true));
    StepCalls::of_process().add(std::move(call));
    return true;
  } catch (...) {
    return false;
  }
}
// Gradients that Python has planned and run. What was not asked is null: dx with its convolution, and dw with
// its own; dbias also alone. `last`: the kernel's images lie channels last.
CONVTUNE_API bool convtune_torch_offer_gradients(const void* dy, const void* x, const void* weight,
                                                 const void* dx, const void* dw, const void* dbias,
                                                 const char* how, const convtune_convolution* of_x,
                                                 bool of_x_last, const convtune_convolution* of_w,
                                                 bool of_w_last, bool transposed, bool any_precision) {
  try {
    auto call = std::make_shared<StepCall>();
    auto& [form_of_dy, form_of_x, form_of_weight, none] = call->tensors;
    if (!read_key(*call, how, any_precision) || !read_form(handle_of(dy), form_of_dy) ||
        !read_form(handle_of(x), form_of_x) || !read_form(handle_of(weight), form_of_weight))
      return false;
    PackedAnew& image = call->of_x;
    WeightGradient& taps = call->of_weight;
    if (of_x) {
      if (!read_form(handle_of(dx), image.launch.y)) return false;
      image.launch.convolution = of_x;
      image.launch.x = form_of_dy;
      image.launch.last = of_x_last, image.launch.transposed = !transposed;
      image.weight = form_of_weight;
      image.lies = reads_weights(of_x) && lies_as(form_of_weight, dense(form_of_weight, true));
    }
    if (of_w) {
      if (!read_form(handle_of(dw), taps.dw) || (dbias && !read_row(handle_of(dbias), taps.dbias)))
        return false;
      taps.convolution = of_w;
      taps.last = of_w_last, taps.exchanged = transposed;
      taps.dw_last = !lies_as(taps.dw, dense(taps.dw, false)) && lies_as(taps.dw, dense(taps.dw, true)) &&
                     can_lay_dw_last(of_w);
    }
    StepCalls::of_process().add(std::move(call));
    return true;
  } catch (...) {
    return false;
  }
}

CONVTUNE_API void convtune_torch_drop(std::int64_t owner) {
  Table::of_process().drop(owner);
}
// All calls are planned and packed anew.
CONVTUNE_API void convtune_torch_clear(void) {
  forget_plans();
  for (const std::int64_t owner : Table::of_process().owners()) Table::of_process().drop(owner);
  StepCalls::of_process().clear();
}
CONVTUNE_API void convtune_torch_clear_steps(void) {
  StepCalls::of_process().clear();
}
// New references to functions of Python's, as python_call.h has them; null where there are none.
CONVTUNE_API void* convtune_torch_python_call(void) {
  return python_call();
}
CONVTUNE_API void* convtune_torch_python_eager(void* spell, void* levels) {
  return python_eager(spell, levels);
}
// torch.Tensor, torch.nn.Parameter and two tensors.
CONVTUNE_API void convtune_torch_learn_tensors(void* tensor, void* parameter, void* one, void* other) {
  if (has_python()) learn_tensors(tensor, parameter, one, other);
}
CONVTUNE_API void convtune_torch_remember_inference_mode(void) {
  remember_inference_mode();
}
CONVTUNE_API void* convtune_torch_python_bound(const convtune_convolution* convolution, std::int32_t device,
                                               bool transposed, void* otherwise) {
  return python_bound(convolution, device, transposed, otherwise);
}
CONVTUNE_API void* convtune_torch_python_watch(void* tensors, void* counters) {
  return python_watch(tensors, counters);
}
// A new reference to the Python object of the tensor at that address in C++; where there is such a function.
CONVTUNE_API void* convtune_torch_python_object(const void* tensor) {
  return python_object(tensor);
}
// Two tensors and their storages, by their addresses in C++. False where storages cannot be told from now on.
CONVTUNE_API bool convtune_torch_learn_storage(const void* one, const void* of_one, const void* other,
                                               const void* of_other) {
  learn_storage(handle_of(one), of_one, handle_of(other), of_other);
  return storage(handle_of(one)) == of_one;
}
// Returns how many calls are ready.
CONVTUNE_API std::int64_t convtune_torch_size(void) {
  return static_cast<std::int64_t>(Table::of_process().owners().size());
}
// Returns how many calls are ready that pack their weights.
CONVTUNE_API std::int64_t convtune_torch_step_size(void) {
  return StepCalls::of_process().size();
}
// Why Python's kernel fails, in this thread's call.
CONVTUNE_API void convtune_torch_fail(const char* why) {
  python_said = why;
}
// True where a float32 tensor (1, 2, 3, 4) at that address in C++, with its numbers at `data`, is read as
// such.
CONVTUNE_API bool convtune_torch_understands(const void* tensor, const void* data) {
  Form form;
  const auto handle = handle_of(tensor);
  return read_form(handle, form) && form.sizes == Sizes{1, 2, 1, 3, 4} && form.dtype == shim->float32 &&
         address(handle) == data;
}

}  // extern "C"
