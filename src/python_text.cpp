// A tokenizer after Python's own reference (lexical analysis), and the grouping of lines into statements.
#include "python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "convtune/error.h"
#include "quoted.h"

namespace convtune {
namespace {

using Kind = PythonToken::Kind;
constexpr std::size_t kMaxDepth = 200;  // Python's own limit of nested brackets, and double its indentation's

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool in_name(char c) {
  return starts_name(c) || is_digit(c);
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view source) : source_(source) {}

  std::vector<PythonToken> run() {
    if (source_.size() > kMaxPythonBytes)
      throw Error(ErrorKind::invalid_argument, fmt::format("the source has {} bytes; at most {} are read",
                                                           source_.size(), kMaxPythonBytes));
    if (source_.starts_with("\xef\xbb\xbf")) at_ = 3;
    while (at_ < source_.size()) {
      if (line_begins_) indentation();
      if (at_ < source_.size()) token();
    }
    if (!open_.empty())
      fail_at_line(open_.back().line, fmt::format("'{}' is never closed", open_.back().text));
    if (!line_begins_) line_end();
    for (; indents_.size() > 1; indents_.pop_back()) add(Kind::dedent, at_, 0);
    add(Kind::file_end, at_, 0);
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool at_line_end() const { return peek() == '\n' || (peek() == '\r' && peek(1) == '\n'); }

  void add(Kind kind, std::size_t at, std::size_t bytes) {
    tokens_.push_back({kind, source_.substr(at, bytes), line_, at});
  }
  void line_end() {
    add(Kind::line_end, at_, 0);
    line_begins_ = true;
  }
  void next_line() {
    at_ += peek() == '\r' ? 2 : 1;
    ++line_;
  }

  // Blank lines and lines of comments alone have no indentation.
  void indentation() {
    const std::size_t begin = at_;
    std::size_t width = 0;
    bool tabs = false;
    for (; peek() == ' ' || peek() == '\t' || peek() == '\f'; ++at_) {
      tabs |= peek() == '\t';
      width = peek() == '\f' ? 0 : width + 1;
    }
    if (at_ >= source_.size() || at_line_end() || peek() == '#') return;
    if (tabs && source_.substr(begin, at_ - begin).find(' ') != std::string_view::npos)
      fail_at_line(line_, "blanks and tabs are mixed in an indentation");
    line_begins_ = false;
    if (width > indents_.back()) {
      if (indents_.size() == kMaxDepth) fail_at_line(line_, "too many levels of indentation");
      indents_.push_back(width);
      add(Kind::indent, at_, 0);
    }
    for (; width < indents_.back(); indents_.pop_back()) add(Kind::dedent, at_, 0);
    if (width != indents_.back()) fail_at_line(line_, "the indentation fits no block around it");
  }

  void token() {
    const char c = peek();
    if (at_line_end()) {
      if (open_.empty() && !line_begins_) line_end();
      return next_line();
    }
    if (c == ' ' || c == '\t' || c == '\f') {
      ++at_;
    } else if (c == '#') {
      while (at_ < source_.size() && !at_line_end()) ++at_;
    } else if (c == '\\') {
      ++at_;
      if (!at_line_end()) fail_at_line(line_, "a backslash that does not end its line");
      next_line();
      if (at_ >= source_.size()) fail_at_line(line_, "the text ends after a backslash");
    } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
      number();
    } else if (const std::size_t prefix = text_prefix(); prefix != kNoText) {
      text(prefix);
    } else if (starts_name(c)) {
      const std::size_t begin = at_;
      while (in_name(peek())) ++at_;
      add(Kind::name, begin, at_ - begin);
    } else {
      symbol();
    }
  }

  void number() {
    const std::size_t begin = at_;
    while (in_name(peek()) || peek() == '.' ||
           ((peek() == '+' || peek() == '-') && (source_[at_ - 1] == 'e' || source_[at_ - 1] == 'E') &&
            !source_.substr(begin).starts_with("0x")))
      ++at_;
    add(Kind::number, begin, at_ - begin);
  }

  // Letters before the quote of a string here, or that there is none.
  static constexpr std::size_t kNoText = 9;
  std::size_t text_prefix() const {
    for (std::size_t letters = 0; letters <= 2; ++letters) {
      const char c = peek(letters);
      if (c == '"' || c == '\'') return letters;
      if (std::string_view("rRbBuUfF").find(c) == std::string_view::npos || c == '\0') return kNoText;
    }
    return kNoText;
  }

  void text(std::size_t prefix) {
    const std::size_t begin = at_;
    const int first_line = line_;
    at_ += prefix;
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    for (;;) {
      if (at_ >= source_.size() || (!triple && at_line_end()))
        fail_at_line(first_line, "a string is never closed");
      if (peek() == '\\' && at_ + 1 < source_.size()) {
        ++at_;
        if (at_line_end())
          next_line();
        else
          ++at_;
      } else if (at_line_end()) {
        next_line();
      } else if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        break;
      } else {
        ++at_;
      }
    }
    tokens_.push_back({Kind::text, source_.substr(begin, at_ - begin), first_line, begin});
  }

  void symbol() {
    constexpr std::array<std::string_view, 24> kLong = {"**=", "//=", ">>=", "<<=", "...", "**", "//", ">>",
                                                        "<<",  "->",  "+=",  "-=",  "*=",  "/=", "%=", "&=",
                                                        "|=",  "^=",  "==",  "!=",  "<=",  ">=", ":=", "@="};
    constexpr std::string_view kOne = "+-*/%@&|^~<>()[]{},:.;=";
    for (const std::string_view text : kLong)
      if (source_.substr(at_).starts_with(text)) return push_symbol(text.size());
    const char c = peek();
    if (kOne.find(c) == std::string_view::npos)
      fail_at_line(line_, fmt::format("{} begins nothing that Python knows", quoted(source_.substr(at_, 1))));
    if (c == '(' || c == '[' || c == '{') {
      if (open_.size() == kMaxDepth) fail_at_line(line_, "too many nested brackets");
      push_symbol(1);
      open_.push_back(tokens_.back());
      return;
    }
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty()) fail_at_line(line_, fmt::format("'{}' closes nothing", c));
      if (open_.back().text[0] != wanted)
        fail_at_line(line_,
                     fmt::format("'{}' closes the '{}' of line {}", c, open_.back().text, open_.back().line));
      open_.pop_back();
    }
    push_symbol(1);
  }
  void push_symbol(std::size_t bytes) {
    add(Kind::symbol, at_, bytes);
    at_ += bytes;
  }

  const std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<std::size_t> indents_ = {0};
  std::vector<PythonToken> open_;
  std::vector<PythonToken> tokens_;
};

bool opens_block(const PythonToken& first) {
  constexpr std::array<std::string_view, 13> kWords = {"def", "class", "if",   "elif",   "else",
                                                       "for", "while", "with", "except", "finally",
                                                       "try", "async", "match"};
  return first.is("case") ||
         std::any_of(kWords.begin(), kWords.end(), [&](auto word) { return first.is(word); });
}

// Blocks begin after a line that ends with ':', and nowhere else.
void check_blocks(const std::vector<PythonToken>& tokens) {
  for (std::size_t i = 0, first = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == Kind::indent && (i == 0 || tokens[i - 1].kind != Kind::line_end))
      fail_at_line(tokens[i].line, "an indentation that no line before asks for");
    if (tokens[i].kind == Kind::indent || tokens[i].kind == Kind::dedent) first = i + 1;
    if (tokens[i].kind != Kind::line_end) continue;
    const bool asks = i > first && tokens[i - 1].is(":") && opens_block(tokens[first]);
    const bool given = tokens[i + 1].kind == Kind::indent;  // file_end stands after every line_end
    if (asks && !given) fail_at_line(tokens[i - 1].line, "an indented block must follow this line");
    if (given && !asks) fail_at_line(tokens[i + 1].line, "an indentation that no line before asks for");
    first = i + 1;
  }
}

// `first` is a statement's first token. One past its last, a block's dedent included.
std::size_t statement_end(const std::vector<PythonToken>& tokens, std::size_t first) {
  int depth = 0;
  for (std::size_t i = first;; ++i) {
    if (tokens[i].kind == Kind::file_end) return i;
    if (tokens[i].kind == Kind::indent) ++depth;
    if (tokens[i].kind == Kind::dedent) --depth;
    const bool over = tokens[i].kind == Kind::line_end || tokens[i].kind == Kind::dedent;
    if (over && depth == 0 && tokens[i + 1].kind != Kind::indent) return i + 1;
  }
}

bool is_assignment(PythonTokens tokens) {
  int depth = 0;
  for (const PythonToken& token : tokens) {
    if (token.is("(") || token.is("[") || token.is("{")) ++depth;
    if (token.is(")") || token.is("]") || token.is("}")) --depth;
    if (depth == 0 && token.is("=")) return true;
    if (token.kind == Kind::line_end) break;
  }
  return false;
}

bool has(PythonTokens tokens, std::string_view symbol) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const PythonToken& token) { return token.is(symbol); });
}

// Sets kind and name. `head` is the first token after the decorators.
void classify(PythonStatement& statement, std::size_t head) {
  using Is = PythonStatement::Kind;
  const PythonTokens rest = statement.tokens.subspan(head);
  const auto is = [&](std::size_t i, std::string_view word) { return i < rest.size() && rest[i].is(word); };
  const std::size_t definition = is(0, "async") ? 1 : 0;
  if (is(definition, "def") || is(0, "class")) {
    if (definition + 2 >= rest.size() || rest[definition + 1].kind != Kind::name ||
        !(is(definition + 2, "(") || (is(0, "class") && is(2, ":"))))
      fail_at_line(rest[0].line, "a definition that has no name");
    const std::size_t after = is(definition + 2, "(") ? after_bracket(rest, definition + 2) : definition + 2;
    if (!is(after, ":") && !is(after, "->"))
      fail_at_line(rest[after - 1].line, "a definition without its ':'");
    statement.kind = is(0, "class") ? Is::class_definition : Is::function;
    statement.name = rest[definition + 1].text;
  } else if (head > 0) {
    fail_at_line(rest.empty() ? statement.line : rest[0].line, "a decorator must stand before a definition");
  } else if ((is(0, "import") || is(0, "from")) && !has(rest, ";")) {
    statement.kind = Is::import;
  } else if (is(0, "if")) {
    if (is(1, "__name__") || (rest.size() > 3 && is(2, "==") && is(3, "__name__")))
      statement.kind = Is::main_guard;
  } else if (rest[0].kind == Kind::text && rest.size() == 2) {
    statement.kind = Is::text;
  } else if (rest[0].kind == Kind::name && is_assignment(rest) && !has(rest, ";")) {
    statement.kind = Is::assignment;
  }
}

}  // namespace

std::vector<PythonToken> python_tokens(std::string_view source) {
  std::vector<PythonToken> tokens = Tokenizer(source).run();
  check_blocks(tokens);
  return tokens;
}

std::vector<PythonStatement> python_statements(std::string_view source,
                                               const std::vector<PythonToken>& tokens) {
  std::vector<PythonStatement> statements;
  std::size_t begin = source.starts_with("\xef\xbb\xbf") ? 3 : 0;
  for (std::size_t first = 0; first < tokens.size() && tokens[first].kind != Kind::file_end;) {
    PythonStatement statement;
    statement.line = tokens[first].line;
    std::size_t head = first;
    while (tokens[head].is("@")) head = statement_end(tokens, head);
    if (tokens[head].kind == Kind::file_end)
      fail_at_line(statement.line, "a decorator must stand before a definition");
    std::size_t last = statement_end(tokens, head);
    // An if's elif and else, a try's except: one statement with what they belong to.
    while (last < tokens.size() && (tokens[last].is("elif") || tokens[last].is("else") ||
                                    tokens[last].is("except") || tokens[last].is("finally")))
      last = statement_end(tokens, last);
    statement.tokens = PythonTokens(tokens).subspan(first, last - first);
    classify(statement, head - first);
    // To the end of the line of the last code, with a comment behind it.
    std::size_t code_end = 0;
    for (const PythonToken& token : statement.tokens)
      if (token.kind != Kind::dedent && token.kind != Kind::indent)
        code_end = std::max(code_end, token.end());
    const std::size_t line_break = source.find('\n', code_end);
    statement.begin = begin;
    statement.end = begin = line_break == source.npos ? source.size() : line_break + 1;
    statements.push_back(std::move(statement));
    first = last;
  }
  return statements;
}

std::size_t after_bracket(PythonTokens tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i].is("(") || tokens[i].is("[") || tokens[i].is("{")) ++depth;
    if (tokens[i].is(")") || tokens[i].is("]") || tokens[i].is("}")) --depth;
    if (depth == 0) return i + 1;
  }
  return tokens.size();
}

std::string_view plain_text(const PythonToken& token) {
  std::string_view text = token.text;
  if (token.kind != Kind::text || text.size() < 2 || (text[0] != '\'' && text[0] != '"')) return {};
  if (text.size() >= 6 && text[1] == text[0] && text[2] == text[0]) return {};
  text = text.substr(1, text.size() - 2);
  return text.find_first_of("\\\n\r") == text.npos ? text : std::string_view();
}

std::int64_t whole_number(const PythonToken& token) {
  if (token.kind != Kind::number || token.text.size() > 18 || !is_digit(token.text.back())) return -1;
  if (token.text.size() > 1 && token.text[0] == '0') return -1;  // no decimal number, or none at all
  std::int64_t value = 0;
  for (const char c : token.text) {
    if (c == '_') continue;
    if (!is_digit(c)) return -1;
    value = 10 * value + (c - '0');
  }
  return value;
}

void fail_at_line(int line, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("line {}: {}", line, why));
}

}  // namespace convtune
