#include "torch/operator_table.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/fork_gate.h"

namespace convtune::torch {

Watched Watched::of(TensorHandle tensor, std::int64_t version) {
  return {torch::identity(tensor), torch::storage(tensor), address(tensor), version};
}

bool Watched::holds_for(TensorHandle tensor) const {
  return identity == torch::identity(tensor) && (!storage || storage == torch::storage(tensor)) &&
         data == address(tensor) && version == torch::version(tensor);
}

Precision float32_precision() {
  constexpr std::int32_t kCuda = 1, kConvolution = 1;  // values of at::Float32Backend and at::Float32Op
  if (!shim->global_context || !shim->float32_precision) return {};
  return {shim->float32_precision(shim->global_context(), kCuda, kConvolution), true};
}

Table& Table::of_process() {
  return *once([] { return new Table; });
}

std::shared_ptr<const Entry> Table::find(const Call& call, const Form& x, void* stream) {
  Form residual;
  if (call.residual && !read_form(call.residual, residual)) return nullptr;
  const void* const bias = call.bias ? identity(call.bias) : nullptr;
  const auto fits = [&](const std::shared_ptr<const Entry>& entry) {
    return entry->bias.identity == bias && entry->launch.stream == stream && entry->launch.x == x &&
           entry->launch.residual == residual && entry->how == call.how &&
           (entry->precision == Entry::kAnyPrecision || entry->precision == float32_precision().number);
  };
  std::shared_ptr<const Entry> found;
  {
    const std::lock_guard guard(mutex_);
    const auto of = of_weight_.find(identity(call.weight));
    if (of == of_weight_.end()) return nullptr;
    const auto at = std::find_if(of->second.rbegin(), of->second.rend(), fits);  // the newest
    if (at == of->second.rend()) return nullptr;
    found = *at;
  }
  const bool holds = found->weight_sizes == read_sizes(call.weight) && found->weight.holds_for(call.weight) &&
                     (!call.bias || found->bias.holds_for(call.bias));
  if (!holds) return nullptr;
  if (!found->used) found->used = true;
  return found;
}

void Table::add(std::shared_ptr<const Entry> entry) {
  const std::lock_guard guard(mutex_);
  weight_of_[entry->owner] = entry->weight.identity;
  of_weight_[entry->weight.identity].push_back(std::move(entry));
}

bool Table::drop(std::int64_t owner) {
  std::shared_ptr<const Entry> taken;
  {
    const std::lock_guard guard(mutex_);
    const auto weight = weight_of_.find(owner);
    if (weight == weight_of_.end()) return false;
    const auto of = of_weight_.find(weight->second);
    const auto at = std::find_if(of->second.begin(), of->second.end(),
                                 [&](const auto& entry) { return entry->owner == owner; });
    taken = std::move(*at);
    of->second.erase(at);
    if (of->second.empty()) of_weight_.erase(of);
    weight_of_.erase(weight);
  }
  while (taken.use_count() > 1) std::this_thread::yield();  // a call of another thread, which ends by itself
  return true;
}

std::int64_t Table::unused_like(const Entry& like, std::size_t spared) {
  const std::lock_guard guard(mutex_);
  std::int64_t oldest = 0;
  std::size_t unused = 0;
  for (const auto& [weight, entries] : of_weight_)
    for (const auto& entry : entries)
      if (entry->own && !entry->used && entry->how == like.how && entry->launch.x == like.launch.x &&
          entry->weight_sizes == like.weight_sizes) {
        ++unused;
        oldest = oldest == 0 ? entry->owner : std::max(oldest, entry->owner);  // they count downwards
      }
  return unused > spared ? oldest : 0;
}

std::int64_t Table::superseded_by(const Entry& like) {
  const std::lock_guard guard(mutex_);
  const auto of = of_weight_.find(like.weight.identity);
  if (of == of_weight_.end()) return 0;
  for (const auto& entry : of->second)
    if (entry->own && entry->owner != like.owner && entry->how == like.how &&
        entry->bias.identity == like.bias.identity && entry->launch.stream == like.launch.stream &&
        entry->launch.x == like.launch.x && entry->launch.residual == like.launch.residual &&
        entry->precision == like.precision)
      return entry->owner;
  return 0;
}

bool Table::holds(std::int64_t owner) {
  const std::lock_guard guard(mutex_);
  return weight_of_.contains(owner);
}

std::vector<std::int64_t> Table::owners() {
  std::vector<std::int64_t> found;
  const std::lock_guard guard(mutex_);
  for (const auto& [owner, weight] : weight_of_) found.push_back(owner);
  return found;
}

}  // namespace convtune::torch
