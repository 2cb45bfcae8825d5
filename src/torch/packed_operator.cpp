// convtune::conv2d_packed in C++: what a node of a compiled graph costs the host. A client of convtune/c.h
// and of PyTorch's stable ABI, so that one binary serves PyTorch 2.10 and what follows; PyTorch gives headers
// only. python/convtune/torch_packed.py defines the operator, opens this library, and has the same in Python
// where that fails.
#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convtune/c.h"

namespace {

using torch::headeronly::MemoryFormat;
using torch::stable::Tensor;
using Four = std::array<int64_t, 4>;

void check(convtune_status status) {
  STD_TORCH_CHECK(status == CONVTUNE_OK, convtune_error_text());
}

// Of a tensor of these sizes that lies as the format says.
Four strides_of(const Four& sizes, MemoryFormat format) {
  const auto [n, c, h, w] = sizes;
  if (format == MemoryFormat::ChannelsLast) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

struct Planned {
  convtune_convolution* convolution = nullptr;  // never freed: a CUDA graph may have recorded it
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  Four x{}, y{};
  MemoryFormat own{}, wanted{};  // in which it runs, and in which y is to lie
  std::size_t packed_bytes = 0;
};

MemoryFormat format_of(int32_t layout) {
  return layout == CONVTUNE_NHWC ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
}

// `plan`: fingerprint of the device, problem, layout, algorithm and config, by tabs (torch_run.choice_line).
std::unique_ptr<Planned> make(const std::string& plan, int32_t index) {
  std::vector<std::string> fields(1);
  for (const char letter : plan)
    if (letter == '\t')
      fields.emplace_back();
    else
      fields.back() += letter;
  STD_TORCH_CHECK(fields.size() == 5, "'", plan, "' is no plan of convtune's");
  auto made = std::make_unique<Planned>();
  convtune_problem& problem = made->problem;
  check(convtune_problem_parse(fields[1].c_str(), &problem));
  made->wanted = format_of(problem.layout);
  problem.layout = fields[2] == "nhwc" ? CONVTUNE_NHWC : CONVTUNE_NCHW;
  made->own = format_of(problem.layout);
  made->x = {problem.n, problem.c, problem.h, problem.w};
  int64_t p = 0, q = 0;
  check(convtune_output_size(&problem, &p, &q));
  made->y = {problem.n, problem.k, p, q};
  const std::string device = index < 0 ? "cpu" : "cuda:" + std::to_string(index);
  check(convtune_plan(&problem, device.c_str(), fields[3].c_str(), fields[4].c_str(), &made->convolution));
  convtune_text facts = {nullptr, 0};
  check(convtune_plan_json(made->convolution, &facts));
  const bool same = std::string_view(facts.data, facts.size).find('"' + fields[0] + '"') != std::string::npos;
  convtune_text_free(&facts);
  STD_TORCH_CHECK(same, device, " is another kind of device than the graph was compiled for, '", fields[0],
                  "'");
  made->packed_bytes = convtune_packed_bytes(made->convolution);
  return made;
}

const Planned& planned(const std::string& plan, int32_t index) {
  static std::shared_mutex mutex;
  static std::map<std::pair<std::string, int32_t>, std::unique_ptr<Planned>> known;
  const std::pair key(plan, index);
  {
    const std::shared_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return *found->second;
  }
  const std::unique_lock lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return *found->second;
  return *known.emplace(key, make(plan, index)).first->second;
}

void* current_stream(int32_t index) {
  using Ask = AOTITorchError (*)(int32_t, void**);
  static const auto ask = reinterpret_cast<Ask>(
      ::dlsym(::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD), "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  STD_TORCH_CHECK(ask != nullptr && ask(index, &stream) == 0, "PyTorch has no stream of cuda:", index);
  return stream;
}

bool lies(const Tensor& tensor, const Four& sizes, MemoryFormat format) {
  const Four strides = strides_of(sizes, format);
  for (int64_t i = 0; i < 4; ++i)
    if (sizes[i] != 1 && tensor.stride(i) != strides[i]) return false;
  return true;
}

bool has_sizes(const Tensor& tensor, const Four& sizes) {
  if (tensor.dim() != 4) return false;
  for (int64_t i = 0; i < 4; ++i)
    if (tensor.size(i) != sizes[i]) return false;
  return true;
}

// Itself, or a copy that a kernel can read.
Tensor readable(const Tensor& tensor, const Four& sizes, MemoryFormat format) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 4 == 0;
  if (aligned && lies(tensor, sizes, format)) return tensor;
  return torch::stable::contiguous(aligned ? tensor : torch::stable::clone(tensor), format);
}

Tensor conv2d_packed(Tensor x, Tensor packed, std::optional<Tensor> residual, std::string plan) {
  const bool on_gpu = x.is_cuda();
  const int32_t index = on_gpu ? x.get_device_index() : -1;
  const Planned& of = planned(plan, index);
  STD_TORCH_CHECK(has_sizes(x, of.x) && packed.numel() >= static_cast<int64_t>(of.packed_bytes),
                  "x or the packed weights are not of the plan '", plan, "'");
  STD_TORCH_CHECK(
      residual.has_value() == (of.problem.residual != 0) && (!residual || has_sizes(*residual, of.y)),
      "residual is not of the plan '", plan, "'");
  const Tensor read = readable(x, of.x, of.own);
  int32_t dtype = 0;
  STD_TORCH_CHECK(aoti_torch_get_dtype(x.get(), &dtype) == 0, "x has no type");
  const int32_t kind = on_gpu ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
  const Four strides = strides_of(of.y, of.own);
  AtenTensorHandle handle = nullptr;
  STD_TORCH_CHECK(
      aoti_torch_empty_strided(4, of.y.data(), strides.data(), dtype, kind, on_gpu ? index : 0, &handle) == 0,
      "no memory for y");
  Tensor y(handle);
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  tensors.x = read.data_ptr(), tensors.y = y.data_ptr();
  const Tensor added = residual ? readable(*residual, of.y, of.own) : y;  // kept until the run is queued
  if (residual) tensors.residual = added.data_ptr();
  check(convtune_run_tensors(of.convolution, &tensors, packed.data_ptr(),
                             on_gpu ? current_stream(index) : nullptr));
  return of.own == of.wanted ? y : torch::stable::contiguous(y, of.wanted);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(convtune, CPU, library) {
  library.impl("conv2d_packed", TORCH_BOX(&conv2d_packed));
}
STABLE_TORCH_LIBRARY_IMPL(convtune, CUDA, library) {
  library.impl("conv2d_packed", TORCH_BOX(&conv2d_packed));
}
