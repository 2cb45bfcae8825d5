// See recorded_batches.h. The names of a folder are read once and again when it has changed: with 100,000 of
// them that takes a fraction of a second, a look-up microseconds.
#include "plan/recorded_batches.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/fork_gate.h"
#include "base/private_file.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

// One file of a layer.
struct Entry {
  std::int64_t batch;
  std::string name;

  bool operator<(const Entry& other) const { return batch < other.batch; }
};

// A name begins with the problem's key, cut to a length: "g4mb256ic8ih14..." where mb2 goes without saying.
// Without its batch it begins as those of all batches do, for as long as the longest batch leaves of it.
struct Stem {
  std::string layer;
  std::int64_t batch;
};

std::optional<Stem> parse(std::string_view name) {
  constexpr std::size_t kLayerLength = 27;
  constexpr std::string_view kDigits = "0123456789", kBatch = "mb";
  std::string_view rest = name.substr(0, name.find('-'));
  std::string layer;
  if (rest.starts_with('g')) {
    const std::size_t end = std::min(rest.find_first_not_of(kDigits, 1), rest.size());
    layer = rest.substr(0, end);
    rest.remove_prefix(end);
  }
  std::int64_t batch = 2;
  if (rest.starts_with(kBatch)) {
    rest.remove_prefix(kBatch.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), batch);
    if (error != std::errc()) return std::nullopt;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  return Stem{layer.append(rest).substr(0, kLayerLength), batch};
}

// The names of a folder, as they were when it was read.
struct Names {
  fs::path folder;
  fs::file_time_type changed, listed;
  std::size_t count = 0;
  std::unordered_map<std::string, std::vector<Entry>> layers;  // each by ascending batch

  bool is_of(const fs::path& other, fs::file_time_type last_change) const {
    // Whatever is written within one tick of the clock changes the folder's time once: a list that was made
    // right after a change may lack what came right after the list.
    constexpr auto kTick = std::chrono::seconds(1);
    return folder == other && changed == last_change && listed >= last_change + kTick;
  }
};

std::shared_ptr<const Names> list(const fs::path& folder, fs::file_time_type changed) {
  auto names = std::make_shared<Names>(Names{folder, changed, fs::file_time_type::clock::now(), 0, {}});
  const auto open = PrivateFolder::open(folder);
  if (!open) return names;
  std::vector<std::string> all = open->names();
  names->count = all.size();
  for (std::string& name : all)
    if (const auto stem = parse(name)) names->layers[stem->layer].push_back({stem->batch, std::move(name)});
  for (auto& [layer, entries] : names->layers) std::sort(entries.begin(), entries.end());
  return names;
}

// The newest list, which threads share.
class Newest {
 public:
  std::shared_ptr<const Names> of(const fs::path& folder) {
    std::error_code error;
    const auto changed = fs::last_write_time(folder, error);
    if (error) return std::make_shared<Names>();
    {
      const std::lock_guard lock(mutex_);
      if (names_ && names_->folder == folder) {
        if (names_->is_of(folder, changed) || Clock::now() < next_) return names_;
        next_ = Clock::now() + kLongest;  // this thread lists it, and the others go on with what there is
      }
    }
    // Without the lock: of 100,000 names that is a tenth of a second.
    const auto begun = Clock::now();
    auto names = list(folder, changed);
    const auto taken = Clock::now() - begun;
    const std::lock_guard lock(mutex_);
    names_ = std::move(names);
    next_ = Clock::now() + (names_->count <= kShort ? Clock::duration(0)
                                                    : std::min<Clock::duration>(kPause * taken, kLongest));
    return names_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Beside a search, which writes all the time, a long list is read for a twentieth of the time and no more.
  // It may lack for so long what is new, and that is no loss: it is about neighbours, not about a problem's
  // own record. A short list is read whenever the folder has changed: its length decides and not its time,
  // which on a busy machine may be anything.
  static constexpr int kPause = 20;
  static constexpr std::size_t kShort = 1'000;  // names
  static constexpr std::chrono::seconds kLongest{10};

  Mutex mutex_;
  std::shared_ptr<const Names> names_;
  Clock::time_point next_;
};

}  // namespace

std::vector<std::int64_t> recorded_batches(const Database& database, const ConvProblem& problem,
                                           const std::string& device) {
  constexpr int kMostNames = 500;  // names of other devices, mostly: what is farther is no neighbour
  const auto names = once([] { return Newest(); }).of(database.folder());
  ConvProblem other = problem;
  const auto name_of = [&] { return database.path_of(other, device).filename().string(); };
  const auto layer = names->layers.find(parse(name_of())->layer);
  const std::vector<Entry> none, &entries = layer == names->layers.end() ? none : layer->second;
  // From this batch outwards to both sides, always to the nearer by ratio.
  auto above = std::lower_bound(entries.begin(), entries.end(), Entry{problem.n, {}}), below = above;
  const auto ratio = [](std::int64_t larger, std::int64_t smaller) {
    return (static_cast<double>(larger) + 1) / (static_cast<double>(smaller) + 1);
  };
  std::vector<std::int64_t> batches;
  for (int looked_at = 0; looked_at < kMostNames && (below != entries.begin() || above != entries.end());
       ++looked_at) {
    const bool down =
        above == entries.end() ||
        (below != entries.begin() && ratio(problem.n, (below - 1)->batch) <= ratio(above->batch, problem.n));
    const Entry& nearest = down ? *--below : *above++;
    other.n = nearest.batch;
    if (nearest.batch != problem.n && nearest.name == name_of()) batches.push_back(nearest.batch);
  }
  return batches;
}

}  // namespace convtune
