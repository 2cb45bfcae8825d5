// See shipped.h.
#include "plan/shipped.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "base/embedded.h"
#include "convtune/device.h"
#include "plan/planner.h"

namespace convtune {

namespace {

// Calls `take` with each record of the pack and the device that it is of; null where that is not here.
template <typename Take>
void for_each_record(std::string_view pack, const std::vector<DeviceInfo>& here, const Take& take) {
  std::istringstream lines{std::string(pack)};
  for (std::string line; std::getline(lines, line);) {
    const Record record = parse_record(line);
    const auto device = std::find_if(here.begin(), here.end(),
                                     [&](const DeviceInfo& one) { return one.fingerprint == record.device; });
    take(record, device == here.end() ? nullptr : &*device);
  }
}

}  // namespace

ShippedRecords import_shipped_records(const Database& database, std::string_view pack,
                                      const std::vector<DeviceInfo>& here) {
  ShippedRecords result;
  for_each_record(pack, here, [&](const Record& record, const DeviceInfo* device) {
    if (device == nullptr) {
      ++result.elsewhere;
    } else if (!still_holds(record, record.problem, *device)) {
      ++result.outdated;
    } else {
      ++(database.store_if_missing(record) ? result.imported : result.kept);
    }
  });
  return result;
}

std::vector<Record> missing_shipped_records(const Database& database, std::string_view pack,
                                            const std::vector<DeviceInfo>& here) {
  std::vector<Record> missing;
  for_each_record(pack, here, [&](const Record& record, const DeviceInfo* device) {
    if (device != nullptr && still_holds(record, record.problem, *device) &&
        !database.find(record.problem, record.device))
      missing.push_back(record);
  });
  return missing;
}

ShippedRecords import_shipped_records(const Database& database) {
  const std::vector<DeviceInfo> here = devices();
  ShippedRecords all;
  for (const EmbeddedFile& file : embedded_records()) {
    const ShippedRecords of_file = import_shipped_records(database, file.text, here);
    all.imported += of_file.imported, all.kept += of_file.kept;
    all.elsewhere += of_file.elsewhere, all.outdated += of_file.outdated;
  }
  return all;
}

std::vector<Record> missing_shipped_records(const Database& database) {
  const std::vector<DeviceInfo> here = devices();
  std::vector<Record> all;
  for (const EmbeddedFile& file : embedded_records())
    for (Record& record : missing_shipped_records(database, file.text, here))
      all.push_back(std::move(record));
  return all;
}

}  // namespace convtune
