// See parts_executable.h.
#include "cpu/launch/parts_executable.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/fork_gate.h"
#include "convtune/aligned.h"
#include "cpu/base/parallel.h"
#include "cpu/tile/memory_plan.h"
#include "problem/element.h"

namespace convtune::cpu {
namespace {

using std::int64_t;

template <class Element>
void gather(const Gathering& what, const void* from, void* to, int threads) {
  const auto* const source = static_cast<const Element*>(from);
  auto* const gathered = static_cast<Element*>(to);
  parallel_for(threads, what.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gathered[i] = source[what.source_of(i)];
  });
}

std::vector<unsigned char> gathered(const Gathering& what, DType type, const void* from, int threads) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(what.elements() * size_of(type)));
  size_of(type) == 2 ? gather<std::uint16_t>(what, from, bytes.data(), threads)
                     : gather<std::uint32_t>(what, from, bytes.data(), threads);
  return bytes;
}

// The positions of a part whose outputs of a residue are in dx, and where the first of them is.
struct Along {
  int64_t begin, end, first, stride;

  Along(const PartAxis& axis, int64_t positions, int64_t residue) : stride(axis.stride) {
    const int64_t at = residue * axis.step - axis.crop;  // position 0's place
    begin = at < 0 ? (-at + stride - 1) / stride : 0;
    end = at < axis.extent ? std::min((axis.extent - 1 - at) / stride + 1, positions) : 0;
    first = at + begin * stride;
  }
  int64_t place(int64_t position) const { return first + (position - begin) * stride; }
};

// Tells whether the residues of a row lie between each other with nothing else there.
bool fills_rows(const ForwardPart& part) {
  const PartAxis& row = part.width;
  return part.problem.layout == Layout::nchw && row.residues == row.stride && row.step == 1;
}

// Stores a row of dx whose position x is element (x + crop) / stride of its residue's row; residues are
// `residue` elements apart.
template <class Element>
void interleave(const PartAxis& row, const Element* from, int64_t residue, int64_t positions, Element* to) {
  const int64_t stride = row.stride, end = std::min(row.extent, positions * stride - row.crop);
  const auto put = [&](int64_t x) {
    const int64_t at = x + row.crop;
    to[x] = from[at % stride * residue + at / stride];
  };
  const int64_t begin = std::min(end, row.crop > 0 ? (stride - row.crop % stride) % stride : -row.crop);
  const int64_t whole = std::max<int64_t>(end - begin, 0) / stride;
  for (int64_t x = std::max<int64_t>(-row.crop, 0); x < begin; ++x) put(x);
  const Element* const source = from + (begin + row.crop) / stride;
  Element* const target = to + begin;
  if (stride == 2) {
    const Element* const odd = source + residue;
    for (int64_t i = 0; i < whole; ++i) target[2 * i] = source[i], target[2 * i + 1] = odd[i];
  } else {
    for (int64_t i = 0; i < whole; ++i)
      for (int64_t one = 0; one < stride; ++one) target[i * stride + one] = source[one * residue + i];
  }
  for (int64_t x = begin + whole * stride; x < end; ++x) put(x);
}

// Copies a part's outputs to where they lie in dx, of parts that fill rows a row at a time.
template <class Element>
void spread_rows(const ForwardPart& part, const Element* from, Element* to, int threads) {
  const ConvProblem& a = part.problem;
  const int64_t z = a.z(), p = a.p(), q = a.q(), channels = a.k / a.groups / part.residues();
  const int64_t d = part.depth.extent, h = part.height.extent, w = part.width.extent;
  const int64_t planes = part.depth.residues * part.height.residues, all = a.groups * channels;
  parallel_for(threads, a.n * all * planes, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t residue = task % planes, c = task / planes % all, n = task / planes / all;
      const int64_t k =
          (c / channels * part.residues() + residue * part.width.residues) * channels + c % channels;
      const Along depths(part.depth, z, residue / part.height.residues);
      const Along rows(part.height, p, residue % part.height.residues);
      for (int64_t i = depths.begin; i < depths.end; ++i)
        for (int64_t j = rows.begin; j < rows.end; ++j)
          interleave(part.width, from + (((n * a.k + k) * z + i) * p + j) * q, channels * z * p * q, q,
                     to + (((n * all + c) * d + depths.place(i)) * h + rows.place(j)) * w);
    }
  });
}

// Copies a part's outputs to where they lie in dx.
template <class Element>
void spread(const ForwardPart& part, const Element* from, Element* to, int threads) {
  if (fills_rows(part)) return spread_rows(part, from, to, threads);
  const ConvProblem& a = part.problem;
  const int64_t z = a.z(), p = a.p(), q = a.q(), channels = a.k / a.groups / part.residues();
  const int64_t all = a.groups * channels, d = part.depth.extent, h = part.height.extent,
                w = part.width.extent;
  const bool last = a.layout == Layout::nhwc;
  // A task has the channels of a group's residue in NHWC, and one of them in NCHW.
  const int64_t of_task = last ? channels : 1, tasks = a.k / of_task;
  parallel_for(threads, a.n * tasks, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / tasks, k = task % tasks * of_task, residue = k / channels % part.residues();
      const int64_t c = k / channels / part.residues() * channels + k % channels;
      const Along depths(part.depth, z, residue / (part.width.residues * part.height.residues));
      const Along rows(part.height, p, residue / part.width.residues % part.height.residues);
      const Along columns(part.width, q, residue % part.width.residues);
      for (int64_t i = depths.begin; i < depths.end; ++i)
        for (int64_t j = rows.begin; j < rows.end; ++j) {
          const int64_t frame = depths.place(i), row = rows.place(j);
          if (last) {
            const Element* source = from + (((n * z + i) * p + j) * q + columns.begin) * a.k + k;
            Element* target = to + (((n * d + frame) * h + row) * w + columns.first) * all + c;
            for (int64_t l = columns.begin; l < columns.end;
                 ++l, source += a.k, target += columns.stride * all)
              std::copy_n(source, channels, target);
          } else {
            const Element* const source = from + (((n * a.k + k) * z + i) * p + j) * q;
            Element* target = to + (((n * all + c) * d + frame) * h + row) * w + columns.first;
            for (int64_t l = columns.begin; l < columns.end; ++l, target += columns.stride)
              *target = source[l];
          }
        }
    }
  });
}

class PartsExecutable final : public Executable {
 public:
  PartsExecutable(std::vector<BuiltPart> parts, std::int64_t zeroed_bytes, int threads)
      : parts_(std::move(parts)), zeroed_bytes_(zeroed_bytes), threads_(threads) {
    for (const BuiltPart& one : parts_) {
      offsets_.push_back(packed_bytes_);
      packed_bytes_ += (one.executable->packed_bytes() + 63) / 64 * 64;
      if (!one.part.is_whole()) scratch_bytes_ = std::max(scratch_bytes_, bytes_of(one.part.problem));
    }
  }

  std::size_t packed_bytes() const override { return packed_bytes_; }

  void pack(const void* w, const void* bias, void* packed, Stream stream) const override {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& [part, executable] = parts_[i];
      const DTypes& types = part.problem.dtype;
      const std::vector<unsigned char> weights = gathered(part.weights, types.w, w, threads_);
      const std::vector<unsigned char> biases =
          bias ? gathered(part.bias, types.bias, bias, threads_) : std::vector<unsigned char>();
      executable->pack(weights.data(), bias ? biases.data() : nullptr,
                       static_cast<unsigned char*>(packed) + offsets_[i], stream);
    }
  }

  void run(const Tensors& tensors, const void* packed, Stream stream) const override {
    const std::shared_ptr<void> scratch = scratch_bytes_ > 0 ? take() : nullptr;
    parallel_for(threads_, ceil_div(zeroed_bytes_, kZeroed), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kZeroed, last = std::min(end * kZeroed, zeroed_bytes_);
      std::memset(static_cast<unsigned char*>(tensors.dx) + first, 0, static_cast<std::size_t>(last - first));
    });
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& [part, executable] = parts_[i];
      const auto* const weights = static_cast<const unsigned char*>(packed) + offsets_[i];
      if (part.is_whole()) {
        executable->run({.x = tensors.dy, .residual = tensors.residual, .y = tensors.dx}, weights, stream);
        continue;
      }
      executable->run({.x = tensors.dy, .y = scratch.get()}, weights, stream);
      if (size_of(part.problem.dtype.y) == 2)
        spread(part, static_cast<const std::uint16_t*>(scratch.get()),
               static_cast<std::uint16_t*>(tensors.dx), threads_);
      else
        spread(part, static_cast<const std::uint32_t*>(scratch.get()),
               static_cast<std::uint32_t*>(tensors.dx), threads_);
    }
    if (scratch) give_back(scratch);
  }

  bool rounds_sum() const override {
    return std::ranges::any_of(parts_, [](const auto& one) { return one.executable->rounds_sum(); });
  }
  bool exact_on_integers() const override {
    return std::ranges::all_of(parts_, [](const auto& one) { return one.executable->exact_on_integers(); });
  }
  bool keeps_special_numbers() const override {
    return std::ranges::all_of(parts_,
                               [](const auto& one) { return one.executable->keeps_special_numbers(); });
  }

 private:
  static constexpr int64_t kZeroed = 1 << 16;  // bytes of a task
  static std::size_t bytes_of(const ConvProblem& a) {
    return static_cast<std::size_t>(a.output_elements() * size_of(a.dtype.y));
  }
  // Kept from run to run, since a new page costs more than its copy; as many as runs at once.
  std::shared_ptr<void> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::shared_ptr<void> scratch = std::move(idle_.back());
        idle_.pop_back();
        return scratch;
      }
    }
    const auto memory = std::make_shared<AlignedVector<unsigned char>>(scratch_bytes_);
    return {memory, memory->data()};
  }
  void give_back(std::shared_ptr<void> scratch) const {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
  }

  const std::vector<BuiltPart> parts_;
  const int64_t zeroed_bytes_;
  const int threads_;
  std::vector<std::size_t> offsets_;
  std::size_t packed_bytes_ = 0, scratch_bytes_ = 0;
  mutable Mutex mutex_;
  mutable std::vector<std::shared_ptr<void>> idle_;
};

}  // namespace

std::vector<ForwardPart> parts_of(const ConvProblem& a) {
  if (a.direction != Direction::backward_data) return {};
  const bool plain = !a.bias && !a.residual && a.activation == Activation::none;
  return tight_parts(a, {.bare = plain || !has_bare_residues(a)});
}

std::unique_ptr<Executable> parts_executable(const ConvProblem& problem, std::vector<BuiltPart> parts,
                                             int threads) {
  const std::int64_t zeroed =
      has_bare_residues(problem) ? problem.input_elements() * size_of(problem.dtype.x) : 0;
  return std::make_unique<PartsExecutable>(std::move(parts), zeroed, threads);
}

}  // namespace convtune::cpu
