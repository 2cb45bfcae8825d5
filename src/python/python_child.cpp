// See python_child.h. The programs are built into the library and given on the command line, so that nothing
// is left in any folder.
#include "python/python_child.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/embedded.h"
#include "base/foreign_json.h"
#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

// Makes modules of pairs of name and text, and runs the last one. The folder that it was started in is not
// searched for modules: a file there may be called json.py.
constexpr const char* kStart = R"(import sys
sys.path = [folder for folder in sys.path if folder]
from types import ModuleType
words, sys.argv = sys.argv[1:], ["convtune"]
for name, text in zip(words[::2], words[1::2]):
    module = sys.modules[name] = ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), vars(module))
module.main()
)";

bool imports(std::string_view text, std::string_view module) {
  return text.find(fmt::format("\nfrom {} import ", module)) != std::string_view::npos;
}

std::vector<std::string> command_of(const std::string& python, const std::string& program) {
  const std::string file = find_program(python);
  if (file.empty())
    throw Error(ErrorKind::unsupported,
                fmt::format("there is no {} on PATH, which reads Triton and ONNX files; --python names one",
                            convtune::quoted(python)));
  std::vector<std::string> words = {file, "-u", "-c", kStart};
  std::vector<EmbeddedFile> needed;  // the program, and backwards from it what it imports and those import
  const std::span<const EmbeddedFile> runners = embedded_runners();
  std::for_each(runners.rbegin(), runners.rend(), [&](const EmbeddedFile& module) {
    const std::string_view name = module.name.substr(0, module.name.rfind('.'));
    const auto wants = [&](const EmbeddedFile& one) { return imports(one.text, name); };
    if (name == program || std::ranges::any_of(needed, wants)) needed.push_back({name, module.text});
  });
  std::for_each(needed.rbegin(), needed.rend(), [&](const EmbeddedFile& module) {
    words.emplace_back(module.name);
    words.emplace_back(module.text);
  });
  return words;
}

// The last line of what was said of an error, which in Python is the error itself.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

}  // namespace

void require_python(const std::string& source) {
  if (source.find('\0') != source.npos)
    throw Error(ErrorKind::invalid_argument, "this is no Python: it holds a zero byte");
  try {
    nlohmann::json(source).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::invalid_argument, "this is no Python: it is no UTF-8 text");
  }
}

PythonChild::PythonChild(const std::string& python, const std::string& program, double seconds,
                         std::function<bool()> cancelled)
    : seconds_(seconds), cancelled_(std::move(cancelled)), process_(command_of(python, program)) {}

void PythonChild::write(const nlohmann::json& request) {
  process_.write_line(request.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

nlohmann::json PythonChild::read() {
  std::string line;
  switch (process_.read_line(line, seconds_, cancelled_)) {
    case ChildProcess::Got::line: {
      nlohmann::json answer;
      try {
        answer = parse_foreign_json(line);
      } catch (const Error&) {
      }
      if (!answer.is_object()) throw RunFailure("it answered " + convtune::quoted(line));
      return answer;
    }
    case ChildProcess::Got::cancelled:
      throw RunCancelled();
    case ChildProcess::Got::late:
      throw RunFailure(fmt::format("it gave no answer within {:g} s", seconds_));
    default:
      break;
  }
  const std::string why = last_line(process_.errors());
  throw RunFailure(fmt::format("its process {}{}", process_.ending(),
                               why.empty() ? "" : ": " + convtune::quoted(why, 300)));
}

nlohmann::json PythonChild::ask(const nlohmann::json& request) {
  write(request);
  return read();
}

}  // namespace convtune
