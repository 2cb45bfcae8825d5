// A struct of choices <-> the named integers that everyone above it sees. The struct lists its fields once,
// and their text, its reader, refusals, the spelling in CUDA C++ and the documentation follow from that:
//
//   struct DirectConfig {
//     int channels = 6, vectors = 4;
//     template <class Self, class F> static constexpr void visit(Self& self, F&& field) {
//       field("channels", self.channels, 1, 64, "output channels of a register tile");
//       field("vectors", self.vectors, 1, 16, "vectors of output columns of a register tile");
//     }
//   };
//
// A field without a range and a meaning is no choice: it follows from the problem or the device.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "convtune/config.h"
#include "convtune/error.h"

namespace convtune {

// Calls choice(name, value, least, most, meaning) for each field of `typed` that is one.
template <class T, class F>
void visit_choices(T& typed, F&& choice) {
  std::remove_const_t<T>::visit(typed, [&](const char* name, auto& value, auto... about) {
    if constexpr (sizeof...(about) > 0) choice(name, value, about...);
  });
}

template <class T>
Config to_config(const T& typed) {
  Config config;
  visit_choices(typed, [&](const char* name, const auto& value, std::int64_t, std::int64_t, const char*) {
    config.values.emplace_back(name, static_cast<std::int64_t>(value));
  });
  return config;
}

template <class T>
std::vector<Config> to_configs(const std::vector<T>& typed) {
  std::vector<Config> configs;
  for (const T& one : typed) configs.push_back(to_config(one));
  return configs;
}

// `typed` with the config's choices. Throws Error{invalid_argument} for a missing or unknown name and for a
// value out of its field's range: records come from outside.
template <class T>
T from_config(const Config& config, T typed = {}) {
  std::size_t fields = 0;
  visit_choices(typed,
                [&](const char* name, auto& value, std::int64_t least, std::int64_t most, const char*) {
                  const std::int64_t given = config.at(name);
                  if (given < least || given > most)
                    throw Error(ErrorKind::invalid_argument,
                                fmt::format("{} must be {} to {}, not {}", name, least, most, given));
                  value = static_cast<std::remove_reference_t<decltype(value)>>(given);
                  ++fields;
                });
  if (fields != config.values.size())
    throw Error(ErrorKind::invalid_argument,
                "config '" + to_string(config) + "' has fields that the algorithm does not know");
  return typed;
}

// Describes a choice for people.
struct ConfigField {
  std::string name;
  std::int64_t least = 0, most = 0;
  std::string meaning;
};
template <class T>
std::vector<ConfigField> config_fields(const T& typed = {}) {
  std::vector<ConfigField> fields;
  visit_choices(
      typed, [&](const char* name, const auto&, std::int64_t least, std::int64_t most, const char* meaning) {
        fields.push_back({name, least, most, meaning});
      });
  return fields;
}

}  // namespace convtune
