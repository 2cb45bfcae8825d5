// Serves direct_body_half_sm90.cuh and direct_body_half_nchw_sm90.cuh on the host: their search
// space, and what runs.
#include "cuda/algorithms/direct_body_half_sm90/body_half.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cuda/launch/tile_work.h"
#include "model/target_of.h"

namespace convtune::cuda {
namespace {

using Kernel = DirectBodyHalfSm90;

constexpr int kMostInputStages = 4, kMostWeightStages = 8;

// A block has one tile of the filters where weights stay in shared memory.
int unit_of(const Kernel& kernel) {
  return kernel.cluster * (kernel.weights_stay() ? kernel.filter_tiles() : 1);
}

// As many blocks as stay on the device's SMs.
unsigned blocks_of(const Kernel& kernel, int multiprocessors) {
  return resident_grid(kernel.tiles() * kernel.cluster, multiprocessors, unit_of(kernel));
}

// Cycles of a tile's products, of a step.
double step_cycles(const Kernel& a, int step) {
  return a.products(step) * (a.filters() / 64) * a.positions() / 2.0;
}

// Cycles in which a tile's products wait for x. With a stride stages have few taps, and one is gone before
// the next is there: each is asked for when the one that had its place has been read. In the steady state,
// that of the last of some tiles.
double stalled_cycles(const Kernel& a) {
  constexpr double kLatency = 2300;  // per stage of x from memory when all ask for theirs: an H200
  constexpr int kTiles = 4;
  std::vector<double> ends;
  double products = 0, now = 0, before = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    before = now, products = 0;
    for (int stage = 0; stage < a.stages(); ++stage) {
      const double cycles = a.taps_of(stage) * step_cycles(a, stage / a.chunk_stages() * a.taps());
      if (std::ssize(ends) >= a.input_stages)
        now = std::max(now, ends[ends.size() - static_cast<std::size_t>(a.input_stages)] + kLatency);
      products += cycles;
      ends.push_back(now += cycles);
    }
  }
  return now - before - products;
}

// The share of a tile's stages that is not left out, where they are frames of padding: of tiles on average.
double frames_share(const Kernel& a) {
  if (!a.skips_frames()) return 1;
  double frames = 0;
  for (int tile = 0; tile < a.image_tiles(); ++tile)
    frames += a.frames_of(tile * a.images, (tile + 1) * a.images - 1).count();
  return frames / a.image_tiles() / a.conv.t;
}

// The share of a tile's steps that is not left out, where residues lack taps: of tiles on average.
double taps_share(const Kernel& a) {
  const ConvLies& lies = a.conv.lies;
  const double rows =
      lies.whole_h > 0 ? 1 - 1.0 * (lies.residues_h - lies.whole_h) / lies.residues_h / a.conv.r : 1;
  const double columns =
      lies.whole_w > 0 ? 1 - 1.0 * (lies.residues_w - lies.whole_w) / lies.residues_w / a.conv.s : 1;
  return rows * columns;
}

// Cycles in which a tile's products wait for slices, whose boxes come a row of columns after the other: few
// columns a row, of tiles 8 columns wide, take as long as many. Measured on an H200.
double sliced_cycles(const Kernel& a, double share, double products) {
  constexpr double kRow = 9, kHidden = 0.8;
  const double rows =
      share * a.conv.t * a.phases() * round_up(a.depth(), BodySlices::kChannels) * a.slices().lines;
  return std::max(kRow * rows - kHidden * products, 0.0);
}

TileWork work_of(const Kernel& a) {
  const double share = frames_share(a), taps = share * taps_share(a);
  const double steps = taps * a.steps(), blocks = a.filters() / 64;
  const double groups = taps * a.all_products() * blocks;  // wgmma's
  const double computed = 1.0 * a.positions() * a.filters(), residual = a.conv.residual ? 2 : 1;
  const double weights = a.weights_stay() ? 0 : steps * a.weight_bytes();
  const double inputs = share * a.stages() * a.input_bytes();
  TileWork work;
  work.tiles = static_cast<double>(a.tiles()) * a.cluster;
  work.persistent = true;
  work.clusters = a.cluster > 1;
  work.wgmma = work.tma = work.load_beside = true;
  work.load_warps = 4;
  work.in_flight_bytes = (a.input_stages - 0.5) * a.input_bytes() +
                         (a.weights_stay() ? 0.0 : (a.weight_stages - 1.0) * a.weight_bytes());
  work.load.instructions = steps * 20 + a.stages() * 20;
  work.load.wavefronts = (inputs + weights) / 128;
  work.load.l2_bytes = inputs + weights / a.cluster;
  if (a.transposes) {
    const BodySlices slices = a.slices();
    const double some = share * a.conv.t * a.phases() * ceil_div(a.depth(), BodySlices::kChannels);
    const double brought = some * slices.bytes(), lines = some * slices.lines;
    work.in_flight_bytes +=
        (BodySlices::kPlaces - 0.5) * slices.bytes() - (a.input_stages - 0.5) * a.input_bytes();
    work.load.instructions += lines * (20 + 2.5 * slices.blocks()) + some * 60;
    work.load.wavefronts += 2 * brought / 128;
    work.load.l2_bytes += brought - inputs;
  }
  // Filters whose k is the outer extent take tensor cores longer: an H200.
  constexpr double kTurned = 1.06;
  work.multiply.products = groups * a.positions() / 2 * (a.turned() ? kTurned : 1);
  if (a.transposes) work.multiply.waits += sliced_cycles(a, share, work.multiply.products) / kWaitCycles;
  work.multiply.instructions = groups * 4 * 4 + steps * blocks / a.filter_blocks * 4 * 24;
  work.multiply.wavefronts = groups * (16 + a.positions() / 4.0);
  work.multiply.waits += 1 + 0.1 * steps;
  // Stages of one tap each are what in_flight_bytes is for.
  if (a.taps() > a.chunk_stages()) work.multiply.waits += stalled_cycles(a) / kWaitCycles;
  Phase store;
  const bool between = a.conv.lies.between();
  const double in_pieces = a.narrow() ? 4 : 12;
  const double moved = a.nchw    ? 20.0 / a.run() + 1.0 / a.piece()
                       : between ? a.piece_stores() ? in_pieces : 30
                                 : 0;
  store.instructions = computed / 32 * (5 + moved) * residual;
  store.wavefronts = computed * 2 * 2 / 128 * residual;
  store.l2_bytes = a.conv.residual ? 2 * computed : 0;
  add_epilogue(store, a.conv, computed);
  add_store(work, store, a.ping_pong);
  // A consumer stores while another has as many steps left as it is behind.
  work.stored_beside_cycles = work.multiply.products / a.consumers * a.lead() / steps;
  // Neighbours store the rest of a sector at nearly the same time, in L2.
  const int in_row = a.columns == a.horizontal().output ? a.rows * a.columns : greater(a.columns, 16);
  const int in_a_piece =
      a.nchw ? in_row : lesser(a.consumer_filters(), between ? a.conv.group_results() : a.set_filters());
  store_in_pieces(work, outputs_of(a.conv) / work.tiles, in_a_piece, 2);
  return work;
}

// x in NCHW as [volume][frame or image][row][channel][column].
TensorMapLayout slices_map_of(const Kernel& kernel) {
  const auto wide = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  const ConvExtents& a = kernel.conv;
  const int row_step = kernel.vertical().stride, image_step = a.has_depth() ? a.stride_d : 1;
  const std::uint64_t row = 2 * wide(a.w), plane = row * wide(a.h);
  const std::uint64_t channel = plane * wide(a.has_depth() ? a.d : 1), channels = channel * wide(a.c);
  return {
      .extents = {wide(a.w), wide(a.c), wide(a.h), wide(kernel.input_batch()), wide(kernel.volumes())},
      .strides = {channel, row, a.has_depth() ? plane : channels, channels * wide(a.has_depth() ? 1 : a.n)},
      .box = {narrow(kernel.slices().columns()), BodySlices::kChannels, narrow(kernel.box_rows() * row_step),
              narrow(kernel.images * image_step), 1},
      .type = a.x_type,
      .steps = {1, 1, narrow(row_step), narrow(image_step), 1}};
}

// x as [image][row][group, or phase of rows where they are an extent][column][channel], or in three
// dimensions as [frame][row][volume][column][channel]; y and the residual likewise.
TensorMaps maps_of(const Kernel& kernel) {
  const auto wide = [](auto value) { return static_cast<std::uint64_t>(value); };
  const auto narrow = [](int value) { return static_cast<std::uint32_t>(value); };
  const BodyAxis rows = kernel.vertical(), columns = kernel.horizontal();
  const int split = kernel.splits_rows() ? rows.stride : 1, step = rows.stride / split;
  const int groups = kernel.conv.groups;
  const std::uint64_t group = 2 * wide(kernel.depth()), pixel = group * wide(groups);
  const std::uint64_t row = pixel * wide(columns.input);
  TensorMapLayout x{.extents = {wide(kernel.depth()), wide(columns.input), wide(split * groups),
                                wide(rows.input / split), wide(kernel.batch())},
                    .strides = {pixel, groups > 1 ? group : row, row * wide(split), row * wide(rows.input)},
                    .box = {narrow(kernel.channels), narrow(kernel.pitch() * columns.stride), 1,
                            narrow(kernel.box_rows() * step), narrow(kernel.images)},
                    .swizzle = kernel.channels == 64 ? Swizzle::bytes_128 : Swizzle::bytes_64,
                    .type = kernel.conv.x_type,
                    .steps = {1, narrow(columns.stride), 1, narrow(step), 1}};
  const int volumes = kernel.volumes(), frame_step = kernel.conv.stride_d;
  if (kernel.conv.has_depth()) {
    const std::uint64_t frame = row * wide(rows.input);
    x.extents[2] = wide(volumes), x.extents[4] = wide(kernel.input_batch());
    x.strides = {pixel, frame * wide(kernel.input_batch()), row, frame};
    x.box[4] = narrow(kernel.images * frame_step), x.steps[4] = narrow(frame_step);
  }
  if (kernel.transposes) x = slices_map_of(kernel);
  if (kernel.pixels_first()) {
    const std::uint64_t channel = 2 * wide(columns.input), image = channel * wide(kernel.depth());
    x = {.extents = {wide(columns.input), wide(kernel.depth()), wide(kernel.batch()), 1, 1},
         .strides = {channel, image, image * wide(kernel.batch()), image * wide(kernel.batch())},
         .box = {64, narrow(kernel.channels), 1, 1, 1},
         .swizzle = Swizzle::bytes_128,
         .type = kernel.conv.x_type};
  }
  const std::uint64_t output = 2 * wide(kernel.conv.k), output_row = output * wide(columns.output);
  const std::uint64_t filters = wide(kernel.conv.group_filters());
  TensorMapLayout y{
      .extents = {filters, wide(columns.output), wide(groups), wide(rows.output), wide(kernel.batch())},
      .strides = {output, 2 * filters, output_row, output_row * wide(rows.output)},
      .box = {64, narrow(kernel.columns), 1, narrow(kernel.rows), narrow(kernel.images)},
      .swizzle = Swizzle::bytes_128,
      .type = kernel.conv.y_type};
  if (kernel.conv.has_depth()) {
    y.extents[2] = wide(volumes);
    y.strides[1] = output_row * wide(rows.output) * wide(kernel.batch());
  }
  const bool stores = kernel.conv.group_filters() % 8 == 0 && !kernel.nchw && !kernel.conv.lies.between();
  const auto map = [&](Operand operand, bool used) {
    return used ? TensorMapGroup{operand, {y}} : TensorMapGroup{Operand::x, {x}};
  };
  TensorMaps maps = {
      "convtune::direct_body_half_sm90::Maps",
      {{Operand::x, {x}}, map(Operand::y, stores), map(Operand::residual, stores && kernel.conv.residual)}};
  if (kernel.cache > 0) {
    TensorMapLayout cache = x;
    if (kernel.transposes) {
      Kernel before = kernel;
      before.conv.d = kernel.cache;
      cache = slices_map_of(before);
    } else {
      cache.extents[4] = wide(kernel.cache);
      cache.strides[1] = cache.strides[3] * wide(kernel.cache);
    }
    maps.type = "convtune::direct_body_half_sm90::MapsWithCache";
    maps.groups.push_back({Operand::cache, {cache}});
  }
  if (kernel.lying > 0) {
    maps.type = "convtune::direct_body_half_sm90::MapsWithWeights";
    maps.groups.push_back(lying_map(kernel.conv, kernel.lie, kernel.depth(), kernel.channels,
                                    kernel.filters(), kernel.cluster));
  }
  return maps;
}

// Parts of `whole`, as nearly equal as they can be, of `least` to `most` each.
std::set<int> parts_within(int whole, int least, int most) {
  std::set<int> parts;
  for (int count = ceil_div(whole, most); count <= whole; ++count) {
    const int part = ceil_div(whole, count);
    if (part < std::min(least, whole)) break;
    parts.insert(part);
  }
  return parts;
}

// Tiles of at most so many positions: {images, rows, columns}.
std::vector<std::array<int, 3>> shapes_of(Kernel kernel, int positions) {
  std::vector<std::array<int, 3>> shapes;
  const auto add = [&](int images, int rows, int columns) {
    kernel.images = images, kernel.rows = rows, kernel.columns = columns;
    const bool whole =
        kernel.cache > 0 && rows == kernel.vertical().output && columns == kernel.horizontal().output;
    if (kernel.positions() <= positions && (whole || kernel.positions() > positions / 3))
      shapes.push_back({images, rows, columns});
  };
  const int height = kernel.vertical().output, width = kernel.horizontal().output;
  if (height == 1) {
    const int most = std::min(positions, width), least = std::min(64, most);
    for (int columns = most; columns >= least; columns = round_up(columns, 16) - 16) add(1, 1, columns);
    return shapes;
  }
  std::set<int> some = parts_within(width, 8, std::min(positions, 128));
  if (width >= 8) some.insert(8);
  if (kernel.transposes) {
    std::set<int> eights;
    for (const int columns : some) eights.insert(columns == width ? width : round_up(columns, 8));
    some = std::move(eights);
  }
  for (const int columns : some)
    for (const int rows : parts_within(height, 1, 64)) add(1, rows, columns);
  for (int images = 2; images <= std::min(kernel.batch(), 16); ++images) add(images, height, width);
  if (shapes.empty()) shapes.push_back({1, height, width});  // few small images
  return shapes;
}

}  // namespace

Support DirectBodyHalf::takes(const Computed& a, const DeviceInfo& device) const {
  return first_refusal(
      {needs_sm90(device), takes_half_frames_and_caches(a), takes_wide_groups(a), fits_extents(a)});
}

Support DirectBodyHalf::takes_kernel(const Kernel& kernel, const DeviceInfo&) const {
  // A stage goes back once the products behind its own are under way, which wait for the next one.
  const bool goes_on =
      (kernel.stages() == 1 || kernel.input_stages > 1) && (kernel.steps() == 1 || kernel.weight_stages > 1);
  if (goes_on && kernel.valid(sm90_smem_per_block())) return Support::yes();
  return Support::no(
      fmt::format("a tile within the output, whole images where they are several, of at most 256 positions "
                  "(here {}) and 128 sums of a thread (96 with 3 consumers; here {}); channels 32 or 64; "
                  "ping_pong with 2 consumers; two stages where a tile has several; {}lying with "
                  "neither epilogue nor cache, whose weights TMA can bring; and {} bytes of shared "
                  "memory (here {})",
                  kernel.positions(), kernel.sums(), kernel.transposes ? "columns in eights, or all; " : "",
                  sm90_smem_per_block(), kernel.smem_bytes()));
}

LaunchPlan DirectBodyHalf::launch(const Kernel& kernel, const DeviceInfo& device) const {
  std::vector<Argument> arguments = {maps_of(kernel),
                                     Pointer{Operand::x, "const void*"},
                                     Pointer{Operand::packed},
                                     Pointer{Operand::y, "void*"},
                                     Pointer{Operand::residual, "const void*"},
                                     Pointer{Operand::cache, "const void*"},
                                     kernel.conv.n};
  return going_on(plan_of(kernel, device, {blocks_of(kernel, device.units)}, std::move(arguments)),
                  unit_of(kernel));
}

TileWork DirectBodyHalf::counted(const Kernel& kernel) const {
  return work_of(kernel);
}

double DirectBodyHalf::flops(const ConvProblem&, const Kernel& a) const {
  return 2.0 * static_cast<double>(a.output_tiles()) * a.filter_tiles() * a.positions() * a.filters() *
         a.all_products() * 16 * frames_share(a) * taps_share(a);
}

// The best by the model of time, each with the most stages that there is room for.
std::vector<Kernel> DirectBodyHalf::configs(const Computed& a, const DeviceInfo& device) const {
  const Target target = target_of(device);
  std::vector<Ranked<Kernel>> ranked;
  const auto add = [&](Kernel kernel) {
    if (!kernel.valid(sm90_smem_per_block())) return;
    Kernel more = kernel;
    while (++more.input_stages <= kMostInputStages && more.valid(sm90_smem_per_block())) kernel = more;
    ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
    ranked.back().cost += packing_us(a);
    kernel.lying = 1, kernel.lie = lying_of(a);
    if (kernel.valid(sm90_smem_per_block()))
      ranked.push_back(timed(kernel, a, target, blocks_of(kernel, device.units)));
  };
  // Weights stay where they can; other blocks with the same filters need not share them then.
  const auto add_all = [&](Kernel kernel) {
    kernel.cluster = 1, kernel.input_stages = 2, kernel.weight_stages = std::min(kernel.steps(), 64);
    const bool stays = kernel.weights_stay() && kernel.valid(sm90_smem_per_block());
    if (stays) add(kernel);
    if (stays && kernel.filter_tiles() == 1) return;
    const int fewest = kernel.taps() == kernel.chunk_stages() ? 3 : 2;  // a tap a stage
    for (; kernel.cluster <= 2 && kernel.output_tiles() >= kernel.cluster; ++kernel.cluster) {
      for (int stages = kMostWeightStages; stages >= 3; --stages) {
        kernel.weight_stages = stages, kernel.input_stages = std::min(fewest, stages - 1);
        if (kernel.valid(sm90_smem_per_block())) break;
      }
      if (kernel.weights_stay()) continue;  // added above, or with a cluster of no use
      add(kernel);
      // Stages of few taps, and from memory: with a chunk's phases all on their way behind the one that is
      // multiplied, for fewer weights, which come from L2.
      Kernel ahead = kernel;
      ahead.input_stages = kernel.phases() + 1;
      if (ahead.input_stages <= kMostInputStages || kernel.taps() == kernel.chunk_stages()) continue;
      while (ahead.weight_stages > 5 && !ahead.valid(sm90_smem_per_block())) --ahead.weight_stages;
      add(ahead);
    }
  };
  Kernel kernel = plain(a);
  const int rest = kernel.depth() % 64;
  for (const int channels : {64, 32}) {
    if (channels == 32 && (rest == 0 || rest > 32) && kernel.phases() == 1 && !kernel.transposes) continue;
    kernel.channels = channels;
    for (const int filter_blocks : {1, 2})
      for (const auto& shape : shapes_of(kernel, 256 / filter_blocks)) {
        kernel.images = shape[0], kernel.rows = shape[1], kernel.columns = shape[2];
        kernel.filter_blocks = filter_blocks;
        for (const auto& [consumers, ping_pong] : {std::tuple{2, false}, {2, true}, {1, false}, {3, false}}) {
          kernel.consumers = consumers, kernel.ping_pong = ping_pong;
          if (kernel.filters() - kernel.consumer_filters() >= kernel.set_filters()) continue;
          add_all(kernel);
        }
      }
  }
  return best_of(std::move(ranked));
}

}  // namespace convtune::cuda
