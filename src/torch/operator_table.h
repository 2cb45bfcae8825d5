// Convolutions that are ready to run, by everything that they depend on: what the operator looks into at
// every call. It is filled where a call was planned and packed: by the Python package, or by preparing.cpp
// where there is none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork_gate.h"
#include "torch/running.h"

namespace convtune::torch {

// The arguments of the operator, borrowed.
struct Call {
  TensorHandle x = nullptr, weight = nullptr, bias = nullptr, residual = nullptr;  // the last two may be null
  std::string_view how;  // the operator's text: how.h
};

// A tensor whose change is noticed: another one, moved, or written to. Whoever watches keeps the storage, or
// a weak reference to it: else its address and that of the numbers may come again.
struct Watched {
  const void* identity = nullptr;
  const void* storage = nullptr;  // null: not looked at
  const void* data = nullptr;
  std::int64_t version = 0;

  static Watched of(TensorHandle tensor, std::int64_t version);
  bool holds_for(TensorHandle tensor) const;
};

struct Entry {
  // The key: with the forms of x and of the residual, and the stream, of `launch`.
  std::string how;
  Watched weight, bias;  // with no bias: nothing
  Sizes weight_sizes{};
  std::int32_t precision = kAnyPrecision;  // PyTorch's setting, where the answer depends on it
  Launch launch;
  // The life of the entry.
  std::int64_t owner = 0;    // who takes it out again: a number of the caller's
  std::vector<Tensor> kept;  // what lives as long as the entry
  std::shared_ptr<const convtune_convolution> own;
  mutable std::atomic<bool> used = false;

  static constexpr std::int32_t kAnyPrecision = -1;
};

// PyTorch's setting for products of float32 convolutions on a GPU, as its own number. `known` is false where
// this libtorch does not tell.
struct Precision {
  std::int32_t number = 0;
  bool known = false;
};
Precision float32_precision();

class Table {
 public:
  // The one of this process; never destroyed, since kernels run until its end.
  static Table& of_process();

  // The entry for that call, or null. `stream` is x's.
  std::shared_ptr<const Entry> find(const Call& call, const Form& x, void* stream);
  void add(std::shared_ptr<const Entry> entry);
  // Takes an owner's entry out, and returns when no call uses it any more. False where there was none.
  bool drop(std::int64_t owner);
  // The oldest entry that keeps its weight alive, does the same as `like`, and was never found: null where no
  // more than `spared` are so.
  std::int64_t unused_like(const Entry& like, std::size_t spared);
  // An entry that keeps its weight alive, and does not hold any more what `like` does now; 0 where there is
  // none.
  std::int64_t superseded_by(const Entry& like);
  bool holds(std::int64_t owner);
  std::vector<std::int64_t> owners();  // for all entries, in no order

 private:
  using Entries = std::vector<std::shared_ptr<const Entry>>;
  Mutex mutex_;
  std::unordered_map<const void*, Entries> of_weight_;       // by identity
  std::unordered_map<std::int64_t, const void*> weight_of_;  // by owner
};

}  // namespace convtune::torch
