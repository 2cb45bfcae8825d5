// Records that come with this version: tuned on machines that others may have, too.
#pragma once

#include <string_view>
#include <vector>

#include "contract/backend.h"
#include "convtune/database.h"

namespace convtune {

// import_shipped_records() of a pack's text and the devices that are here.
ShippedRecords import_shipped_records(const Database& database, std::string_view pack,
                                      const std::vector<DeviceInfo>& here);
// missing_shipped_records() of a pack's text and the devices that are here.
std::vector<Record> missing_shipped_records(const Database& database, std::string_view pack,
                                            const std::vector<DeviceInfo>& here);

}  // namespace convtune
