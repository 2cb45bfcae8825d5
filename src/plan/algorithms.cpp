// THE table of algorithms. The order is the order in which an unmeasured problem is offered round.
#include "plan/algorithms.h"

#include "base/fork_gate.h"
#include "base/quoted.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_api.h"
#include "cpu/onednn/onednn_sums.h"
#include "cpu/reference/reference.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/gradients.h"
#include "cuda/backend/cuda.h"
#include "cuda/cudnn/cudnn.h"

namespace convtune {

namespace {

const std::vector<const Algorithm*>& cpu_algorithms() {
  return once([] {
    std::vector<const Algorithm*> table = cpu::own_algorithms();
    table.insert(table.end(), {cpu::onednn_sums(), cpu::onednn(), &cpu::reference()});
    std::erase(table, nullptr);  // oneDNN, in a build without it
    return table;
  });
}

const std::vector<const Algorithm*>& cuda_algorithms() {
  return once([] {
    // A row an algorithm.
    // clang-format off
    std::vector<const Algorithm*> table = {
        &cuda::direct_fma_sm80(),
        &cuda::direct_depthwise_half_sm90(),
        &cuda::direct_depthwise_half(),
        &cuda::direct_depthwise_sm80(),
        &cuda::direct_depthwise_3d_sm80(),
        &cuda::direct_patch_sm90(),
        &cuda::direct_body_sm90(),
        &cuda::direct_stem_sm90(),
        &cuda::direct_stem_sm80(),
        &cuda::direct_stem_half(),
        &cuda::direct_body_half_sm90(),
        &cuda::direct_body_half_nchw_sm90(),
        &cuda::direct_grouped_half(),
        &cuda::direct_few_half(),
        &cuda::implicit_gemm_half_sm80(),
        &cuda::implicit_gemm_half_sm90(),
        &cuda::implicit_gemm_sm90(),
        &cuda::implicit_gemm_sm80(),
        &cuda::depthwise_data_gradient_sm80(),
        &cuda::weight_gradient_half_sm90(),
        &cuda::weight_gradient_half_nchw_sm90(),
        &cuda::depthwise_weight_gradient_half_sm90(),
        &cuda::depthwise_weight_gradient_half(),
        &cuda::depthwise_weight_gradient_sm80(),
        &cuda::weight_gradient_sm80(),
        &cuda::weight_gradient_planes_sm80(),
        &cuda::weight_gradient_tf32_sm90(),
        &cuda::weight_gradient_tf32_sm80(),
        cuda::cudnn(),
        &cuda::general_sm80(),
    };
    // clang-format on
    std::erase(table, nullptr);  // cuDNN, where it is not found
    return table;
  });
}

}  // namespace

// Each table is made when it is first asked for: a vendor's library takes milliseconds to load.
const std::vector<const Algorithm*>& algorithms(Device::Kind kind) {
  return kind == Device::Kind::cpu ? cpu_algorithms() : cuda_algorithms();
}

const Algorithm& find_algorithm(Device::Kind kind, std::string_view name) {
  std::string known;
  for (const Algorithm* algorithm : algorithms(kind)) {
    if (algorithm->name() == name) return *algorithm;
    known += (known.empty() ? "" : ", ") + std::string(algorithm->name());
  }
  throw Error(ErrorKind::invalid_argument, "unknown algorithm '" + std::string(name) +
                                               "'; known are: " + (known.empty() ? "none" : known));
}

std::string vendor_library(Device::Kind kind) {
  for (const Algorithm* algorithm : algorithms(kind))
    if (algorithm->vendor()) return algorithm->library();
  return {};
}

std::string unloadable_vendor_library(Device::Kind kind) {
  if (kind == Device::Kind::cpu) return cpu::onednn_is_unloadable() ? "oneDNN" : "";
  return cuda::cudnn_is_unloadable() ? "cuDNN" : "";
}

Backend& backend(Device device) {
  device_info(device);  // throws where there is no such device
  return device.kind == Device::Kind::cuda ? cuda::backend(device) : cpu::backend();
}

}  // namespace convtune
