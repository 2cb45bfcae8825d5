// Kernels that are compiled for any batch up to that of their problem (a config's `any_batch`), and are told
// how many images there are: what follows from these is computed where the kernel runs, and all else is a
// constant.
#pragma once

namespace convtune {

// f(config), of a config with the images of a run where its kernel takes any batch: else as it is.
template <auto config, class F>
constexpr auto of_run(int images, const F& f) {
  if constexpr (config.any_batch) {
    auto with_images = config;
    with_images.conv.n = images;
    return f(with_images);
  } else {
    return f(config);
  }
}

// The tiles of a run.
template <auto config, bool kAnyBatch = config.any_batch>
struct TilesOfRun {
  static constexpr int tiles = static_cast<int>(config.tiles());
  constexpr explicit TilesOfRun(int) {}
};
template <auto config>
struct TilesOfRun<config, true> {
  int tiles;
  constexpr explicit TilesOfRun(int images)
      : tiles(of_run<config>(images, [](const auto& a) { return static_cast<int>(a.tiles()); })) {}
};

}  // namespace convtune
