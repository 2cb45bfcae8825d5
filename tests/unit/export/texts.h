// Looks for what an exported file says, and a class of two layers, constructed in another order than it
// applies them.
#pragma once

#include <string>

#include "convtune/export.h"

namespace convtune::exported {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

inline ExportModule depthwise_and_pointwise() {
  ExportModule module;
  module.parameters = "channels, bias=False";
  module.layers = {ExportLayer(parse_problem("mb16ic64ih112oc16kh1 bias=0")),
                   ExportLayer(parse_problem("g64mb16ic64ih112oc64kh3ph1 bias=0"))};
  module.layers[0].name = "pointwise", module.layers[0].arguments = "channels, 16, 1, bias=bias";
  module.layers[1].name = "depthwise", module.layers[1].arguments = "channels, channels, 3, padding='same'";
  module.layers[1].varies = true;
  module.layers[1].padding_word = "'same'";
  module.chain = {1, 0};
  return module;
}

}  // namespace convtune::exported
