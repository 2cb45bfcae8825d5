// See joined_frames.h.
#include "cpu/base/joined_frames.h"

#include <algorithm>
#include <utility>

#include "convtune/aligned.h"
#include "problem/rewrite.h"

namespace convtune::cpu {
namespace {

class JoiningFrames final : public Executable {
 public:
  JoiningFrames(const ConvProblem& problem, std::unique_ptr<Executable> of_joined)
      : problem_(problem), of_joined_(std::move(of_joined)) {}

  std::size_t packed_bytes() const override { return of_joined_->packed_bytes(); }
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    of_joined_->pack(w, bias, packed, stream);
  }
  bool rounds_sum() const override { return of_joined_->rounds_sum(); }
  void give_way() override { of_joined_->give_way(); }
  bool exact_on_integers() const override { return of_joined_->exact_on_integers(); }
  bool keeps_special_numbers() const override { return of_joined_->keeps_special_numbers(); }

  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    const FrameRuns runs = frame_runs(problem_);
    const std::int64_t frame = runs.frame * size_of(problem_.dtype.x);
    const std::int64_t before = problem_.cache * frame, own = problem_.d * frame;
    AlignedVector<unsigned char> whole(static_cast<std::size_t>(runs.count * (before + own)));
    const auto* const cache = static_cast<const unsigned char*>(tensors.cache);
    const auto* const x = static_cast<const unsigned char*>(tensors.x);
    for (std::int64_t run = 0; run < runs.count; ++run) {
      unsigned char* const to = whole.data() + run * (before + own);
      std::copy_n(cache + run * before, before, to);
      std::copy_n(x + run * own, own, to + before);
    }
    Tensors joined = tensors;
    joined.x = whole.data(), joined.cache = nullptr;
    of_joined_->run(joined, packed, stream);
  }

 private:
  const ConvProblem problem_;
  const std::unique_ptr<Executable> of_joined_;
};

}  // namespace

std::unique_ptr<Executable> joining_frames(const ConvProblem& problem,
                                           std::unique_ptr<Executable> of_joined) {
  if (problem.cache == 0) return of_joined;
  return std::make_unique<JoiningFrames>(problem, std::move(of_joined));
}

}  // namespace convtune::cpu
