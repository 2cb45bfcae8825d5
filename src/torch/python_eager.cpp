// Questions of an eager call before it goes past PyTorch's dispatcher, asked in C++: docs/decisions/0075.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

#include "torch/python.h"
#include "torch/python_call.h"
#include "torch/ready.h"

namespace convtune::torch {

namespace {

// The arguments of conv2d_if_ready: three tensors, words, and a fourth tensor.
enum : std::size_t { kX, kWeight, kBias, kStride, kResidual = 10, kArguments };
constexpr std::size_t kWords = kResidual - kStride;

// The operator's text for a call's words, from stride on. Known by identity: whoever calls often has
// the same objects. They are kept, and hashable, so they stay what they were.
struct Spelled {
  std::array<Object*, kWords> words{};
  Object* text = nullptr;
};

struct Eager {
  Object *spell, *levels, *level;  // Python's function, the variables of torch.autograd.forward_ad, a name
  std::array<Spelled, 1024> spelled{};
};

// The dispatch keys of this thread that were added to those that are on and off by default, as two words.
// Modes, transforms, tracing and autocast are among them; inference mode is, too, and is no obstacle.
using Keys = std::array<std::uint64_t, 2>;
Keys keys_of_inference{};

bool read_keys(Keys& keys) {
  thread_local const auto* const here = static_cast<const std::uint64_t*>([]() -> void* {
    void* const c10 = ::dlopen("libc10.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    return c10 ? ::dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE") : nullptr;
  }());
  if (here) std::copy_n(here, keys.size(), keys.begin());
  return here != nullptr;
}

// True where nothing is set in this thread by which somebody could watch a call or change what it does. Where
// this libtorch does not tell: no.
bool nobody_watches(const Eager& eager) {
  Keys keys{};
  if (!shim->has_callbacks || !shim->function_modes || !read_keys(keys)) return false;
  if (keys != Keys{} && keys != keys_of_inference) return false;
  if (shim->has_callbacks() || shim->function_modes() != 0) return false;
  Object* const level = python.value(eager.levels, eager.level);
  return level && python.integer(level) < 0;
}

// Borrowed, as long as Python's lock is held; null where Python does not say: a list among the words, or
// padding in words.
Object* spelled(Eager& eager, Object* const* words) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < kWords; ++i) at = at * 31 + reinterpret_cast<std::uintptr_t>(words[i]) / 16;
  Spelled& found = eager.spelled[(at ^ at >> 10) % eager.spelled.size()];
  if (std::equal(found.words.begin(), found.words.end(), words)) return found.text;
  Object* const text =
      python.call(eager.spell, words[0], words[1], words[2], words[3], words[4], words[5], words[6], nullptr);
  if (!text || text == python.none) {
    python.forget_error();
    if (text) python.drop(text);
    return nullptr;
  }
  const Spelled old = found;  // another thread may have been here
  std::for_each(words, words + kWords, python.take);
  std::copy_n(words, kWords, found.words.begin());
  found.text = text;
  if (old.text) {
    std::for_each(old.words.begin(), old.words.end(), python.drop);
    python.drop(old.text);
  }
  return found.text;
}

Tensor answer(Eager& eager, Object* const* arguments) {
  if (!nobody_watches(eager)) return {};
  const bool records = shim->records_gradients();
  std::array<const void*, 4> tensors{};  // an at::Tensor is one address
  std::array<TensorHandle, 4> handles{};
  constexpr std::array<std::size_t, 4> kTensors{kX, kWeight, kBias, kResidual};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Object* const object = arguments[kTensors[i]];
    if (object == python.none && i >= kBias) continue;
    if (!is_plain(object) || !read_tensor(object, tensors[i])) return {};
    handles[i] = reinterpret_cast<TensorHandle>(&tensors[i]);
    const bool is_image = i == kX || i == 3;  // negated weights are packed so
    if ((records && shim->requires_grad(tensors[i])) || (is_image && shim->is_neg(handles[i]))) return {};
  }
  Object* const text = spelled(eager, arguments + kStride);
  std::ptrdiff_t size = 0;
  const char* const how = text ? python.utf8(text, &size) : nullptr;
  if (!how) return {};
  Tensor y;
  python.take(text);
  void* const state = python.let_others_run();
  try {
    y = run_if_ready({handles[0], handles[1], handles[2], handles[3], {how, static_cast<std::size_t>(size)}});
  } catch (const std::exception&) {  // the long way fails, too, and says it in Python's words
  }
  python.run_again(state);
  python.drop(text);
  return y;
}

Object* call(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  auto& eager = *static_cast<Eager*>(python.pointer(self));
  if (count == kArguments)
    if (const Tensor y = answer(eager, arguments)) return object_of(y.get());
  return another(python.none);
}

}  // namespace

void remember_inference_mode() {
  Keys keys{};
  if (!read_keys(keys)) return;
  for (std::size_t i = 0; i < keys.size(); ++i) keys_of_inference[i] ^= keys[i];
}

void* python_eager(void* spell, void* levels) {
  static Method method{"conv2d_if_ready", reinterpret_cast<void (*)()>(call), kFastCall, nullptr};
  if (!has_python() || !shim->records_gradients || !shim->requires_grad || !shim->is_neg) return nullptr;
  Object* const level = python.text("_current_level");
  Object* const self =
      python.number(new Eager{another(spell), another(levels), level});  // as long as the process
  Object* const made = python.function_of(&method, self, nullptr);
  python.drop(self);
  return made;
}

}  // namespace convtune::torch
