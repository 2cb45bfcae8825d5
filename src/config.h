// An algorithm's typed config <-> the named integers that everyone above it sees.
//
// A config struct lists its fields once:
//
//   struct DirectConfig {
//     int channels = 6, vectors = 4;
//     template <class Self, class F> static void visit(Self& self, F&& field) {
//       field("channels", self.channels);
//       field("vectors", self.vectors);
//     }
//   };
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "convtune/error.h"

namespace convtune {

template <class T>
Config to_config(const T& typed) {
  Config config;
  T::visit(typed, [&](const char* name, const auto& value) {
    config.values.emplace_back(name, static_cast<std::int64_t>(value));
  });
  return config;
}

// Throws Error{invalid_argument} for a missing or unknown name: records come from outside.
template <class T>
T from_config(const Config& config) {
  T typed;
  std::size_t fields = 0;
  T::visit(typed, [&](const char* name, auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(config.at(name));
    ++fields;
  });
  if (fields != config.values.size())
    throw Error(ErrorKind::invalid_argument,
                "config '" + to_string(config) + "' has fields that the algorithm does not know");
  return typed;
}

}  // namespace convtune
