// Packed weights, in words of 4 bytes: prepared as one kernel reads them, all weights as they came (but where
// they can be read among the prepared ones), the biases, zeros for filters that a block has beyond the last,
// and a flag.
//
// The flag is not 0 where a prepared weight is not finite: an infinity would make NaN of the zeros that
// padding puts into its products. What counts is the number that is multiplied, and so it is looked at after
// rounding, which makes infinities of the largest numbers: a kernel that rounds nothing flags those weights
// alone that are not finite as they came.
#pragma once

namespace convtune {

struct Packed {
  long long prepared = 0, weights = 0, biases = 0;  // counts; weights that are copied as they came
  bool flagged = true;                              // else the kernel finds out by its sums
  long long zeros = 0;  // behind the biases, where a kernel reads those of whole blocks
  int unit = 1;         // prepared words that a thread packs

  // Describes weights in half precision: a thread packs 16 bytes of them.
  static constexpr Packed halves(long long prepared, long long weights, long long biases,
                                 bool flagged = true) {
    return {prepared, weights, biases, flagged, 0, 4};
  }
  // Few weights, whose places take long to work out: eight of them in a thread would be most of what its
  // compiler does.
  static constexpr Packed few_halves(long long prepared, long long weights, long long biases,
                                     bool flagged = true) {
    return {prepared, weights, biases, flagged};
  }

  constexpr long long exact_at() const { return prepared; }
  constexpr long long bias_at() const { return prepared + weights; }
  constexpr long long flag_at() const { return bias_at() + biases + zeros; }
  constexpr long long words() const { return flag_at() + flagged; }
  // Threads that pack (tile/pack.cuh): one for each unit, and for each word behind them.
  constexpr long long threads() const { return prepared / unit + flag_at() - prepared; }
  constexpr bool launchable() const { return words() / 256 < (1LL << 31) - 1; }
};

}  // namespace convtune
