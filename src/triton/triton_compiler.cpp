// See triton_compiler.h.
#include "triton/triton_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convtune/error.h"

namespace convtune {
namespace {

using nlohmann::json;

constexpr double kPatience = 16;  // per answer: as long as 16 configs take one after the other

CompiledConfig compiled_from_json(const json& object) {
  CompiledConfig made;
  if (object.contains("failed")) {
    made.failure = object.at("failed").get<std::string>();
    return made;
  }
  made.registers = object.at("registers").get<int>();
  made.smem_bytes = object.at("smem").get<std::int64_t>();
  made.spilled_bytes = object.at("spilled").get<std::int64_t>();
  made.code = object.at("code").get<std::string>();
  return made;
}

}  // namespace

TritonCompiler::TritonCompiler(const std::string& python, double seconds, std::function<bool()> cancelled)
    : child_(std::make_unique<PythonChild>(python, "triton_compiler", kPatience * seconds,
                                           std::move(cancelled))),
      seconds_(seconds) {
  try {
    const json first = child_->read();
    version_ = first.value("triton", "");
    why_not_ = first.value("failed", "");
  } catch (const RunFailure& failure) {
    why_not_ = failure.what();
  } catch (const json::exception& error) {
    why_not_ = error.what();
  }
}

json TritonCompiler::ask(json request, std::string& why) {
  request["seconds"] = seconds_;
  try {
    json answer = child_->ask(request);
    if (answer.contains("failed")) why = answer.at("failed").get<std::string>();
    return answer;
  } catch (const RunFailure& failure) {
    why = failure.what();
  }
  return json::object();
}

std::vector<CompiledVariant> TritonCompiler::compile(const TritonFile& file, const TritonKernel& kernel,
                                                     const Target& target, const TritonGiven& given,
                                                     const std::vector<TritonConfig>& configs,
                                                     std::string& why) {
  json request = to_json(given), list = json::array();
  for (const TritonConfig& config : configs) list.push_back(to_json(config));
  request["do"] = "compile", request["source"] = file.source(), request["path"] = file.path();
  request["kernel"] = kernel.at, request["configs"] = list;
  request["target"] = {{"major", target.capability.major},
                       {"minor", target.capability.minor},
                       {"sms", target.multiprocessors},
                       {"product", target.product}};
  std::vector<CompiledVariant> made;
  const json answer = ask(std::move(request), why);
  if (!why.empty()) return made;
  try {
    for (const json& variant : answer.at("variants")) {
      CompiledVariant& one = made.emplace_back();
      for (const auto& [name, value] : variant.at("given").items())
        one.given +=
            fmt::format("{}{}={}", one.given.empty() ? "" : " ", name, value.get<bool>() ? "True" : "False");
      for (const json& facts : variant.at("facts")) one.configs.push_back(compiled_from_json(facts));
      if (one.configs.size() != configs.size()) return {};
    }
  } catch (const json::exception& error) {
    why = error.what();
    return {};
  }
  if (!made.empty() && !configs.empty() && !made[0].configs[0].failure.empty())
    why = made[0].configs[0].failure, made.clear();
  if (!made.empty() && why.empty()) {
    for (const json& name : answer.value("assumed", json::array()))
      why += fmt::format("{}{}", why.empty() ? "" : ", ", name.get<std::string>());
    const std::string tensors = fmt::format("{} tensors", answer.value("dtype", "fp32"));
    why = why.empty() ? tensors : fmt::format("{}, and {} multiples of 16", tensors, why);
  }
  return made;
}

std::vector<TritonConfig> TritonCompiler::imported_list(const TritonFile& file, const TritonKernel& kernel,
                                                        std::string& why) {
  std::vector<TritonConfig> configs;
  const json answer = ask({{"do", "list"},
                           {"source", file.source()},
                           {"path", file.path()},
                           {"names", {kernel.name}},
                           {"line", kernel.line}},
                          why);
  if (!why.empty()) return configs;
  try {
    for (const json& one : answer.at("configs")) configs.push_back(config_from_json(one));
  } catch (const json::exception& error) {
    why = error.what();
  } catch (const RunFailure& failure) {
    why = failure.what();
  }
  return configs;
}

std::string TritonCompiler::import_failure(const std::string& source, const std::string& path) {
  std::string why;
  ask({{"do", "imports"}, {"source", source}, {"path", path}}, why);
  return why;
}

}  // namespace convtune
