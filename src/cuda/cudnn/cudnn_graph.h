// One convolution as cuDNN is asked for it: an operation graph (convolution, then bias, then ReLU, fused),
// the engine configurations that its heuristics offer for it, and the plans made of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "convtune/problem.h"
#include "cuda/cudnn/cudnn_api.h"

namespace convtune::cuda {

// cuDNN on one device. A handle serves one thread at a time: whoever calls cuDNN holds the mutex.
struct CudnnSession {
  std::mutex mutex;
  CudnnHandle handle = nullptr;
};
// Made at the first call and kept. Throws Error where cuDNN or the device is not to be had.
CudnnSession& cudnn_session(int device);

// The tensors of the graph, by the numbers that a variant pack names them with.
enum class CudnnTensor : std::int64_t { x = 1, w = 2, bias = 3, y = 4 };

constexpr std::int64_t kCudnnAlignment = 16;              // of every pointer, in bytes
constexpr std::int64_t kCudnnWorkspaceBytes = 1LL << 30;  // the most that a plan may ask for

// cuDNN fuses ReLU behind a bias only: a problem that has ReLU and no bias is given one of zeros.
inline bool has_cudnn_bias(const Conv2dProblem& problem) {
  return problem.bias || problem.activation == Activation::relu;
}

struct CudnnPlan {
  CudnnDescriptor descriptor;
  std::int64_t workspace_bytes = 0;
};

// What cuDNN offers for a problem with all its tensors (weights too) channels-last, or not: the engine
// configurations of heuristic mode A, then B, then the fallback, each once. The same cuDNN on the same kind
// of device lists them in the same order every time, so that a position names one of them. Making one and
// planning call cuDNN: hold the session's mutex.
class CudnnOffers {
 public:
  CudnnOffers(const Conv2dProblem& problem, bool channels_last, CudnnSession& session);

  std::size_t size() const { return offers_.size(); }
  std::int64_t engine(std::size_t position) const { return offers_[position].engine; }

  // The plan of an offer, made at the first call, or why there is none: the engine computes with less
  // precision than the problem allows, is known to answer wrongly, wants too much workspace, or cannot be
  // built after all.
  struct Answer {
    Support support;
    std::shared_ptr<const CudnnPlan> plan = nullptr;  // where supported
  };
  const Answer& plan(std::size_t position);

 private:
  struct Offer {
    std::int64_t engine = 0;
    CudnnDescriptor config;
    std::vector<int> notes, behavior;             // CudnnNote; cudnnBackendBehaviorNote_t
    std::optional<Answer> answer = std::nullopt;  // where it was asked for
  };
  void add(const CudnnDescriptor& graph, CudnnHeuristic mode, std::vector<std::vector<std::int64_t>>& seen);
  Answer build(const Offer& offer) const;

  Conv2dProblem problem_;
  CudnnSession& session_;
  std::vector<Offer> offers_;
};

}  // namespace convtune::cuda
