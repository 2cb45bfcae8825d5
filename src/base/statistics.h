// Robust centre and doubt of a handful of timings. Pure functions; deterministic.
#pragma once

#include <span>

#include "convtune/interval.h"

namespace convtune {

double median(std::span<const double> samples);  // 0 for none
// Median absolute deviation from the median (not scaled to a standard deviation).
double median_absolute_deviation(std::span<const double> samples);

// Spearman's: the correlation of the ranks, those of equal values averaged; 0 where either is all equal.
// The spans must be of one length.
double rank_correlation(std::span<const double> one, std::span<const double> other);

// Interval between two order statistics (the sign test turned round): holds the median with at least
// `confidence` whatever the distribution and however few the samples, where a bootstrap of 10 samples
// is wrong twice as often as it says. The whole line where the samples are too few to say anything.
Interval exact_median_interval(std::span<const double> samples, double confidence);

}  // namespace convtune
