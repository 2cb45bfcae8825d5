// oneDNN's objects, owned: how tensors lie, tensors, what runs. The same for versions 2 and 3. Every function
// throws as check_onednn() does.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "convtune/problem.h"
#include "cpu/onednn/onednn_api.h"

namespace convtune::cpu {

using OnednnDims = std::vector<std::int64_t>;
using OnednnHandle = std::shared_ptr<void>;  // one of oneDNN's objects, shared by copies

// How a tensor lies. None: of no size, and equal to no other.
class OnednnDesc {
 public:
  OnednnDesc() = default;
  // By strides, or where there are none in the order that oneDNN chooses.
  OnednnDesc(const OnednnDims& dims, DType type, const OnednnDims& strides);
  // One that `owner` holds; none where `desc` is null.
  OnednnDesc(const OnednnHandle& owner, OnednnDescPointer desc);

  OnednnDescPointer get() const { return desc_.get(); }
  std::size_t bytes() const { return desc_ ? onednn_functions().dnnl_memory_desc_get_size(get()) : 0; }
  bool operator==(const OnednnDesc& other) const {
    return desc_ && other.desc_ && onednn_functions().dnnl_memory_desc_equal(get(), other.get()) != 0;
  }

 private:
  std::shared_ptr<const void> desc_;
};

// A tensor in memory of oneDNN's own, or of ours.
class OnednnMemory {
 public:
  OnednnMemory() = default;
  static OnednnMemory allocated(const OnednnDesc&);
  static OnednnMemory of(const OnednnDesc&, const void* data);  // null: set() follows before it is used

  explicit operator bool() const { return static_cast<bool>(memory_); }
  OnednnObject get() const { return memory_.get(); }
  void set(const void* data) const;

 private:
  OnednnMemory(const OnednnDesc&, void* handle);
  OnednnHandle memory_;
};

// Attributes of a convolution: what it does beside multiplying. Scratch memory comes from the caller, so that
// one primitive may run on several threads at once; products stay fp32 whatever the environment says.
class OnednnAttributes {
 public:
  OnednnAttributes();
  void add(const OnednnDesc& residual);  // first, and once
  void apply(Activation activation, float alpha, float beta);
  OnednnObject get() const { return attributes_.get(); }

 private:
  OnednnHandle post_ops_, attributes_;
};

// A primitive that will run: its implementation is chosen, its code not yet made.
class OnednnPrimitiveDesc {
 public:
  OnednnPrimitiveDesc() = default;
  explicit OnednnPrimitiveDesc(OnednnObject made);
  OnednnObject get() const { return desc_.get(); }
  OnednnDesc query(OnednnQuery what) const;

 private:
  OnednnHandle desc_;
};

struct OnednnGeometry {
  OnednnDims strides, dilations /* from 0 */, pad_before, pad_after;
};

// Direct convolution only: Winograd would answer with larger errors than fp32 fused multiply-adds make.
// `bias`: or none. `transposed`: a deconvolution, direct too.
OnednnPrimitiveDesc onednn_convolution(const OnednnDesc& x, const OnednnDesc& w, const OnednnDesc& bias,
                                       const OnednnDesc& y, const OnednnGeometry&, const OnednnAttributes&,
                                       bool transposed);
// The gradient of weights and bias; `forward`: the convolution that it is of, whose tensors lie as its do.
OnednnPrimitiveDesc onednn_wgrad(const OnednnDesc& x, const OnednnDesc& dw, const OnednnDesc& dbias,
                                 const OnednnDesc& dy, const OnednnGeometry&,
                                 const OnednnPrimitiveDesc& forward);
OnednnPrimitiveDesc onednn_reorder(const OnednnDesc& from, const OnednnDesc& to);

using OnednnArguments = std::vector<std::pair<OnednnArgument, OnednnMemory>>;

class OnednnStream {
 public:
  OnednnStream();
  OnednnObject get() const { return stream_.get(); }
  void wait() const;

 private:
  OnednnHandle stream_;
};

class OnednnPrimitive {
 public:
  OnednnPrimitive() = default;
  explicit OnednnPrimitive(const OnednnPrimitiveDesc&);
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  void execute(const OnednnStream&, const OnednnArguments&) const;

 private:
  OnednnHandle primitive_;
};

}  // namespace convtune::cpu
