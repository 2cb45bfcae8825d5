// See onednn_patience.h.
#include "cpu/onednn/onednn_patience.h"

#include <algorithm>
#include <utility>

namespace convtune::cpu {

OnednnPatience& OnednnPatience::of_this_thread() {
  thread_local constinit OnednnPatience patience;
  return patience;
}

// For a time that a late run is little beside, and no longer, since others may have gone.
bool OnednnPatience::leaves_team(const Runs& runs, Clock::time_point now) {
  constexpr std::chrono::milliseconds kMost{300};
  if (team_.leaves()) {
    if (now - left_ < kMost) return true;
    team_.ends();
  }
  return runs.tries_alone;
}

// A run that took longer than one thread would is late. Two in a row are told, or one that tries the team
// again. That one wakes threads which have slept meanwhile: what is little later than others are may be that,
// and the next run tries the team. A run as long as one thread's before anybody knows what that takes is
// followed by one that tells. The first run, and one behind a pause, say nothing.
void OnednnPatience::ran_on_all(Runs& runs, Clock::time_point began, Clock::time_point end) {
  constexpr std::chrono::milliseconds kLong{1}, kMostAlone{50}, kPause{20}, kWakes{1};
  const Clock::duration took = end - began;
  const bool first = runs.least == Clock::duration{}, wakes = std::exchange(last_alone_, false);
  if (!first && began - last_end_ < kPause) {
    const Clock::duration all = runs.least * runs.threads, alone = runs.least_alone;
    const bool known = alone > Clock::duration{};
    const Clock::duration bound = known ? std::min(all, alone) : all;
    const bool late = took >= bound + TeamPatience::kLate;
    if (!late || !wakes || took >= bound + kWakes) {
      const bool told = !late || last_late_ || tries_team_;
      if (told) team_.ran(bound, took);
      last_late_ = late, tries_team_ = late && told;
      if (tries_team_) left_ = end;
    }
    runs.tries_alone = !known && took > kLong && took * runs.threads < kMostAlone;
  }
  runs.least = first ? took : std::min(runs.least, took);
  last_end_ = end;
}

void OnednnPatience::ran_alone(Runs& runs, Clock::time_point began, Clock::time_point end) {
  const Clock::duration took = end - began, before = runs.least_alone;
  runs.least_alone = before == Clock::duration{} ? took : std::min(before, took);
  runs.tries_alone = false;
  last_alone_ = true;
  last_end_ = end;
}

}  // namespace convtune::cpu
