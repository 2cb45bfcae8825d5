// convtune devices: what there is to run on, best first; or the sheet of one target.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "convtune/device.h"
#include "convtune/target.h"
#include "exit_code.h"
#include "output.h"
#include "table.h"
#include "target_sheet.h"

namespace convtune::cli {
namespace {

std::string size_text(std::int64_t bytes) {
  if (bytes <= 0) return "-";
  const double kib = static_cast<double>(bytes) / 1024;
  if (kib < 1024) return fmt::format("{:.4g} KiB", kib);
  return kib < 1024 * 1024 ? fmt::format("{:.4g} MiB", kib / 1024)
                           : fmt::format("{:.4g} GiB", kib / 1024 / 1024);
}

std::string devices_table(const std::vector<DeviceInfo>& found) {
  Table table({{"device"},
               {"units", Align::right},
               {"isa"},
               {"L1", Align::right, 1},
               {"L2", Align::right, 3},
               {"L3", Align::right, 2},
               {"memory", Align::right},
               {"name"}});
  for (const DeviceInfo& info : found)
    table.add_row({to_string(info.device), fmt::format("{}", info.units), info.isa, size_text(info.l1_bytes),
                   size_text(info.l2_bytes), size_text(info.l3_bytes), size_text(info.memory_bytes),
                   info.name});
  return table.render(style_of(stdout));
}

std::string devices_json(const std::vector<DeviceInfo>& found) {
  auto list = nlohmann::ordered_json::array();
  for (const DeviceInfo& info : found)
    list.push_back({{"device", to_string(info.device)},
                    {"name", info.name},
                    {"fingerprint", info.fingerprint},
                    {"isa", info.isa},
                    {"units", info.units},
                    {"l1_bytes", info.l1_bytes},
                    {"l2_bytes", info.l2_bytes},
                    {"l3_bytes", info.l3_bytes},
                    {"memory_bytes", info.memory_bytes}});
  const nlohmann::ordered_json json = {{"schema", 1}, {"devices", list}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace

Command add_devices(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("devices", "List what there is to run on, best first");
  struct Options {
    std::string json, target;
  };
  const auto options = std::make_shared<Options>();
  app->add_option("--json", options->json,
                  "Write the list, or the target, to this file as JSON (- is standard output)")
      ->type_name("FILE");
  app->add_option("--target", options->target, "Print one target's sheet: " + target_help())
      ->type_name("TARGET");
  app->footer(
      "Examples:\n"
      "  convtune devices\n"
      "  convtune devices --json -\n"
      "  convtune devices --target rtx4090\n"
      "  convtune devices --target rtx4090 --json mine.json   # to edit: a target");
  return {app, [options]() -> int {
            const OutputFile file(options->json);
            if (!options->target.empty()) {
              const Target target = find_target(options->target);
              if (!file.is_stdout()) fmt::print("{}", target_sheet(target));
              if (file) file.write(to_json(target));
              return kOk;
            }
            const std::vector<DeviceInfo> found = devices();
            if (!file.is_stdout()) fmt::print("{}", devices_table(found));
            if (file) file.write(devices_json(found));
            return kOk;
          }};
}

}  // namespace convtune::cli
