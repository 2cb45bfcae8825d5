// Is every answer right? Checks algorithms against the double-precision oracle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/target.h"

namespace convtune {

// One wrong answer, with the line that shows it again.
struct Mismatch {
  ConvProblem problem;
  std::string algorithm;
  Config config;
  std::string what;   // "y[0,3,1,2] = 5, expected 4", "wrote outside y", ...
  std::string repro;  // a command line
};

struct VerifyReport {
  std::int64_t problems = 0;
  std::int64_t checks = 0;      // (problem, algorithm, config) triples run
  std::int64_t compiled = 0;    // of those, with a kernel compiled for this problem alone
  std::int64_t mismatches = 0;  // all of them; the list below keeps the first 20
  std::vector<Mismatch> failures;
  bool interrupted = false;
  std::int64_t special = 0;  // for the checks, on NaN and infinities, or on denormal numbers, too
};

struct VerifyOptions {
  std::string algorithm;   // only this one; empty: every algorithm of the device
  Config config;           // only this config; empty: see each function
  std::uint64_t seed = 1;  // of the data
  // The random sweep takes these types and this layout in place of those that it draws.
  std::optional<DTypes> dtype;
  std::optional<Layout> layout;
  bool depth = false;  // only those of its problems that have one
  bool row = false;    // its problems of one dimension: each as it is along its rows; not with `depth`
  std::optional<Direction> direction;  // only those of its problems that run in this one
  std::function<void(std::int64_t done, std::int64_t total, std::int64_t mismatches)> progress;
  // By the random sweep, and where one problem's candidates are compiled, from a thread of its own, each time
  // that one of them has taken another `stall_ms` milliseconds: which it is, and what it waits for.
  std::function<void(const std::string& what)> stalled;
  std::int64_t stall_ms = 10'000;
  const std::atomic<bool>* cancel = nullptr;
};

// Every candidate config of every algorithm that supports the problem: small-integer data, so sums
// are exact and every output element (a sample of a large output) must be equal; then a few NaN and
// infinities among them, and then denormal numbers, each where the oracle has it; canaries round every
// buffer.
VerifyReport verify(const ConvProblem& problem, Device device, const VerifyOptions& options = {});

// The property sweep: problems number 0 .. count-1 of the sequence that `seed` starts, biased to
// edges, each with several configs; half of them with NaN and infinities too, a quarter with denormal
// numbers. On a GPU, kernels that must be compiled for their problem are checked on one problem in 32, the
// vendor's library on one in 16. Problem i depends on (seed, i) and the options alone. Where they name an
// algorithm, it is one that this algorithm supports, if one of a thousand draws is; and an algorithm whose
// kernels are all compiled for their problem is checked on each.
VerifyReport verify_random(std::int64_t count, std::uint64_t seed, Device device,
                           const VerifyOptions& options = {});

// A kernel that could not be compiled.
struct Uncompiled {
  ConvProblem problem;
  std::string algorithm;
  Config config;
  std::string why;
};

struct CompileReport {
  std::int64_t problems = 0, kernels = 0;
  std::vector<Uncompiled> failures;
  bool interrupted = false;
};

// The kernels that verify() and verify_random() of the same problems and options have compiled for them on a
// GPU like `target`, compiled into the cache and not run: by a machine that has more processors or no GPU. No
// device is touched. Throw Error{unsupported} without NVRTC, and Error{invalid_argument} where the options
// name a vendor's library: it brings its own kernels.
CompileReport compile_candidates(const ConvProblem& problem, const Target& target,
                                 const VerifyOptions& options = {});
CompileReport compile_random(std::int64_t count, std::uint64_t seed, const Target& target,
                             const VerifyOptions& options = {});

}  // namespace convtune
