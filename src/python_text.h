// Python source as text: its tokens and its top-level statements, each with the line it stands in. Enough to
// find a call and replace a part of it without touching a byte beside; never runs anything.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace convtune {

constexpr std::size_t kMaxPythonBytes = std::size_t{4} << 20;

struct PythonToken {
  enum class Kind { name, number, text, symbol, line_end, indent, dedent, file_end };
  Kind kind = Kind::file_end;
  std::string_view text;  // of the source; empty for indent, dedent and file_end
  int line = 1;
  std::size_t at = 0;  // byte in the source

  bool is(std::string_view symbol_or_name) const {
    return (kind == Kind::symbol || kind == Kind::name) && text == symbol_or_name;
  }
  std::size_t end() const { return at + text.size(); }
};
using PythonTokens = std::span<const PythonToken>;

struct PythonStatement {
  enum class Kind { import, function, class_definition, assignment, text, main_guard, other };
  Kind kind = Kind::other;
  std::string name;  // of a function or class
  int line = 1;      // where its code begins: the first decorator, if it has one
  std::size_t begin = 0,
              end = 0;  // bytes, with the comments and blank lines before it, to the end of its last line
  PythonTokens tokens;  // decorators, header and body
};

// Tokens point into the text that they were made of, which must stay where it is. Throws
// Error{invalid_argument}, "line 3: ...", for text that is no Python: a bracket, a quote or an indented block
// that does not end or begin as it must.
std::vector<PythonToken> python_tokens(std::string_view source);
std::vector<PythonStatement> python_statements(std::string_view source,
                                               const std::vector<PythonToken>& tokens);

// The token after the bracket that closes the one at `open`; `tokens` come from python_tokens.
std::size_t after_bracket(PythonTokens tokens, std::size_t open);
// The value of a plain string, "'BLOCK_M'"; anything with a prefix, an escape or a line end is not plain.
std::string_view plain_text(const PythonToken& token);
// A whole number as Python writes it in decimal, "1_024"; -1 for anything else.
std::int64_t whole_number(const PythonToken& token);

[[noreturn]] void fail_at_line(int line, const std::string& why);

}  // namespace convtune
