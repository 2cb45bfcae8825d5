// Python as text: tokens, statements and whole-number arithmetic; what is no Python is refused with its line.
#include "python_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "python_values.h"
#include "refusal.h"

namespace convtune {
namespace {

std::string words_of(std::string_view source) {
  std::string words;
  for (const PythonToken& token : python_tokens(source)) {
    using Kind = PythonToken::Kind;
    const char* const name = token.kind == Kind::line_end   ? "EOL"
                             : token.kind == Kind::indent   ? "IN"
                             : token.kind == Kind::dedent   ? "OUT"
                             : token.kind == Kind::file_end ? "EOF"
                                                            : nullptr;
    words += (words.empty() ? "" : " ") + (name ? std::string(name) : std::string(token.text));
  }
  return words;
}

TEST(PythonText, Tokens) {
  EXPECT_EQ(words_of(""), "EOF");
  EXPECT_EQ(words_of("a = 1"), "a = 1 EOL EOF");
  EXPECT_EQ(words_of("\xef\xbb\xbf"
                     "a\r\nb"),
            "a EOL b EOL EOF");
  EXPECT_EQ(words_of("a**=1e-3 // .5j"), "a **= 1e-3 // .5j EOL EOF");
  EXPECT_EQ(words_of("x[0x1f - 1]"), "x [ 0x1f - 1 ] EOL EOF");
  EXPECT_EQ(words_of("f(a,\n  # why\n  b)  # end\n"), "f ( a , b ) EOL EOF");
  EXPECT_EQ(words_of("a = b + \\\n    c"), "a = b + c EOL EOF");
}

TEST(PythonText, Blocks) {
  EXPECT_EQ(words_of("if a:\n  b\n\n# c\n  if d:\n      e\nf"),
            "if a : EOL IN b EOL if d : EOL IN e EOL OUT OUT f EOL EOF");
  EXPECT_EQ(words_of("class A: pass\ndef f(): return {\n1: 2}\n"),
            "class A : pass EOL def f ( ) : return { 1 : 2 } EOL EOF");
}

TEST(PythonText, Strings) {
  EXPECT_EQ(words_of(R"(a = 'it\'s' "two" rb'\x00' f"{x}" )"),
            R"(a = 'it\'s' "two" rb'\x00' f"{x}" EOL EOF)");
  EXPECT_EQ(words_of("'''a\n'b' \\''' '''\n"), "'''a\n'b' \\''' ''' EOL EOF");
  EXPECT_EQ(plain_text(python_tokens("'BLOCK_M'")[0]), "BLOCK_M");
  EXPECT_EQ(plain_text(python_tokens("r'BLOCK_M'")[0]), "");
  EXPECT_EQ(plain_text(python_tokens("'''BLOCK_M'''")[0]), "");
}

TEST(PythonText, Numbers) {
  const auto value = [](const char* text) { return whole_number(python_tokens(text)[0]); };
  EXPECT_EQ(value("0"), 0);
  EXPECT_EQ(value("1_024"), 1024);
  for (const char* text : {"1.0", "0x10", "1e3", "007", "1j", "99999999999999999999", "a"})
    EXPECT_EQ(value(text), -1) << text;
}

TEST(PythonText, RefusesWithTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a = (1,\n2\n", "line 1: '(' is never closed"},
      {"a\nb = [1)\n", "line 2: ')' closes the '['"},
      {"a\n)\n", "line 2: ')' closes nothing"},
      {"a\n'open\n", "line 2: a string is never closed"},
      {"a = '''\n\n", "line 1: a string is never closed"},
      {"if a:\nb\n", "line 1: an indented block must follow"},
      {"a\n  b\n", "line 2: an indentation that no line before asks for"},
      {"  a\n", "line 1: an indentation that no line before asks for"},
      {"if a:\n    b\n  c\n", "line 3: the indentation fits no block"},
      {"if a:\n \tb\n", "line 2: blanks and tabs"},
      {"a = 1 ? 2\n", "line 1: '?' begins nothing"},
      {"a = \\ 1\n", "line 1: a backslash"},
      {"@x\na = 1\n", "line 2: a decorator must stand before a definition"},
      {"@x\n", "line 1: a decorator must stand before a definition"},
      {"def f()\n", "line 1: a definition without its ':'"},
      {"def (x):\n  a\n", "line 1: a definition that has no name"},
  };
  for (const auto& [source, why] : cases) {
    const std::string message = refusal([&, text = source] { python_statements(text, python_tokens(text)); });
    EXPECT_EQ(message.rfind(why, 0), 0u) << message;
  }
  EXPECT_NE(refusal([] { python_tokens(std::string(300, '(')); }), "accepted");
  EXPECT_NE(refusal([] { python_tokens(std::string("a\0b", 3)); }), "accepted");
}

TEST(PythonText, StatementsHoldTheWholeText) {
  const std::string source =
      "# head\n'''doc'''\nimport a\nfrom b import (c,\n  d)\n\n# about f\n@x.y(1)\n@z\ndef f(a=1):\n"
      "    return a  # why\n\nX: int = 3\nclass C(D):\n    y = 1\nif __name__ == '__main__':\n    f()\n"
      "else:\n    g()\nprint(1)\n# tail\n";
  const auto tokens = python_tokens(source);
  const auto statements = python_statements(source, tokens);
  using Is = PythonStatement::Kind;
  const std::vector<Is> kinds = {Is::text,       Is::import,           Is::import,     Is::function,
                                 Is::assignment, Is::class_definition, Is::main_guard, Is::other};
  ASSERT_EQ(statements.size(), kinds.size());
  std::string together;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(statements[i].kind, kinds[i]) << i;
    together += source.substr(statements[i].begin, statements[i].end - statements[i].begin);
  }
  EXPECT_EQ(together + "# tail\n", source);
  EXPECT_EQ(statements[3].name, "f");
  EXPECT_EQ(statements[3].line, 8);
}

TEST(PythonValues, WorksOutWholeNumbers) {
  PythonScope scope;
  scope.values["n"] = PythonValue::of(256);
  scope.values["x"] = {PythonValue::Type::tensor, {256, 3, 224, 224}};
  scope.values["stride"] = {PythonValue::Type::tuple, {4, 4}};
  scope.values["meta"] = {PythonValue::Type::meta, {}};
  scope.meta["BLOCK"] = 32;
  const auto value = [&](const std::string& text) {
    const auto tokens = python_tokens(text);
    const PythonValue result = evaluate(PythonTokens(tokens).first(tokens.size() - 2), scope);
    std::string words;
    for (const auto number : result.numbers) words += fmt::format("{}{}", words.empty() ? "" : " ", number);
    return words;
  };
  EXPECT_EQ(value("1 + 2 * 3 - -4"), "11");
  EXPECT_EQ(value("(224 + 2 * 2 - 11) // stride + 1"), "55");
  EXPECT_EQ(value("x.shape[-1] * x.size(1) + stride[0]"), "676");
  EXPECT_EQ(value("x.contiguous().shape"), "256 3 224 224");
  EXPECT_EQ(value("(triton.cdiv(n, meta['BLOCK']), min(3, 2), 1)"), "8 2 1");
  EXPECT_EQ(value("int(7 % 4)"), "3");
  for (const char* text :
       {"unknown + 1", "1 / 2", "f(1)", "x + 1", "n if n else 1", "meta['OTHER']", "n[0]", "x.shape[4]",
        "-7 // 2", "1 // 0", "999999999999999999 * 999999999999999999", "lambda: 1", "n n", "x.shape[n]"})
    EXPECT_EQ(refusal([&, text] { value(text); }).rfind("line 1: ", 0), 0u) << text;
}

}  // namespace
}  // namespace convtune
