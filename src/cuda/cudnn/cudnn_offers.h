// The engine configurations that cuDNN's heuristics offer for a problem, and the plans made of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/cudnn/cudnn_graph.h"

namespace convtune::cuda {

constexpr std::int64_t kCudnnWorkspaceBytes = 1LL << 30;  // the most that a plan may ask for

// One execution plan, and what its variant pack names.
struct CudnnStep {
  CudnnDescriptor descriptor;
  std::vector<CudnnTensor> tensors;
  std::int64_t workspace_bytes = 0;
};

// Lists the steps of a run in order: the convolution, then the operations that were not fused with it.
struct CudnnPlan {
  std::vector<std::shared_ptr<const CudnnStep>> steps;
  std::int64_t workspace_bytes() const;  // for the step that wants the most
};

// Holds cuDNN's offers for a problem's convolution graph: the engine configurations of heuristic mode
// A, then B, then the fallback, each once. The same cuDNN on the same kind of device lists them in the same
// order every time, so that a position names one of them. What follows an unfused convolution is planned by
// the first offer that will do: all are of one engine, bound by memory. Making one and planning call cuDNN:
// hold the session's mutex.
class CudnnOffers {
 public:
  CudnnOffers(const ConvProblem& problem, const CudnnForm& form, CudnnSession& session);

  std::size_t size() const { return offers_.size(); }
  std::int64_t engine(std::size_t position) const { return offers_[position].engine; }

  // The plan of an offer, made at the first call, or why there is none: the engine computes with less
  // precision than the problem allows, is known to answer wrongly, wants too much workspace, or cannot be
  // built after all.
  struct Answer {
    Support support;
    std::shared_ptr<const CudnnPlan> plan = nullptr;  // if supported
  };
  const Answer& plan(std::size_t position);
  // Tells whether it is worth trying: plan()'s answer where that is cheap. An engine that is compiled at run
  // time takes seconds to plan; it is believed until it is built.
  Support promises(std::size_t position);

 private:
  struct Offer {
    std::int64_t engine = 0;
    CudnnDescriptor config;
    std::vector<int> notes, behavior;             // CudnnNote; cudnnBackendBehaviorNote_t
    std::optional<Answer> answer = std::nullopt;  // where it was asked for
  };
  struct Planned {
    Support support;
    std::shared_ptr<const CudnnStep> step = nullptr;
  };
  std::vector<Offer> offers_for(const CudnnGraph& graph) const;
  Planned plan_step(const CudnnGraph& graph, const Offer& offer) const;
  const Answer& epilogue();
  Support allowed(const Offer& offer) const;
  Answer build(const Offer& offer);

  ConvProblem problem_;
  CudnnForm form_;
  CudnnSession& session_;
  CudnnGraph graph_;
  std::vector<Offer> offers_;
  std::optional<Answer> epilogue_;
};

}  // namespace convtune::cuda
