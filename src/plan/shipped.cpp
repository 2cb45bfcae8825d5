// See shipped.h.
#include "plan/shipped.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "base/embedded.h"
#include "convtune/device.h"
#include "plan/planner.h"

namespace convtune {

ShippedRecords import_shipped_records(const Database& database, std::string_view pack,
                                      const std::vector<DeviceInfo>& here) {
  ShippedRecords result;
  std::istringstream lines{std::string(pack)};
  for (std::string line; std::getline(lines, line);) {
    const Record record = parse_record(line);
    const auto device = std::find_if(here.begin(), here.end(),
                                     [&](const DeviceInfo& one) { return one.fingerprint == record.device; });
    if (device == here.end()) {
      ++result.elsewhere;
    } else if (!still_holds(record, record.problem, *device)) {
      ++result.outdated;
    } else {
      ++(database.store_if_missing(record) ? result.imported : result.kept);
    }
  }
  return result;
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

}  // namespace convtune
