// Tests the algorithms' two parameters of the last stage: whatever they offer, its
// neighbours have the same tiles and, where it can be compiled here, the same grid.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compiler.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/launch/dry_run.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "tune/last_stage.h"

namespace convtune::stage_view_test {
namespace {

using Names = std::set<std::string>;

const ConvProblem& stem() {
  static const ConvProblem one = parse_problem("mb8ic3ih224oc96kh11sh4ph2 precision=tf32");
  return one;
}
const ConvProblem& body() {
  static const ConvProblem one = parse_problem("mb8ic64ih56oc64kh3ph1 precision=tf32");
  return one;
}

Names fields_that_differ(const Config& one, const Config& other) {
  Names names;
  for (const auto& [name, value] : one.values)
    if (other.at(name) != value) names.insert(name);
  return names;
}

// Describes the tile and the grid, as a number for each part.
using TileOf = std::function<std::vector<std::int64_t>(const Config&)>;

// All lists that the rules leave for what the algorithm offers; returns how many there are.
int check_lists(const Algorithm& algorithm, const ConvProblem& problem, const DeviceInfo& device,
                const Names& may_differ, const TileOf& tile_of) {
  int lists = 0;
  const std::vector<Config> candidates = algorithm.candidates(problem, device);
  EXPECT_FALSE(candidates.empty());
  for (std::size_t i = 0; i < candidates.size(); i += 1 + candidates.size() / 200) {
    const Config& config = candidates[i];
    auto view = algorithm.stage_view(problem, device, config);
    if (!view) {
      ADD_FAILURE() << to_string(config) << " has no view";
      continue;
    }
    EXPECT_EQ(view->with(view->config), config);
    // As if R1 suggested it wherever it can be had.
    view->warps = WarpsAnswer{{2 * view->config.warps}, "may become more"};
    const StageList list = neighbours_of(*view, algorithm, config, problem, device, {});
    lists += !list.configs.empty();
    for (const StageList::Entry& entry : list.configs) {
      const Config other = view->with(entry.config);
      EXPECT_TRUE(algorithm.accepts(problem, device, other)) << to_string(other);
      EXPECT_EQ(tile_of(other), tile_of(config)) << to_string(other) << " of " << to_string(config);
      for (const std::string& name : fields_that_differ(config, other))
        EXPECT_TRUE(may_differ.count(name)) << name << " in " << to_string(other);
    }
  }
  return lists;
}

TEST(StageView, OnGpus) {
  const auto of = [](const char* name) -> const Algorithm& {
    return find_algorithm(Device::Kind::cuda, name);
  };
  const DeviceInfo h100 = device_of(find_target("h100")), ada = device_of(find_target("rtx4090"));
  const auto product = [](const Config& config, std::initializer_list<const char*> names) {
    std::int64_t all = 1;
    for (const char* name : names) all *= config.at(name);
    return all;
  };
  const TileOf nothing = [](const Config&) { return std::vector<std::int64_t>(); };
  EXPECT_GT(check_lists(of("implicit_gemm_sm80"), body(), h100, {"stages", "warps_m", "warps_n"}, nothing),
            20);
  EXPECT_GT(check_lists(of("implicit_gemm_sm80"), stem(), ada, {"stages", "warps_m", "warps_n"}, nothing),
            20);
  EXPECT_GT(check_lists(of("direct_body_sm90"), body(), h100, {"stages"}, nothing), 5);
  EXPECT_GT(check_lists(of("direct_stem_sm90"), stem(), h100, {"units"}, nothing), 5);
  EXPECT_GT(check_lists(of("direct_stem_sm80"), stem(), ada,
                        {"stages", "warp_filters", "filter_warps", "warp_rows", "row_warps", "warp_columns",
                         "column_warps"},
                        [&](const Config& config) {
                          return std::vector{product(config, {"warp_filters", "filter_warps"}),
                                             product(config, {"warp_rows", "row_warps"}),
                                             product(config, {"warp_columns", "column_warps"})};
                        }),
            0);
  const Algorithm& fma = of("direct_fma_sm80");
  const ConvProblem few = parse_problem("mb2ic1ih16iw32oc8kh3ph1 precision=fp32");
  EXPECT_FALSE(fma.stage_view(few, h100, fma.candidates(few, h100).at(0)));
}

// Whatever the compiler says of the original decides R1, and R3 holds for what would be launched.
TEST(StageView, CompiledForAGpu) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  const Target target = find_target("h100");
  const DeviceInfo device = device_of(target);
  for (const char* name : {"implicit_gemm_sm80", "direct_body_sm90"}) {
    const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, name);
    const Config config = algorithm.candidates(body(), device).front();
    const auto view = algorithm.stage_view(body(), device, config);
    const StageList list = neighbours_of(*view, algorithm, config, body(), device, target);
    EXPECT_NE(list.verdicts[0].find(view->warps ? "for itself" : "a multiprocessor"), std::string::npos)
        << list.verdicts[0];
    ASSERT_GE(list.configs.size(), 3u) << list.none;
    std::vector<cuda::Candidate> candidates;
    for (const StageList::Entry& entry : list.configs)
      candidates.push_back({&algorithm, view->with(entry.config)});
    const auto runs = cuda::dry_run(body(), device, candidates, 2, 60);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      ASSERT_EQ(runs[i].failure, "");
      const cuda::Launch& launch = runs[i].launch;
      EXPECT_EQ(launch.blocks, runs[0].launch.blocks) << "R3: " << to_string(candidates[i].config);
      EXPECT_EQ(launch.threads, 32 * list.configs[i].config.warps) << to_string(candidates[i].config);
      EXPECT_EQ(launch.spill_bytes, 0) << to_string(candidates[i].config);
    }
  }
}

}  // namespace
}  // namespace convtune::stage_view_test
