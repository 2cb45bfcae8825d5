// Describes the compilation and launches of one config as data: made on any host, with
// neither a device nor a compiler. One executable compiles and launches it (kernel_executable.h); the dry
// run, the forecast and the exported program read the same value, so that none of them can drift from what
// runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cuda/compile/compiler.h"
#include "cuda/launch/bare_residues.h"
#include "cuda/launch/transposition.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/conv_numbers.h"
#include "cuda/tile/packed.h"
#include "problem/forward_parts.h"

namespace convtune::cuda {

struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
  bool operator==(const Extent3&) const = default;
};

// The memory that steps work on. The last seven are in workspaces: a run's has tensors that come in NCHW, and
// sums that blocks share; one for packing weights and biases that were put into another order.
enum class Operand {
  x,
  w,
  bias,
  packed,
  y,
  residual,
  dy,
  dx,
  dw,
  dbias,
  cache,
  x_nhwc,
  cache_nhwc,
  residual_nhwc,
  y_nhwc,
  partial_sums,
  w_gathered,
  bias_gathered
};
constexpr std::size_t kOperands = 18;
std::string_view to_string(Operand operand);  // "packed"

// A pointer argument: words of 4 bytes, from so many behind the operand's first.
struct Pointer {
  Operand operand = Operand::x;
  std::string_view type = "const float*";  // as the kernel declares it
  std::int64_t offset = 0;
  bool operator==(const Pointer&) const = default;
};

// How a box lies in shared memory: its rows one after the other; or, for rows of 128 bytes, with the 16-byte
// pieces of each exchanged by the row's number modulo 8, which spreads a column over all banks.
// For rows of 64 bytes: by half of the number, modulo 4; of 32: by a quarter, modulo 2.
enum class Swizzle { none, bytes_32, bytes_64, bytes_128 };

// How TMA walks over channels-last images: along columns, then rows, then images, between corners that are so
// far from the image's own (below 0: outside before it, inside behind it), by steps of `strides` pixels.
// Columns first.
struct ImageWalk {
  std::vector<int> first_corner, last_corner;
  std::vector<std::uint32_t> strides;
  bool operator==(const ImageWalk&) const = default;
};

// A dense tensor and the box of it that TMA copies at once, the innermost extent first; `strides` in bytes,
// of all but that one. At most five extents; strides are multiples of 16. With `steps`, every so many-th
// element of an extent is copied of so many times as large a box; empty: all. Of a walk the box is channels
// and pixels.
struct TensorMapLayout {
  std::vector<std::uint64_t> extents, strides;
  std::vector<std::uint32_t> box;
  Swizzle swizzle = Swizzle::none;
  ElementType type = ElementType::f32;
  std::optional<ImageWalk> walk = {};
  std::vector<std::uint32_t> steps = {};
  bool operator==(const TensorMapLayout&) const = default;
};

// Tensor maps of one operand, which can be used together or not at all. An array of `places` in the argument
// that holds them, the last of which may stay empty; with 0 places one map that is no array.
struct TensorMapGroup {
  Operand operand = Operand::x;
  std::vector<TensorMapLayout> maps;
  std::size_t places = 0;
  bool operator==(const TensorMapGroup&) const = default;
};
// An argument that is a struct of tensor maps. A launch has one at most.
struct TensorMaps {
  std::string_view type;  // "convtune::direct_stem_sm90::Maps"
  std::vector<TensorMapGroup> groups;
  bool operator==(const TensorMaps&) const = default;
};
// An int: 1 where that group of the launch's tensor maps can be used, else 0. It can where it has maps, its
// operand begins at a multiple of 16 bytes, and the driver makes tensor maps.
struct TensorMapsUsable {
  std::size_t group = 0;
  bool operator==(const TensorMapsUsable&) const = default;
};

// An int: 0 and 1 in turns, from launch to launch of the process. Kernels that take their tiles from the last
// one on where it is 1 begin with what the kernel before them wrote last, which L2 still has
// (docs/decisions/0067-forwards-and-backwards.md).
struct Turn {
  bool operator==(const Turn&) const = default;
};

// An int: 1 where the call wants dw channels last, else 0.
struct DwLast {
  bool operator==(const DwLast&) const = default;
};

using Argument =
    std::variant<Pointer, int, ConvExtents, ConvNumbers, TensorMaps, TensorMapsUsable, Turn, DwLast>;

struct KernelLaunch {
  std::size_t kernel = 0;  // for the plan's job
  Extent3 grid, block;
  std::size_t dynamic_smem_bytes = 0;
  std::vector<Argument> arguments;
  // Blocks go from tile to tile, a grid's size further each time: any multiple of so many computes the same.
  // 0: the grid is what it is.
  unsigned unit = 0;

  double blocks() const { return static_cast<double>(grid.x) * grid.y * grid.z; }  // for the grid
};
// Words of an operand set to zero.
struct Clear {
  Pointer begin;
  std::size_t words = 0;
};
// Matrices of one operand transposed into another.
struct Conversion {
  Operand from = Operand::x, to = Operand::x_nhwc;
  Transposition what;
  bool operator==(const Conversion&) const = default;
};
// Numbers of one operand put into another in another order.
struct Gathered {
  Operand from = Operand::w, to = Operand::w_gathered;
  Gathering what;
  std::int64_t element_bytes = 4;
  bool operator==(const Gathered&) const = default;
};
// Elements of dx that no tap meets, stored with the biases of packed weights, where there are any.
struct Bare {
  std::optional<Pointer> bias;
  Operand residual = Operand::residual, to = Operand::y;
  BareResidues what;
};
using Step = std::variant<Clear, KernelLaunch, Conversion, Gathered, Bare>;

// Memory that a run has for itself: an operand that nobody gives it.
struct WorkspacePart {
  Operand operand = Operand::x_nhwc;
  std::size_t bytes = 0;
  bool operator==(const WorkspacePart&) const = default;
};

// Numbers that are gathered while they are packed (gather_and_pack.cuh): `axes` as C++ writes them; `flags`:
// the flag says whether all are finite.
struct GatheredAsPacked {
  Gathering what;
  std::string axes;
  bool flags = true;
};

struct LaunchPlan {
  static constexpr std::size_t kRun = 0, kPack = 1, kAddUp = 2;  // the job's kernels

  // NAME and pack_NAME, kernels of namespace NAME in NAME.cuh; with partial sums add_up_NAME too.
  std::string name;
  std::string arch;  // "sm_90a"
  // The template argument of both, as C++ writes it. Where ptxas spills registers in the kernel of the first,
  // the others are compiled in turn, and the one that spills least is taken.
  std::vector<std::string> configs;
  // That of a kernel for tensors that do not begin at multiples of 16 bytes, which is compiled when the first
  // one comes. Empty: the kernel takes any.
  std::string config_for_any_pointer;
  // Outputs are stored before it is known whether they must be computed again, from the residual too. Where y
  // is the residual itself the kernel for any pointer runs, which reads each number of it before it writes
  // there.
  bool stores_before_repair = false;
  // Columns of all their matrix products on 9.0 (CONVTUNE_COLUMNS in ptx/wgmma.cuh); 0: several, or none.
  int product_columns = 0;
  // The kernels are those of every problem of a kind: loaded once in a process.
  bool serves_every_problem = false;
  // The kernels take any batch up to this many images, 0: one alone. Plans of several batches share what is
  // loaded.
  int most_images = 0;

  Packed packed;
  std::vector<Step> pack, run;
  // The filter is another one's numbers in another order, which pack() takes as it reads them.
  std::optional<GatheredAsPacked> gathers;
  // Packed weights are the filter as it lies, channels last (lying_plans.h): further parts read the same.
  bool weights_lie = false;
  std::vector<WorkspacePart> workspace;  // each at a multiple of 256 bytes, in this order
  std::vector<WorkspacePart> pack_workspace;
  // Further parts of a backward data problem, which write other elements of the same tensor. They run behind
  // this one, and their packed weights lie behind its, each at a multiple of 256 bytes.
  std::vector<LaunchPlan> more;

  // Holds the launch bounds: registers of a thread, at most, and blocks that an SM holds at
  // once. A guess where the kernel has no bound on blocks.
  int most_registers = 0, resident_blocks = 1;
  bool resident_is_a_guess = false;

  const KernelLaunch& kernel_launch() const;  // for the convolution's kernel
  bool can_lay_dw_last() const;               // true if a launch has DwLast
  std::size_t packed_bytes() const;           // a word at least, without those of further parts
  std::size_t all_packed_bytes() const;       // with them
  std::size_t workspace_bytes() const;        // of a run: its parts take them in turns
  std::size_t pack_workspace_bytes() const;   // without those of further parts
  bool adds_up() const;                       // true if a kernel of its own adds up partial sums
};

constexpr std::size_t in_lines(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// The file of an algorithm's kernels, below src/.
std::string kernel_file(const std::string& name);

CompileJob compile_job(const LaunchPlan& plan, const std::string& config);

// The plan's kernels compiled, and what it took to do so without spills.
struct CompiledPlan {
  CompileJob job;
  CompiledModule module;
};
CompiledPlan compile(const LaunchPlan& plan, bool cached = true);

}  // namespace convtune::cuda
