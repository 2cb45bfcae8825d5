// See frame_images.h.
#include "cpu/launch/frame_images.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "cpu/base/parallel.h"
#include "cpu/reference/padding_repair.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

bool has_frame_images(const ConvProblem& a) {
  return a.direction == Direction::forward && a.has_depth() && a.cache == 0 &&
         product_of(a.n, a.z(), a.c, a.t, a.h, a.w) < kTooMany;
}

// Tells whether the channels of a volume and of its frames are one row of planes.
bool lies_as_images(const ConvProblem& a) {
  return a.layout == Layout::nchw && a.pad_front == 0 && a.pad_back == 0 && a.d == a.t &&
         (a.dilation_d == 1 || a.t == 1);
}

// The outputs of an image lie together.
bool has_whole_outputs(const ConvProblem& a) {
  return a.layout == Layout::nhwc || a.z() == 1;
}

int64_t image_bytes(const ConvProblem& a) {
  return product_of(a.c, a.t, a.h, a.w, size_of(a.dtype.x));
}
int64_t image_output_bytes(const ConvProblem& a) {
  return has_whole_outputs(a) ? 0 : product_of(a.k, a.p(), a.q(), size_of(a.dtype.y));
}

class FrameImages final : public Executable {
 public:
  FrameImages(const ConvProblem& problem, const MakeOfImages& make, int threads)
      : problem_(problem), images_(problem.n * problem.z()), threads_(threads) {
    constexpr int64_t kEvenly = 4;  // images a thread from which on no thread waits long
    apart_ = images_ % threads == 0 || images_ >= kEvenly * threads;
    take_frame_images(problem, memory_);
    of_image_ = make(built_images(problem), apart_ ? 1 : threads);
    weights_ = (of_image_->packed_bytes() + 63) / 64 * 64;
  }

  std::size_t packed_bytes() const override {
    const int64_t floats = repairs() ? problem_.weight_elements() + problem_.k + 1 : 0;
    return weights_ + static_cast<std::size_t>(floats) * sizeof(float);
  }

  // The images' weights, and where frames are padded, those and the bias as floats and whether one of them is
  // not finite.
  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    const ConvProblem& a = problem_;
    std::vector<unsigned char> ordered;
    if (a.layout == Layout::nhwc && a.t > 1) {
      const int64_t channels = a.c / a.groups, taps = a.r * a.s, element = size_of(a.dtype.w);
      ordered.resize(static_cast<std::size_t>(a.weight_elements() * element));
      for (int64_t to = 0; to < a.k * a.t * channels; ++to) {
        const int64_t c = to % channels, t = to / channels % a.t, k = to / channels / a.t;
        std::memcpy(ordered.data() + to * taps * element,
                    static_cast<const unsigned char*>(w) + ((k * channels + c) * a.t + t) * taps * element,
                    static_cast<std::size_t>(taps * element));
      }
    }
    of_image_->pack(ordered.empty() ? w : ordered.data(), bias, packed, stream);
    if (!repairs()) return;
    float* const floats = floats_of(packed);
    bool finite = true;
    for (int64_t i = 0; i < a.weight_elements(); ++i) {
      floats[i] = load(a.dtype.w, w, i);
      finite = finite && std::isfinite(floats[i]);
    }
    float* const biases = floats + a.weight_elements();
    for (int64_t k = 0; k < a.k; ++k) biases[k] = bias ? load(a.dtype.bias, bias, k) : 0;
    biases[a.k] = finite ? 0 : 1;
  }

  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    const ConvProblem& a = problem_;
    const float* const floats = repairs() ? floats_of(const_cast<void*>(packed)) : nullptr;
    const bool repaired = floats && floats[a.weight_elements() + a.k] != 0;
    // y may be the residual, which is read before it is written.
    std::vector<float> residual;
    if (repaired && a.residual) residual = to_floats(a.dtype.y, tensors.residual, a.output_elements());
    if (apart_)
      parallel_tasks(threads_, images_, [&](TaskQueue& tasks) {
        for (int64_t image = 0; tasks.next(image);) run_image(image, tensors, packed, stream);
      });
    else
      for (int64_t image = 0; image < images_; ++image) run_image(image, tensors, packed, stream);
    if (!repaired) return;
    const std::vector<float> x = to_floats(a.dtype.x, tensors.x, a.input_elements());
    repair_padded_outputs(
        a, {.x = x.data(), .w = floats, .bias = floats + a.weight_elements(), .residual = residual.data()},
        tensors.y);
  }

  bool rounds_sum() const override { return of_image_->rounds_sum(); }
  bool exact_on_integers() const override { return of_image_->exact_on_integers(); }
  bool keeps_special_numbers() const override { return of_image_->keeps_special_numbers(); }

 private:
  bool repairs() const { return problem_.pad_front > 0 || problem_.pad_back > 0; }
  float* floats_of(void* packed) const {
    return reinterpret_cast<float*>(static_cast<unsigned char*>(packed) + weights_);
  }

  void run_image(int64_t image, const Tensors& tensors, const void* packed, Stream stream) const {
    const ConvProblem& a = problem_;
    const int64_t whole = a.k * a.p() * a.q() * size_of(a.dtype.y),
                  bytes = a.p() * a.q() * size_of(a.dtype.y);
    thread_local Scratch scratch;
    auto* const gathered = reinterpret_cast<unsigned char*>(scratch.reserve(memory_));
    gather(image, static_cast<const unsigned char*>(tensors.x), gathered);
    auto* const y = static_cast<unsigned char*>(tensors.y);
    const auto* const residual = static_cast<const unsigned char*>(tensors.residual);
    Tensors of_image{.x = gathered};
    if (has_whole_outputs(a)) {
      of_image.y = y + image * whole;
      if (a.residual) of_image.residual = residual + image * whole;
      return of_image_->run(of_image, packed, stream);
    }
    unsigned char* const outputs = gathered + round_up(image_bytes(a), kCacheLineBytes);
    of_image.y = outputs;
    const int64_t n = image / a.z(), z = image % a.z();
    const auto plane = [&](int64_t k) { return ((n * a.k + k) * a.z() + z) * bytes; };
    if (a.residual) {
      for_planes(a.k, [&](int64_t k) {
        std::memcpy(outputs + k * bytes, residual + plane(k), static_cast<std::size_t>(bytes));
      });
      of_image.residual = outputs;
    }
    of_image_->run(of_image, packed, stream);
    for_planes(a.k, [&](int64_t k) {
      std::memcpy(y + plane(k), outputs + k * bytes, static_cast<std::size_t>(bytes));
    });
  }

  template <class Visit>
  void for_planes(int64_t planes, const Visit& visit) const {
    parallel_for(apart_ ? 1 : threads_, planes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visit(i);
    });
  }

  void gather(int64_t image, const unsigned char* x, unsigned char* to) const {
    const ConvProblem& a = problem_;
    const int64_t n = image / a.z(), first = image % a.z() * a.stride_d - a.pad_front;
    const int64_t element = size_of(a.dtype.x), plane = a.h * a.w;
    if (a.layout == Layout::nchw) {
      const int64_t bytes = plane * element;
      return for_planes(a.c, [&](int64_t c) {
        for (int64_t t = 0; t < a.t; ++t) {
          const int64_t frame = first + t * a.dilation_d;
          unsigned char* const at = to + (c * a.t + t) * bytes;
          if (frame < 0 || frame >= a.d)
            std::memset(at, 0, static_cast<std::size_t>(bytes));
          else
            std::memcpy(at, x + ((n * a.c + c) * a.d + frame) * bytes, static_cast<std::size_t>(bytes));
        }
      });
    }
    const int64_t channels = a.c / a.groups, bytes = channels * element;
    for_planes(a.h, [&](int64_t row) {
      for (int64_t t = 0; t < a.t; ++t) {
        const int64_t frame = first + t * a.dilation_d;
        for (int64_t pixel = row * a.w; pixel < (row + 1) * a.w; ++pixel)
          for (int64_t group = 0; group < a.groups; ++group) {
            unsigned char* const at = to + ((pixel * a.groups + group) * a.t + t) * bytes;
            if (frame < 0 || frame >= a.d)
              std::memset(at, 0, static_cast<std::size_t>(bytes));
            else
              std::memcpy(at, x + (((n * a.d + frame) * plane + pixel) * a.groups + group) * bytes,
                          static_cast<std::size_t>(bytes));
          }
      }
    });
  }

  const ConvProblem problem_;
  const int64_t images_;
  const int threads_;
  bool apart_;  // each image on a thread of its own
  MemoryPlan memory_;
  std::unique_ptr<Executable> of_image_;
  std::size_t weights_;  // bytes of the images'
};

}  // namespace

ConvProblem frame_images(const ConvProblem& a) {
  if (!has_frame_images(a)) return a;
  ConvProblem images = a;
  images.n = a.n * a.z(), images.c = a.c * a.t;
  images.d = images.t = images.stride_d = images.dilation_d = 1;
  images.pad_front = images.pad_back = 0;
  return images;
}

bool are_gathered(const ConvProblem& a) {
  return has_frame_images(a) && !lies_as_images(a);
}

ConvProblem built_images(const ConvProblem& a) {
  ConvProblem images = frame_images(a);
  if (are_gathered(a)) images.n = 1;
  return images;
}

void take_frame_images(const ConvProblem& a, MemoryPlan& memory) {
  if (!are_gathered(a)) return;
  memory.take("frames of an image", image_bytes(a), 1);
  memory.take("outputs of an image", image_output_bytes(a), 1);
}

double frame_image_cycles(const ConvProblem& a) {
  constexpr double kCyclesAByte = 0.1;
  if (!are_gathered(a)) return 0;
  const int64_t copies = a.residual ? 2 : 1;
  return static_cast<double>(a.n * a.z()) * kCyclesAByte *
         static_cast<double>(image_bytes(a) + copies * image_output_bytes(a));
}

std::unique_ptr<Executable> frame_images_executable(const ConvProblem& problem, const MakeOfImages& make,
                                                    int threads) {
  if (!are_gathered(problem)) return make(frame_images(problem), threads);
  return std::make_unique<FrameImages>(problem, make, threads);
}

}  // namespace convtune::cpu
