// See onednn_wgrad.h.
#include "cpu/onednn/onednn_wgrad.h"

#include <utility>

#include "cpu/onednn/onednn_convolution.h"
#include "cpu/onednn/onednn_execution.h"

namespace convtune::cpu {
namespace {

struct WgradWorkspace {
  OnednnStream stream;
  OnednnMemory x, dy, dw, dbias;  // as the problem has them
  OnednnArguments convert_x, convert_dy, convolve, convert_dw;
};

class OnednnWgrad final : public Executable {
 public:
  OnednnWgrad(const ConvProblem& problem, OnednnPrimitiveDesc desc, int threads)
      : threads_(threads),
        desc_(std::move(desc)),
        x_desc_(onednn_input(problem)),
        dy_desc_(onednn_output(problem)),
        dw_desc_(onednn_weights(problem)),
        dbias_desc_(onednn_bias(problem)),
        gradient_(desc_),
        convert_x_(x_desc_, desc_.query(OnednnQuery::src)),
        convert_dy_(dy_desc_, desc_.query(OnednnQuery::diff_dst)),
        convert_dw_(desc_.query(OnednnQuery::diff_weights), dw_desc_) {}

  std::size_t packed_bytes() const override { return 1; }
  void pack(const void*, const void*, void*, Stream) const override {}

  void run(const Tensors& tensors, const void*, Stream) const override {
    const Execution scope(threads_);
    std::unique_ptr<WgradWorkspace> workspace = idle_.take([this] { return make_workspace(); });
    WgradWorkspace& w = *workspace;
    w.x.set(tensors.x);
    w.dy.set(tensors.dy);
    w.dw.set(tensors.dw);
    if (w.dbias) w.dbias.set(tensors.dbias);
    if (convert_x_) convert_x_.execute(w.stream, w.convert_x);
    if (convert_dy_) convert_dy_.execute(w.stream, w.convert_dy);
    gradient_.execute(w.stream, w.convolve);
    if (convert_dw_) convert_dw_.execute(w.stream, w.convert_dw);
    w.stream.wait();
    idle_.give_back(std::move(workspace));
  }

  // Nothing surrounds it as onednn_special.h does a convolution.
  bool keeps_special_numbers() const override { return false; }

 private:
  std::unique_ptr<WgradWorkspace> make_workspace() const {
    auto made = std::make_unique<WgradWorkspace>();
    made->x = OnednnMemory::of(x_desc_, nullptr);
    made->dy = OnednnMemory::of(dy_desc_, nullptr);
    made->dw = OnednnMemory::of(dw_desc_, nullptr);
    OnednnMemory x = made->x, dy = made->dy, dw = made->dw;
    if (convert_x_) {
      x = OnednnMemory::allocated(desc_.query(OnednnQuery::src));
      made->convert_x = convert_x_.arguments(made->x, x);
    }
    if (convert_dy_) {
      dy = OnednnMemory::allocated(desc_.query(OnednnQuery::diff_dst));
      made->convert_dy = convert_dy_.arguments(made->dy, dy);
    }
    if (convert_dw_) {
      dw = OnednnMemory::allocated(desc_.query(OnednnQuery::diff_weights));
      made->convert_dw = convert_dw_.arguments(dw, made->dw);
    }
    made->convolve = {
        {OnednnArgument::src, x}, {OnednnArgument::diff_dst, dy}, {OnednnArgument::diff_weights, dw}};
    if (dbias_desc_.bytes() > 0) {
      made->dbias = OnednnMemory::of(dbias_desc_, nullptr);
      made->convolve.emplace_back(OnednnArgument::diff_bias, made->dbias);
    }
    add_scratchpad(made->convolve, desc_);
    return made;
  }

  const int threads_;
  const OnednnPrimitiveDesc desc_;
  const OnednnDesc x_desc_, dy_desc_, dw_desc_, dbias_desc_;
  const OnednnPrimitive gradient_;
  const Conversion convert_x_, convert_dy_, convert_dw_;
  mutable Idle<WgradWorkspace> idle_;
};

}  // namespace

std::unique_ptr<Executable> onednn_wgrad_executable(const ConvProblem& problem, OnednnPrimitiveDesc desc,
                                                    int threads) {
  return std::make_unique<OnednnWgrad>(problem, std::move(desc), threads);
}

}  // namespace convtune::cpu
