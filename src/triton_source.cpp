// Finds @triton.autotune, reads its list, and writes the file again. The grammar of a list is small on
// purpose: what is not literal cannot be changed without running the file, and is refused with its line.
#include "triton_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "convtune/error.h"
#include "quoted.h"

namespace convtune {
namespace {

using Is = PythonStatement::Kind;
using Kind = PythonToken::Kind;

// "triton.autotune" at `i`: the token after it, or i.
std::size_t after_dotted(PythonTokens tokens, std::size_t i, std::string_view module, std::string_view name) {
  const auto is = [&](std::size_t at, std::string_view what) {
    return at < tokens.size() && tokens[at].is(what);
  };
  if (is(i, module) && is(i + 1, ".") && is(i + 2, name)) return i + 3;
  if (is(i, name) && (i == 0 || !tokens[i - 1].is("."))) return i + 1;
  return i;
}

// The decorators of a definition, each from behind its '@' to its line's end.
std::vector<PythonTokens> decorators_of(const PythonStatement& statement) {
  std::vector<PythonTokens> all;
  for (std::size_t i = 0; i < statement.tokens.size() && statement.tokens[i].is("@");) {
    std::size_t end = i;
    while (statement.tokens[end].kind != Kind::line_end) ++end;
    all.push_back(statement.tokens.subspan(i + 1, end - i - 1));
    i = end + 1;
  }
  return all;
}

bool is_decorator(PythonTokens decorator, std::string_view name) {
  return after_dotted(decorator, 0, "triton", name) != 0;
}

bool is_kernel(const PythonStatement& statement) {
  const auto decorators = decorators_of(statement);
  return std::any_of(decorators.begin(), decorators.end(),
                     [](PythonTokens d) { return is_decorator(d, "jit"); });
}

// The arguments of a call, whose '(' is the first token: each from its first token to before its ','.
std::vector<PythonTokens> arguments(PythonTokens call) {
  std::vector<PythonTokens> all;
  const std::size_t close = after_bracket(call, 0) - 1;
  std::size_t begin = 1;
  for (std::size_t i = 1; i <= close; ++i) {
    if (i == close || call[i].is(",")) {
      if (i > begin) all.push_back(call.subspan(begin, i - begin));
      begin = i + 1;
    } else if (call[i].is("(") || call[i].is("[") || call[i].is("{")) {
      i = after_bracket(call, i) - 1;
    }
  }
  return all;
}

// "name=value" -> name and the tokens of value; no name for a positional argument.
std::pair<std::string_view, PythonTokens> named(PythonTokens argument) {
  if (argument.size() > 2 && argument[0].kind == Kind::name && argument[1].is("="))
    return {argument[0].text, argument.subspan(2)};
  return {{}, argument};
}

constexpr const char* kNotLiteral =
    "the configs must be a literal list of triton.Config({...}, num_warps=N, num_stages=N): ";

// A number, a truth value or a plain string, as it stands.
std::string literal(PythonTokens value, const std::string& what) {
  if (value.size() == 1) {
    const PythonToken& token = value[0];
    if (whole_number(token) >= 0 || token.is("True") || token.is("False") || token.is("None") ||
        !plain_text(token).empty())
      return std::string(token.text);
  }
  fail_at_line(value[0].line, fmt::format("{}{} is not a literal", kNotLiteral, what));
}

std::int64_t number(PythonTokens value, std::string_view what) {
  const std::int64_t number = value.size() == 1 ? whole_number(value[0]) : -1;
  if (number < 0 || number > 1024)
    fail_at_line(value[0].line, fmt::format("{}{} must be a whole number from 0 to 1024", kNotLiteral, what));
  return number;
}

void read_meta(PythonTokens dict, TritonConfig& config) {
  if (!dict[0].is("{") || after_bracket(dict, 0) != dict.size())
    fail_at_line(dict[0].line, std::string(kNotLiteral) + "the first argument is not a literal dict");
  for (const PythonTokens entry : arguments(dict)) {
    if (entry.size() < 3 || plain_text(entry[0]).empty() || !entry[1].is(":"))
      fail_at_line(entry[0].line, std::string(kNotLiteral) + "an entry of the dict is not 'NAME': value");
    const std::string name(plain_text(entry[0]));
    if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") !=
        name.npos)
      fail_at_line(entry[0].line, convtune::quoted(name) + " is no parameter's name");
    for (const auto& [known, value] : config.meta)
      if (known == name) fail_at_line(entry[0].line, convtune::quoted(name) + " stands in the dict twice");
    config.meta.emplace_back(name, literal(entry.subspan(2), convtune::quoted(name)));
  }
}

TritonConfig read_config(PythonTokens item) {
  TritonConfig config;
  config.line = item[0].line;
  const std::size_t open = after_dotted(item, 0, "triton", "Config");
  if (open == 0 || open >= item.size() || !item[open].is("(") || after_bracket(item, open) != item.size())
    fail_at_line(config.line,
                 fmt::format("{}{} is not one", kNotLiteral, convtune::quoted(item[0].text, 30)));
  bool first = true, has_meta = false;
  std::set<std::string_view> names;
  for (const PythonTokens argument : arguments(item.subspan(open))) {
    const auto [name, value] = named(argument);
    if (!name.empty() && !names.insert(name).second)
      fail_at_line(argument[0].line, convtune::quoted(name) + " stands in the config twice");
    if (value.empty()) fail_at_line(argument[0].line, std::string(kNotLiteral) + "an argument has no value");
    if ((first && name.empty()) || name == "kwargs") {
      read_meta(value, config);
      has_meta = true;
    } else if (name == "num_warps") {
      config.num_warps = number(value, name);
      if (config.num_warps < 1) fail_at_line(value[0].line, "num_warps must be at least 1");
    } else if (name == "num_stages") {
      config.num_stages = number(value, name);
    } else if (name.empty()) {
      fail_at_line(argument[0].line, std::string(kNotLiteral) + "an argument after the first has no name");
    } else {
      config.extra.emplace_back(name, literal(value, convtune::quoted(name)));
    }
    first = false;
  }
  if (!has_meta) fail_at_line(config.line, std::string(kNotLiteral) + "a config without its dict");
  return config;
}

// Only loops over tl.static_range, and at least one.
bool all_loops_static(const PythonStatement& kernel) {
  bool any = false;
  for (std::size_t i = 0; i + 1 < kernel.tokens.size(); ++i) {
    if (kernel.tokens[i].is("while")) return false;
    if (!kernel.tokens[i].is("for")) continue;
    std::size_t in = i;
    while (in < kernel.tokens.size() && !kernel.tokens[in].is("in")) ++in;
    if (after_dotted(kernel.tokens, in + 1, "tl", "static_range") == in + 1) return false;
    any = true;
  }
  return any;
}

bool is_test(const PythonStatement& statement) {
  return statement.kind == Is::main_guard ||
         (statement.kind == Is::function &&
          (statement.name == "get_inputs" || statement.name == "get_init_inputs" ||
           statement.name.starts_with("test_")));
}

// The four that every such file begins with, in this order; then the others, as they come.
int import_rank(const PythonStatement& statement) {
  std::string words;
  for (const PythonToken& token : statement.tokens) {
    words += token.text;
    words += ' ';
  }
  while (words.ends_with(' ')) words.pop_back();
  if (words.starts_with("from __future__")) return 0;
  constexpr std::array<std::string_view, 4> kFirst = {"import torch", "import torch . nn as nn",
                                                      "import triton", "import triton . language as tl"};
  const auto found = std::find(kFirst.begin(), kFirst.end(), words);
  return 1 + static_cast<int>(found - kFirst.begin());
}

// Where a statement belongs: sections in order, and a place within the imports.
std::pair<int, int> place_of(const PythonStatement& statement) {
  switch (statement.kind) {
    case Is::text:
      return {0, 0};
    case Is::import:
      return {1, import_rank(statement)};
    case Is::assignment:
      return {2, 0};
    case Is::function:
      return {is_kernel(statement) ? 3 : 4, 0};
    default:
      return {5, 0};
  }
}

}  // namespace

std::string to_string(const TritonConfig& config) {
  std::string text;
  for (const auto& [name, value] : config.meta) text += fmt::format("{}={} ", name, value);
  for (const auto& [name, value] : config.extra) text += fmt::format("{}={} ", name, value);
  return text + to_string(config.stage());
}

TritonSource::TritonSource(std::string_view source)
    : source_(source),
      tokens_(std::make_shared<const std::vector<PythonToken>>(python_tokens(source))),
      statements_(python_statements(source, *tokens_)) {
  find_kernel();
}

void TritonSource::find_kernel() {
  const PythonStatement* found = nullptr;
  PythonTokens list;
  int kernel_line = 0;
  for (const PythonStatement& statement : statements_) {
    if (statement.kind != Is::function) continue;
    if (is_kernel(statement)) kernel_line = statement.line;
    for (const PythonTokens decorator : decorators_of(statement)) {
      if (!is_decorator(decorator, "autotune")) continue;
      if (found)
        fail_at_line(
            decorator[0].line,
            fmt::format("{} is a second autotuned kernel beside {} (line {}); refine one file a kernel",
                        convtune::quoted(statement.name), convtune::quoted(found->name), found->line));
      found = &statement, list = decorator;
    }
  }
  if (!found)
    fail_at_line(std::max(kernel_line, 1), kernel_line
                                               ? "this kernel has no @triton.autotune list"
                                               : "the file has no kernel with an @triton.autotune list");
  if (!is_kernel(*found))
    fail_at_line(found->line, convtune::quoted(found->name) + " is autotuned and no @triton.jit");
  kernel_ = found->name;
  only_static_loops_ = all_loops_static(*found);
  read_list(list);
}

void TritonSource::read_list(PythonTokens decorator) {
  const std::size_t open = after_dotted(decorator, 0, "triton", "autotune");
  if (open >= decorator.size() || !decorator[open].is("("))
    fail_at_line(decorator[0].line, "@triton.autotune has no list of configs");
  PythonTokens list;
  bool first = true;
  for (const PythonTokens argument : arguments(decorator.subspan(open))) {
    const auto [name, value] = named(argument);
    if (name == "configs" || (first && name.empty())) list = value;
    first = false;
  }
  if (list.empty()) fail_at_line(decorator[0].line, "@triton.autotune has no list of configs");
  if (!list[0].is("[") || after_bracket(list, 0) != list.size())
    fail_at_line(list[0].line, std::string(kNotLiteral) + "this is computed");
  for (const PythonTokens item : arguments(list)) configs_.push_back(read_config(item));
  if (configs_.empty()) fail_at_line(list[0].line, "the list of configs is empty");
  for (const TritonConfig& config : configs_)
    for (const TritonConfig& other : configs_)
      if (&config < &other && to_string(config) == to_string(other))
        fail_at_line(other.line, fmt::format("the config of line {} stands here again", config.line));
  list_begin_ = list.front().at, list_end_ = list.back().end();
}

std::string TritonSource::with_configs(const std::vector<Listed>& list,
                                       std::vector<std::string>& notes) const {
  const std::string line_end = source_.find("\r\n") == source_.npos ? "\n" : "\r\n";
  std::string text = "[" + line_end;
  for (const Listed& entry : list) {
    std::string meta;
    for (const auto& [name, value] : entry.config->meta)
      meta += fmt::format("{}'{}': {}", meta.empty() ? "" : ", ", name, value);
    text += fmt::format("        # {}{}        triton.Config({}            {{{}}},{}", entry.comment,
                        line_end, line_end, meta, line_end);
    text += fmt::format("            num_warps={},{}            num_stages={},{}", entry.stage.warps,
                        line_end, entry.stage.stages, line_end);
    for (const auto& [name, value] : entry.config->extra)
      text += fmt::format("            {}={},{}", name, value, line_end);
    text += "        )," + line_end;
  }
  text += "    ]";
  return with_list(text, notes);
}

std::string TritonSource::in_order(std::vector<std::string>& notes) const {
  return with_list(source_.substr(list_begin_, list_end_ - list_begin_), notes);
}

std::string TritonSource::with_list(std::string_view text, std::vector<std::string>& notes) const {
  const std::string line_end = source_.find("\r\n") == source_.npos ? "\n" : "\r\n";
  std::vector<const PythonStatement*> kept;
  for (const PythonStatement& statement : statements_) {
    if (is_test(statement))
      notes.push_back(fmt::format("line {}: left out, since it only tests", statement.line));
    else if (statement.kind == Is::other || statement.kind == Is::main_guard)
      fail_at_line(statement.line,
                   "only imports, constants, functions and classes can stand in the file's order");
    else
      kept.push_back(&statement);
  }
  std::vector<const PythonStatement*> ordered = kept;
  std::stable_sort(ordered.begin(), ordered.end(), [](const PythonStatement* a, const PythonStatement* b) {
    return place_of(*a) < place_of(*b);
  });
  // A constant may be made from anything before it: where it would move, the order is the author's to change.
  for (std::size_t i = 0, first_other = kept.size(); i < kept.size(); ++i) {
    if (place_of(*kept[i]).first > 2) first_other = std::min(first_other, i);
    if (kept[i]->kind == Is::assignment && i > first_other)
      fail_at_line(kept[i]->line,
                   "a constant after a kernel or function; constants must stand after the imports");
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (kept[i] != ordered[i]) {
      notes.emplace_back("the order is now: imports, constants, kernels, other functions, classes");
      break;
    }

  std::string result(source_.substr(0, source_.starts_with("\xef\xbb\xbf") ? 3 : 0));
  for (const PythonStatement* statement : ordered) {
    std::string part(source_.substr(statement->begin, statement->end - statement->begin));
    if (statement->begin <= list_begin_ && list_end_ <= statement->end)
      part.replace(list_begin_ - statement->begin, list_end_ - list_begin_, text);
    if (!part.empty() && part.back() != '\n') part += line_end;
    result += part;
  }
  if (!statements_.empty()) result += source_.substr(statements_.back().end);  // comments at the end
  return result;
}

}  // namespace convtune
