// Sections of a page for the results of verify, refine, analyze and optimize.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>

#include "page/charts.h"
#include "page/html_table.h"
#include "page/numbers.h"
#include "page/sections.h"

namespace convtune::page {

Markup section(const VerifyReport& verified, const ReportEnvironment&, const Place& place) {
  Markup html = heading(place.level, "Checks");
  html += markup("<p class=\"verdict\">{}</p>\n",
                 verified.mismatches > 0
                     ? fmt::format("{} of {} answers were wrong.", verified.mismatches, verified.checks)
                     : fmt::format("All {} answers were right.", verified.checks));
  Table table("what was checked", {{"problems", true},
                                   {"checks", true},
                                   {"kernels compiled for their problem", true},
                                   {"on NaN, infinities or denormal numbers too", true},
                                   {"mismatches", true}});
  table.add_row(
      std::vector<std::string>{fmt::format("{}", verified.problems), fmt::format("{}", verified.checks),
                               fmt::format("{}", verified.compiled), fmt::format("{}", verified.special),
                               fmt::format("{}", verified.mismatches)});
  html += table.render();
  if (verified.failures.empty()) return html;
  html += heading(place.level, "Mismatches");
  Table wrong(fmt::format("the first {}", verified.failures.size()),
              {{"problem"}, {"algorithm"}, {"config"}, {"what"}, {"again"}}, true);
  for (const Mismatch& one : verified.failures)
    wrong.add_row(std::vector<std::string>{to_string(one.problem), one.algorithm, to_string(one.config),
                                           one.what, one.repro},
                  "bad");
  html += wrong.render();
  return html;
}

namespace {

// Returns the words in which the configs differ, without those that all of them have.
std::vector<std::string> names_of(const std::vector<MeasuredConfig>& configs) {
  std::vector<std::vector<std::string>> words;
  for (const MeasuredConfig& one : configs) {
    std::istringstream text(one.config);
    words.emplace_back(std::istream_iterator<std::string>(text), std::istream_iterator<std::string>());
  }
  const auto everywhere = [&](const std::string& word) {
    return std::all_of(words.begin(), words.end(), [&](const std::vector<std::string>& one) {
      return std::find(one.begin(), one.end(), word) != one.end();
    });
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    std::string name;
    for (const std::string& word : words[i])
      if (!everywhere(word)) name += (name.empty() ? "" : " ") + word;
    names.push_back(name.empty() ? configs[i].config : name);
  }
  return names;
}

Markup measured(const RefinedKernel& kernel, const Place& place) {
  const double original_us = kernel.measured.front().time_us;
  const std::vector<std::string> names = names_of(kernel.measured);
  std::vector<TimeBar> bars;
  double least = 0;
  for (std::size_t i = 0; i < kernel.measured.size(); ++i)
    if (const MeasuredConfig& one = kernel.measured[i]; one.n > 0 && one.failure.empty() && one.time_us > 0) {
      bars.push_back({names[i], one.time_us, one.mad_us, one.n, i == 0 ? Who::best_peer : Who::own});
      least = least > 0 ? std::min(least, one.time_us) : one.time_us;
    }
  const Scale time = scale_of_us(least);
  Table table("the configs as they ran",
              {{"config"},
               {"why"},
               {fmt::format("time {}", time.unit), true},
               {"±", true},
               {"samples", true},
               {"of the original", true},
               {"outputs"}},
              true);
  for (const MeasuredConfig& one : kernel.measured) {
    const bool timed = one.n > 0 && one.failure.empty() && one.time_us > 0;
    table.add_row(
        std::vector<std::string>{one.config, one.reason, timed ? time(one.time_us) : "-",
                                 timed ? percent(one.mad_us / one.time_us) : "-", fmt::format("{}", one.n),
                                 timed && original_us > 0 ? percent(one.time_us / original_us) : "-",
                                 one.failure.empty() ? one.output : "failed: " + one.failure},
        one.failure.empty() ? "" : "bad");
  }
  Markup html = time_bars(place.id + "-times", "Time of each config", bars, 0);
  html += table.render();
  for (std::size_t i = 0; i < kernel.contests.size(); ++i)
    html += contest_chart(fmt::format("{}-contest{}", place.id, i + 1), kernel.contests[i], true);
  return html;
}

Markup findings_table(const std::vector<Finding>& findings) {
  Table table("findings", {{"of"}, {"finding"}});
  for (const Finding& finding : findings) table.add_row(std::vector<std::string>{finding.what, finding.text});
  return table.render();
}

// "20.0 % (17.5 to 22.1 %)"
std::string gain_text(const ModelLayer& layer) {
  const std::string gain = percent(layer.gain);
  return layer.low < layer.high
             ? fmt::format("{} ({:.1f} to {:.1f} %)", gain, 100 * layer.low, 100 * layer.high)
             : gain;
}

}  // namespace

Markup section(const Refined& refined, const ReportEnvironment&, const Place& place) {
  Markup html;
  for (std::size_t i = 0; i < refined.kernels.size(); ++i) {
    const RefinedKernel& kernel = refined.kernels[i];
    const Place of_kernel{fmt::format("{}-{}", place.id, i + 1), place.level + 1};
    html += heading(place.level, fmt::format("{} (line {})", kernel.kernel, kernel.line), of_kernel.id);
    html += markup("<p class=\"verdict\">{}</p>\n",
                   !kernel.unknown.empty()                             ? kernel.unknown
                   : kernel.configs.empty() && kernel.original.empty() ? std::string("Nothing is changed.")
                   : kernel.configs.empty() ? "The original is kept: " + kernel.original
                   : kernel.measured.empty()
                       ? fmt::format("A new list of {} configs, the original first.", kernel.configs.size())
                   : kernel.changed ? std::string("The new list is written: a neighbour is proven faster.")
                                    : std::string("Reverted: the list is written as it was."));
    if (!kernel.measured.empty()) {
      html += heading(of_kernel.level, "Measured");
      if (!kernel.place.empty()) html += paragraph("On " + kernel.place + '.');
      html += measured(kernel, of_kernel);
    }
    html += heading(of_kernel.level, "Decisions");
    html += bullets(kernel.verdicts);
    if (!kernel.configs.empty()) {
      html += heading(of_kernel.level, "The new list");
      html += bullets(kernel.configs);
    }
    if (!kernel.findings.empty()) {
      html += heading(of_kernel.level, "What the profile says");
      html += findings_table(kernel.findings);
    }
    if (!kernel.notes.empty()) {
      html += heading(of_kernel.level, "Notes");
      html += bullets(kernel.notes);
    }
  }
  if (!refined.notes.empty()) {
    html += heading(place.level, "The file");
    html += bullets(refined.notes);
  }
  return html;
}

Markup section(const Analyzed& analyzed, const ReportEnvironment&, const Place& place) {
  Markup html;
  for (std::size_t i = 0; i < analyzed.kernels.size(); ++i) {
    const Analyzed::Kernel& kernel = analyzed.kernels[i];
    const Place of_kernel{fmt::format("{}-{}", place.id, i + 1), place.level + 1};
    html += heading(place.level, kernel.metrics.kernel, of_kernel.id);
    // Findings are in order of their cost, the largest first.
    if (!kernel.findings.empty())
      html += markup("<p class=\"verdict\">{}: {}.</p>\n", kernel.findings[0].what, kernel.findings[0].text);
    html += findings_table(kernel.findings);
    html += heading(of_kernel.level, "Metrics");
    Table metrics("times in ns, sizes in bytes, shares in percent", {{"metric"}, {"value", true}}, true);
    auto values = kernel.metrics.values;
    std::sort(values.begin(), values.end());
    for (const auto& [name, value] : values)
      metrics.add_row(std::vector<std::string>{name, fmt::format("{:.6g}", value)});
    html += metrics.render();
  }
  return html;
}

Markup section(const ModelReport& model, const ReportEnvironment&, const Place& place) {
  Markup html = heading(place.level, "The whole forward");
  const std::string mode = fmt::format("{}{}", model.training ? "training" : "eval",
                                       model.mode.empty() ? "" : ", torch.compile " + model.mode);
  if (model.before_us > 0) {
    html +=
        markup("<p class=\"verdict\">{}: {} before, {} with convtune: {} less ({:.1f} to {:.1f} %). {}</p>\n",
               mode, time_text(model.before_us), time_text(model.after_us), percent(model.gain),
               100 * model.low, 100 * model.high, model.kept ? "The swaps stay." : "The swaps do not stay.");
    html += time_bars(place.id + "-whole", "Time of the whole forward",
                      {{"PyTorch", model.before_us, 0, 0, Who::best_peer},
                       {"with convtune", model.after_us, 0, 0, Who::own}},
                      0);
  } else {
    html += paragraph(mode + ": nothing was there to be swapped.");
  }
  html += heading(place.level, "Layers");
  if (model.layers.empty()) {
    html += paragraph("No convolution ran.");
  } else {
    // The layer where most of the time goes stands first.
    std::vector<const ModelLayer*> layers;
    for (const ModelLayer& layer : model.layers) layers.push_back(&layer);
    const auto total = [](const ModelLayer* layer) {
      return layer->pytorch_us * static_cast<double>(layer->calls);
    };
    std::stable_sort(layers.begin(), layers.end(),
                     [&](const ModelLayer* a, const ModelLayer* b) { return total(a) > total(b); });
    double least = 0, most = 0;
    for (const ModelLayer* layer : layers)
      for (const double us : {layer->pytorch_us, layer->convtune_us})
        if (us > 0) least = least > 0 ? std::min(least, us) : us, most = std::max(most, us);
    const Scale time = scale_of_us(least, most);
    std::vector<TimeBar> bars;
    Table table("the layers, by the time that they take",
                {{"layer"},
                 {"calls", true, true},
                 {fmt::format("PyTorch {}", time.unit), true, true},
                 {fmt::format("convtune {}", time.unit), true, true},
                 {"gain", true},
                 {"decision"},
                 {"runs", false, true},
                 {"problem", false, true}},
                true);
    constexpr std::size_t kMostBars = 12;
    std::vector<std::string> full;
    for (const ModelLayer* layer : layers) full.push_back(layer->names.empty() ? "-" : layer->names[0]);
    const auto [names, left_out] = short_names(full);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const ModelLayer* const layer = layers[i];
      const std::string name =
          names[i] + (layer->names.size() > 1 ? fmt::format(" and {} more", layer->names.size() - 1) : "");
      const bool swap = layer->convtune_us > 0;
      table.add_row(
          std::vector<std::string>{
              name, fmt::format("{}", layer->calls), layer->pytorch_us > 0 ? time(layer->pytorch_us) : "-",
              swap ? time(layer->convtune_us) : "-", swap ? gain_text(*layer) : "-", layer->decision,
              layer->algorithm.empty() ? ""
                                       : fmt::format("{} {}{}", layer->algorithm, layer->config,
                                                     layer->layout.empty() ? "" : " in " + layer->layout),
              layer->problem},
          layer->swapped ? "own" : "");
      if (layer->pytorch_us > 0 && bars.size() + 2 <= 2 * kMostBars) {
        bars.push_back({"PyTorch", total(layer), 0, 0, Who::best_peer, name});
        if (swap)
          bars.push_back(
              {"convtune", layer->convtune_us * static_cast<double>(layer->calls), 0, 0, Who::own});
      }
    }
    html += time_bars(place.id + "-layers", "Time of the layers that take most, all calls of a forward", bars,
                      0, Cut::none);
    if (!left_out.empty()) html += paragraph(left_out);
    html += table.render();
  }
  if (!model.notes.empty()) {
    html += heading(place.level, "Notes");
    html += bullets(model.notes);
  }
  return html;
}

}  // namespace convtune::page
