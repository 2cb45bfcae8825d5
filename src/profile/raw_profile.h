// A profile on its way from any of its forms: launches with metrics as they stand in the file, and what
// becomes of them by the one table of metrics, once all numbers have been seen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convtune/error.h"
#include "convtune/metrics.h"
#include "profile/metric_table.h"
#include "profile/number_format.h"

namespace convtune {

class RawProfile {
 public:
  // `what` begins its errors: "ncu's table". `sorted`: metrics come in the order of the table of metrics.
  RawProfile(std::string what, bool sorted) : what_(std::move(what)), sorted_(sorted) {}

  // Begins a launch. Throws Error{invalid_argument} where there are too many, or for a name that is none.
  void launch(std::string kernel);
  void rename(std::string kernel);  // the launch that is open
  bool empty() const { return launches_.empty(); }

  // Into the launch that is open. A name that the table does not have is passed over, but for its number's
  // say in the format of numbers.
  void add(std::string_view name, std::string_view unit, std::string_view text);
  // A number that is one already; under a name that is not in the table it is kept as it is.
  void add(std::string_view name, std::string_view unit, double value);

  // Throws Error{invalid_argument} that names metric and kernel for what is no number of its unit.
  std::vector<KernelMetrics> read() const;

 private:
  struct Value {
    const Metric* metric;  // null: a name of its own
    std::string name, text;
    double number, scale;
  };
  struct Launch {
    std::string kernel;
    std::vector<Value> values;
  };
  Error bad(const std::string& why) const;
  const Metric* metric_of(std::string_view name, std::string_view unit, double& scale) const;
  double number_of(const Value& value, const std::string& kernel, std::string& note) const;

  std::string what_;
  bool sorted_;
  std::vector<Launch> launches_;
  NumberFormat format_;
};

}  // namespace convtune
