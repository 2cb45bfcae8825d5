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

// Parts whose columns lie between each other in the same rows of dx, with nothing else there: their outputs
// are stored together, each line of the cache once.
struct RowParts {
  // Elements x, x + stride, ... of a row of dx, one for each x below the stride: the part, the first of its
  // outputs among those of a row of its residue of columns.
  struct Source {
    std::size_t part;
    int64_t residue, first;
  };
  std::vector<std::size_t> parts;  // one after the other in memory
  std::vector<Source> sources;
};

// The sources of rows of `parts`, or none where these are not parts as RowParts has them.
std::vector<RowParts::Source> sources_of(const std::vector<BuiltPart>& all,
                                         const std::vector<std::size_t>& parts) {
  const PartAxis& first = all[parts.front()].part.width;
  std::vector<RowParts::Source> sources;
  for (int64_t x = 0; x < first.stride; ++x) {
    const std::size_t before = sources.size();
    for (const std::size_t i : parts) {
      const PartAxis& row = all[i].part.width;
      for (int64_t residue = 0; residue < row.residues; ++residue) {
        const int64_t at = x + row.crop - residue * row.step, position = at / row.stride;
        if (at < 0 || at % row.stride != 0) continue;
        const int64_t count = (row.extent - x + row.stride - 1) / row.stride;
        if (x < row.extent && position + count > all[i].part.problem.q()) return {};
        sources.push_back({i, residue, position});
      }
    }
    if (sources.size() != before + 1) return {};
  }
  return sources;
}

// Stores `count` rows of `extent` elements of dx, `step` apart: from[x % stride][x / stride] at x. The next
// rows of from[i] lie pitch[i] behind. Its own stride is known where kStride is not 0.
template <int64_t kStride, class Element>
void interleave(std::vector<const Element*> from, const std::vector<int64_t>& pitch, int64_t count,
                int64_t extent, Element* __restrict to, int64_t step) {
  const auto stride = kStride > 0 ? kStride : static_cast<int64_t>(from.size());
  const int64_t whole = extent / stride;
  for (int64_t row = 0; row < count; ++row, to += step) {
    const Element* sources[std::max<int64_t>(kStride, 1)];
    std::copy_n(from.data(), kStride, sources);
    for (int64_t i = 0; i < whole; ++i)
      for (int64_t one = 0; one < stride; ++one)
        to[i * stride + one] = kStride > 0 ? sources[one][i] : from[one][i];
    for (int64_t x = whole * stride; x < extent; ++x) to[x] = from[x % stride][whole];
    for (std::size_t one = 0; one < from.size(); ++one) from[one] += pitch[one];
  }
}
template <class Element>
auto interleave_of(int64_t stride) {
  return stride == 2   ? &interleave<2, Element>
         : stride == 4 ? &interleave<4, Element>
         : stride == 8 ? &interleave<8, Element>
                       : &interleave<0, Element>;
}

// Copies outputs to where they lie in dx, a row at a time. `from`: those of each part.
template <class Element>
void spread_rows(const std::vector<BuiltPart>& all, const RowParts& which,
                 const std::vector<const void*>& from, Element* to, int threads) {
  const ForwardPart& one = all[which.parts.front()].part;
  const ConvProblem& a = one.problem;
  const int64_t z = a.z(), p = a.p(), channels = a.k / a.groups / one.residues(),
                of_all = a.groups * channels;
  const int64_t d = one.depth.extent, h = one.height.extent, w = one.width.extent, stride = one.width.stride;
  const int64_t planes = one.depth.residues * one.height.residues;
  std::vector<int64_t> columns;
  for (const auto& source : which.sources) columns.push_back(all[source.part].part.problem.q());
  parallel_for(threads, a.n * of_all * planes, [&](int64_t begin, int64_t end) {
    const auto store = interleave_of<Element>(stride);
    std::vector<const Element*> planes_of(which.sources.size());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t residue = task % planes, c = task / planes % of_all, n = task / planes / of_all;
      const Along depths(one.depth, z, residue / one.height.residues);
      const Along rows(one.height, p, residue % one.height.residues);
      for (std::size_t x = 0; x < planes_of.size(); ++x) {
        const auto& [part, column, first] = which.sources[x];
        const ForwardPart& its = all[part].part;
        const int64_t k =
            (c / channels * its.residues() + residue * its.width.residues + column) * channels + c % channels;
        planes_of[x] = static_cast<const Element*>(from[part]) +
                       (n * its.problem.k + k) * z * p * its.problem.q() + first;
      }
      for (int64_t i = depths.begin; i < depths.end; ++i) {
        std::vector<const Element*> rows_of = planes_of;
        for (std::size_t x = 0; x < rows_of.size(); ++x) rows_of[x] += (i * p + rows.begin) * columns[x];
        const int64_t frame = (n * of_all + c) * d + depths.place(i);
        store(std::move(rows_of), columns, rows.end - rows.begin, w, to + (frame * h + rows.first) * w,
              rows.stride * w);
      }
    }
  });
}

// Copies a part's outputs to where they lie in dx, one by one or, of channels last, a pixel at a time.
template <class Element>
void spread(const ForwardPart& part, const Element* from, Element* to, int threads) {
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

// Parts in the same rows of dx, in groups; a part that fills no row with others is a group without sources.
std::vector<RowParts> row_parts(const std::vector<BuiltPart>& all) {
  std::vector<RowParts> groups;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ForwardPart& part = all[i].part;
    const auto found = std::ranges::find_if(groups, [&](const RowParts& group) {
      const ForwardPart& one = all[group.parts.front()].part;
      return one.depth == part.depth && one.height == part.height;
    });
    if (found == groups.end())
      groups.push_back({{i}, {}});
    else
      found->parts.push_back(i);
  }
  std::vector<RowParts> result;
  for (RowParts& group : groups) {
    const ForwardPart& one = all[group.parts.front()].part;
    if (one.problem.layout == Layout::nchw && !one.is_whole()) group.sources = sources_of(all, group.parts);
    if (!group.sources.empty())
      result.push_back(std::move(group));
    else
      for (const std::size_t i : group.parts) result.push_back({{i}, {}});
  }
  return result;
}

class PartsExecutable final : public Executable {
 public:
  PartsExecutable(std::vector<BuiltPart> parts, std::int64_t zeroed_bytes, int threads)
      : parts_(std::move(parts)), groups_(row_parts(parts_)), zeroed_bytes_(zeroed_bytes), threads_(threads) {
    for (const BuiltPart& one : parts_) {
      offsets_.push_back(packed_bytes_);
      packed_bytes_ += (one.executable->packed_bytes() + 63) / 64 * 64;
    }
    for (const RowParts& group : groups_) {
      std::size_t bytes = 0;
      for (const std::size_t i : group.parts) bytes += bytes_of(parts_[i].part);
      scratch_bytes_ = std::max(scratch_bytes_, bytes);
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
    const bool halves = size_of(parts_.front().part.problem.dtype.y) == 2;
    std::vector<const void*> outputs(parts_.size());
    for (const RowParts& group : groups_) {
      auto* at = static_cast<unsigned char*>(scratch.get());
      for (const std::size_t i : group.parts) {
        const auto& [part, executable] = parts_[i];
        const auto* const weights = static_cast<const unsigned char*>(packed) + offsets_[i];
        if (part.is_whole())
          executable->run({.x = tensors.dy, .residual = tensors.residual, .y = tensors.dx}, weights, stream);
        else
          executable->run({.x = tensors.dy, .y = at}, weights, stream);
        outputs[i] = at;
        at += bytes_of(part);
      }
      if (!parts_[group.parts.front()].part.is_whole())
        halves ? spread<std::uint16_t>(group, outputs, tensors.dx)
               : spread<std::uint32_t>(group, outputs, tensors.dx);
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
  // Memory of the outputs of a part that are copied from there.
  static std::size_t bytes_of(const ForwardPart& part) {
    const ConvProblem& a = part.problem;
    return part.is_whole() ? 0
                           : static_cast<std::size_t>(round_up(a.output_elements() * size_of(a.dtype.y), 64));
  }
  template <class Element>
  void spread(const RowParts& group, const std::vector<const void*>& outputs, void* dx) const {
    auto* const to = static_cast<Element*>(dx);
    if (!group.sources.empty()) return spread_rows(parts_, group, outputs, to, threads_);
    const std::size_t one = group.parts.front();
    cpu::spread(parts_[one].part, static_cast<const Element*>(outputs[one]), to, threads_);
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
  const std::vector<RowParts> groups_;
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
