// The candidates of a search, handed out in batches: each batch is compiled at once, where that is needed, by
// a process each, and then tried one by one. Used by tune().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "contract/backend.h"
#include "tune/compile_ahead.h"
#include "tune/search.h"

namespace convtune {

class Batches {
 public:
  struct Rules {
    double compile_seconds = 30;  // a candidate that takes longer is no candidate
    std::int64_t first = 1;       // candidates of the first batch, at most
    // Tells whether a candidate will be built at all, and not left out or known from before. `best_us`: of
    // the search, 0 for none.
    std::function<bool(const Algorithm&, const Config&, double best_us)> wanted;
  };

  // Lists what these algorithms offer, and begins to compile the first batch.
  Batches(const ConvProblem& problem, const DeviceInfo& device,
          const std::vector<const Algorithm*>& algorithms, Rules rules);

  // The first batch is compiled when this returns; nothing may be measured before. What its slowest
  // candidate took, in seconds.
  double wait();
  // Compiles the next batch, of `most` candidates at most: on a GPU one for each processor. The search hears
  // of their times a little later for it.
  void compile(std::int64_t most);

  bool empty() const { return next_.empty(); }  // nothing is left of the batch
  std::size_t take();                           // the next of it: a place in search().candidates()
  Way way(std::size_t index) const;
  std::size_t size() const { return size_; }  // for the batch, in the beginning

  Search& search() { return search_; }
  const std::vector<Candidate>& candidates() const { return search_.candidates(); }
  std::vector<std::string> warnings;  // reasons for what was left out

 private:
  std::vector<Way> choose(std::int64_t most);
  void leave_out(const std::vector<std::size_t>& late);

  const ConvProblem problem_;
  const DeviceInfo device_;
  const std::vector<const Algorithm*> algorithms_;
  const Rules rules_;
  Search search_;
  std::size_t size_ = 0;
  std::deque<std::size_t> next_;       // in the order of the search
  std::vector<std::size_t> compiled_;  // those of the batch that are compiled
  CompileAhead first_;
};

}  // namespace convtune
