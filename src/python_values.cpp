// A small evaluator of whole-number Python. Nothing is guessed: an expression that it cannot follow throws,
// and a name that was assigned one is unknown from there on.
#include "python_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "convtune/error.h"
#include "quoted.h"

namespace convtune {
namespace {

using Kind = PythonToken::Kind;

class Evaluator {
 public:
  Evaluator(PythonTokens tokens, const PythonScope& scope) : tokens_(tokens), scope_(scope) {}

  PythonValue run() {
    if (tokens_.empty()) throw Error(ErrorKind::invalid_argument, "an expression is missing");
    PythonValue value = list();
    if (at_ != tokens_.size()) unknown("this");
    return value;
  }

 private:
  bool is(std::string_view text) const { return at_ < tokens_.size() && tokens_[at_].is(text); }
  bool take(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void unknown(std::string_view what) const {
    const PythonToken& token = tokens_[std::min(at_, tokens_.size() - 1)];
    fail_at_line(token.line, fmt::format("{} at {} is more than convtune works out", what,
                                         convtune::quoted(token.text, 30)));
  }
  void want(std::string_view text) {
    if (!take(text)) unknown("this");
  }

  // Used as a number: a pair of equal numbers is what a wrapper may get as one.
  std::int64_t number(const PythonValue& value) const {
    const bool equal = value.type == PythonValue::Type::tuple && value.numbers.size() == 2 &&
                       value.numbers[0] == value.numbers[1];
    if (value.type != PythonValue::Type::number && !equal) unknown("what stands");
    return value.numbers[0];
  }

  // "a, b": a tuple.
  PythonValue list() {
    PythonValue first = sum();
    if (!is(",")) return first;
    PythonValue all{PythonValue::Type::tuple, {number(first)}};
    while (take(",") && at_ < tokens_.size() && !is(")") && !is("]")) all.numbers.push_back(number(sum()));
    return all;
  }

  PythonValue sum() {
    PythonValue left = product();
    while (is("+") || is("-")) {
      const bool plus = tokens_[at_++].is("+");
      const std::int64_t a = number(left), b = number(product());
      std::int64_t result = 0;
      if (plus ? __builtin_add_overflow(a, b, &result) : __builtin_sub_overflow(a, b, &result))
        unknown("a number too large");
      left = PythonValue::of(result);
    }
    return left;
  }

  PythonValue product() {
    PythonValue left = signed_atom();
    while (is("*") || is("//") || is("%")) {
      const PythonToken& sign = tokens_[at_++];
      const std::int64_t a = number(left), b = number(signed_atom());
      std::int64_t result = 0;
      if (sign.is("*")) {
        if (__builtin_mul_overflow(a, b, &result)) unknown("a number too large");
      } else {
        if (b <= 0 || a < 0) unknown("a division that Python rounds otherwise");
        result = sign.is("//") ? a / b : a % b;
      }
      left = PythonValue::of(result);
    }
    return left;
  }

  PythonValue signed_atom() {
    bool negative = false, any = false;
    for (; is("-") || is("+"); ++at_) negative ^= is("-"), any = true;
    PythonValue value = postfix();
    if (!any) return value;
    std::int64_t result = number(value);
    if (negative && __builtin_sub_overflow(std::int64_t{0}, result, &result)) unknown("a number too large");
    return PythonValue::of(result);
  }

  // A name or bracket, then any of ".name", "[index]", "(arguments)".
  PythonValue postfix() {
    PythonValue value;
    std::string name;  // the last one of a chain that has no value
    if (take("(")) {
      value = list();
      want(")");
    } else if (at_ < tokens_.size() && whole_number(tokens_[at_]) >= 0) {
      value = PythonValue::of(whole_number(tokens_[at_++]));
    } else if (at_ < tokens_.size() && tokens_[at_].kind == Kind::name) {
      name = tokens_[at_++].text;
      if (const auto found = scope_.values.find(name); found != scope_.values.end()) value = found->second;
    } else {
      unknown("what stands");
    }
    for (;;) {
      if (take(".")) {
        if (at_ >= tokens_.size() || tokens_[at_].kind != Kind::name) unknown("this");
        name = tokens_[at_++].text;
        value = attribute(value, name);
      } else if (is("[")) {
        ++at_;
        value = item(value);
        want("]");
      } else if (is("(")) {
        value = call(value, name);
      } else {
        break;
      }
    }
    if (value.type == PythonValue::Type::unknown) unknown(convtune::quoted(name) + ", which is not known,");
    return value;
  }

  PythonValue attribute(const PythonValue& value, std::string_view name) const {
    if (value.type == PythonValue::Type::tensor) {
      if (name == "shape") return {PythonValue::Type::tuple, value.numbers};
      if (name == "size" || name == "contiguous") return value;  // a call follows
      return {};
    }
    return value.type == PythonValue::Type::unknown && scope_.by_name ? scope_.by_name(name) : PythonValue{};
  }

  PythonValue item(const PythonValue& value) {
    if (value.type == PythonValue::Type::meta) {
      if (at_ >= tokens_.size()) unknown("this");
      const auto found = scope_.meta.find(plain_text(tokens_[at_]));
      if (found == scope_.meta.end()) unknown("what is no number of the config");
      ++at_;
      return PythonValue::of(found->second);
    }
    const std::int64_t index = number(sum());
    const auto size = static_cast<std::int64_t>(value.numbers.size());
    if (value.type != PythonValue::Type::tuple || index < -size || index >= size) unknown("an index");
    return PythonValue::of(value.numbers[static_cast<std::size_t>(index < 0 ? index + size : index)]);
  }

  PythonValue call(const PythonValue& value, std::string_view name) {
    want("(");
    std::vector<std::int64_t> arguments;
    while (at_ < tokens_.size() && !is(")")) {
      arguments.push_back(number(sum()));
      if (!take(",")) break;
    }
    want(")");
    if (value.type == PythonValue::Type::tensor && name == "contiguous" && arguments.empty()) return value;
    if (value.type == PythonValue::Type::tensor && name == "size") {
      if (arguments.empty()) return {PythonValue::Type::tuple, value.numbers};
      if (arguments[0] < 0 || arguments[0] >= static_cast<std::int64_t>(value.numbers.size()))
        unknown("an index");
      return PythonValue::of(value.numbers[static_cast<std::size_t>(arguments[0])]);
    }
    if (name == "cdiv" && arguments.size() == 2 && arguments[0] >= 0 && arguments[1] > 0)
      return PythonValue::of(arguments[0] / arguments[1] + (arguments[0] % arguments[1] != 0));
    if ((name == "min" || name == "max") && !arguments.empty())
      return PythonValue::of(name == "min" ? *std::min_element(arguments.begin(), arguments.end())
                                           : *std::max_element(arguments.begin(), arguments.end()));
    if (name == "int" && arguments.size() == 1) return PythonValue::of(arguments[0]);
    return {};
  }

  const PythonTokens tokens_;
  const PythonScope& scope_;
  std::size_t at_ = 0;
};

// "a = b = value": the targets and the value; nothing for any other line.
struct Assignment {
  std::vector<PythonTokens> targets;
  PythonTokens value;
};
std::optional<Assignment> assignment(PythonTokens line) {
  Assignment result;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i].is("lambda")) break;
    if (line[i].is("(") || line[i].is("[") || line[i].is("{")) {
      i = after_bracket(line, i) - 1;
    } else if (line[i].is("=")) {
      result.targets.push_back(line.subspan(begin, i - begin));
      begin = i + 1;
    } else if (line[i].kind == Kind::symbol && line[i].text.size() > 1 && line[i].text.back() == '=' &&
               line[i].text != "==" && line[i].text != "!=" && line[i].text != "<=" && line[i].text != ">=") {
      result.targets.push_back(line.subspan(begin, i - begin));  // "+=": a value that is not followed
      return result;
    }
  }
  if (result.targets.empty()) return std::nullopt;
  result.value = line.subspan(begin);
  return result;
}

std::vector<std::string> names_in(PythonTokens target) {
  std::vector<std::string> names;
  for (const PythonToken& token : target) {
    if (token.is(":")) break;  // an annotation
    if (token.kind == Kind::name) names.emplace_back(token.text);
  }
  return names;
}

void assign(const Assignment& line, PythonScope& scope, bool certain) {
  PythonValue value;
  if (!line.value.empty() && line.value[0].is("lambda") && line.targets.size() == 1 &&
      line.value.size() > 3 && line.value[2].is(":")) {
    scope.functions[std::string(line.targets[0][0].text)] = {std::string(line.value[1].text),
                                                             line.value.subspan(3), true};
    return;
  }
  try {
    if (!line.value.empty()) value = Evaluator(line.value, scope).run();
  } catch (const Error&) {  // not known from here on
  }
  for (const PythonTokens target : line.targets) {
    const std::vector<std::string> names = names_in(target);
    const bool unpacked = std::any_of(target.begin(), target.end(), [](const auto& t) { return t.is(","); });
    const bool plain =
        std::none_of(target.begin(), target.end(), [](const auto& t) { return t.is(".") || t.is("["); });
    if (!plain) continue;
    for (std::size_t i = 0; i < names.size(); ++i) {
      PythonValue one = value;
      if (unpacked) {
        const bool fits = value.type == PythonValue::Type::tuple && value.numbers.size() == names.size();
        one = fits ? PythonValue::of(value.numbers[i]) : PythonValue{};
      }
      // Within an `if`: known only where it makes no difference.
      PythonValue& there = scope.values[names[i]];
      if (!certain && (there.type != one.type || there.numbers != one.numbers)) one = {};
      there = one;
    }
  }
}

}  // namespace

PythonValue evaluate(PythonTokens expression, const PythonScope& scope) {
  return Evaluator(expression, scope).run();
}

PythonTokens follow(PythonTokens body, const PythonToken* until, PythonScope& scope) {
  PythonTokens returned;
  int depth = 0;
  for (std::size_t i = 0; i < body.size() && (!until || body[i].at < until->at);) {
    if (body[i].kind == Kind::indent || body[i].kind == Kind::dedent) {
      depth += body[i++].kind == Kind::indent ? 1 : -1;
      if (depth < 0) break;
      continue;
    }
    std::size_t end = i;
    while (end < body.size() && body[end].kind != Kind::line_end) ++end;
    const PythonTokens line = body.subspan(i, end - i);
    i = std::min(end + 1, body.size());
    if (line.empty()) continue;
    if (line[0].is("def") && line.size() > 4 && line[2].is("(")) {
      PythonFunction function{std::string(line[3].text), {}, false};
      if (line.back().is(":")) {
        const std::size_t first = i;
        for (int inner = 0; i < body.size(); ++i) {
          if (body[i].kind == Kind::indent) ++inner;
          if (body[i].kind == Kind::dedent && --inner == 0) break;
        }
        i = std::min(i + 1, body.size());
        function.body = body.subspan(first, i - first);
      } else {
        std::size_t colon = after_bracket(line, 2);
        while (colon < line.size() && !line[colon].is(":")) ++colon;
        function.body = line.subspan(std::min(colon + 1, line.size()));
      }
      scope.functions[std::string(line[1].text)] = function;
    } else if (line[0].is("return")) {
      if (returned.empty()) returned = line.subspan(1);
    } else if (const auto found = assignment(line)) {
      assign(*found, scope, depth <= 1);
    }
  }
  return returned;
}

}  // namespace convtune
