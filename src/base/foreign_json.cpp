// Two passes of nlohmann's parser: the events of the first, which makes nothing, say whether the second may
// make the tree. The parser itself does not recurse.
#include "base/foreign_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

// The events of nlohmann::json::sax_parse. `failure` says why it stopped.
struct Limits {
  int depth = 0;
  std::size_t values = 0;
  std::string failure;

  bool stop(std::string why) {
    if (failure.empty()) failure = std::move(why);
    return false;
  }
  bool count() {
    return ++values <= kMostJsonValues || stop(fmt::format("has more than {} values", kMostJsonValues));
  }
  bool open() {
    if (++depth > kMostJsonDepth)
      return stop(fmt::format("nests lists and objects more than {} deep", kMostJsonDepth));
    return count();
  }
  bool close() {
    --depth;
    return true;
  }

  bool null() { return count(); }
  bool boolean(bool) { return count(); }
  bool number_integer(std::int64_t) { return count(); }
  bool number_unsigned(std::uint64_t) { return count(); }
  bool number_float(double, const std::string&) { return count(); }
  bool string(std::string&) { return count(); }
  bool binary(nlohmann::json::binary_t&) { return count(); }
  bool start_object(std::size_t) { return open(); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(); }
  bool end_array() { return close(); }
  bool key(std::string&) { return count(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    const std::string_view why =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
    return stop(fmt::format("is not JSON: {}",
                            convtune::quoted(why.substr(std::min(why.size(), why.find("] ") + 2)), 200)));
  }
};

}  // namespace

nlohmann::json parse_foreign_json(std::string_view text) {
  Limits limits;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &limits))
    throw Error(ErrorKind::invalid_argument, limits.failure);
  return nlohmann::json::parse(text.begin(), text.end());
}

}  // namespace convtune
