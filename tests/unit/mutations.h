// Foreign text for readers: texts that are right, then cut, spliced and changed at random. The same texts
// on every machine; CONVTUNE_FUZZ_SECONDS=600 goes on for that long instead of a fixed count.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/random_bits.h"

namespace convtune {

// A few random edits of one of the corpus's texts; `number` says which.
inline std::string mutation(const std::vector<std::string>& corpus, std::uint64_t number) {
  std::uint64_t draws = 0;
  const auto below = [&](std::size_t limit) {
    return limit == 0 ? std::size_t{0} : static_cast<std::size_t>(random_bits(number, draws++) % limit);
  };
  // Texts that readers of JSON, numbers and program text stumble over.
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "(",
                                                   ")",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "'",
                                                   "\\",
                                                   "\n",
                                                   "\r",
                                                   "\t",
                                                   "#",
                                                   "@",
                                                   "=",
                                                   "*",
                                                   "\"\"\"",
                                                   "'''",
                                                   "\\\n",
                                                   "-1",
                                                   "0",
                                                   "1e999",
                                                   "1e-999",
                                                   "99999999999999999999",
                                                   "null",
                                                   "true",
                                                   "NaN",
                                                   "\xff",
                                                   std::string(1, '\0'),
                                                   "\xef\xbb\xbf",
                                                   "\\u0000",
                                                   "\x1b[31m",
                                                   "f\"{x}\"",
                                                   "lambda",
                                                   "for",
                                                   "    "};
  std::string text = corpus[below(corpus.size())];
  for (std::size_t edits = 1 + below(6); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1), length = below(below(4) == 0 ? text.size() - at + 1 : 8);
    switch (below(6)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
      case 3: {
        const std::string& other = corpus[below(corpus.size())];
        text.insert(at, other.substr(below(other.size() + 1), length));
        break;
      }
      case 4:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      default:
        text.resize(below(8) == 0 ? at : text.size());
    }
  }
  return text;
}

template <class Function>
void for_each_mutation(const std::vector<std::string>& corpus, std::uint64_t count, Function function) {
  const char* const wanted = std::getenv("CONVTUNE_FUZZ_SECONDS");
  const double seconds = wanted ? std::atof(wanted) : 0;
  const auto start = std::chrono::steady_clock::now();
  const auto time_left = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds;
  };
  for (std::uint64_t number = 0; seconds > 0 ? time_left() : number < count; ++number)
    function(mutation(corpus, number));
}

}  // namespace convtune
