// Tuned records: one small JSON file per (problem, device), and packs of them as JSON lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convtune/convolution.h"

namespace convtune {

// Holds the result of a search, and everything needed to judge whether it still holds.
struct Record {
  ConvProblem problem;
  std::string device;  // DeviceInfo::fingerprint
  std::string algorithm;
  Config config;
  double time_us = 0, mad_us = 0;
  std::int64_t n = 0;
  double roofline_fraction = 0;
  std::string roofline_bound;  // "compute" or "memory"
  double max_error = 0;
  std::string runner_up;  // "algorithm config"
  double runner_up_us = 0;
  std::string runner_up_hash;  // as kernel_hash; empty where no runner-up was measured
  std::string vendor;          // best vendor variant, empty if none ran
  double vendor_us = 0;
  std::string decision;
  std::string kernel_hash;  // for the kernel sources or the library version that built the winner
  std::string software;     // versions: "convtune 0.1.0, oneDNN 3.2.0"
  std::string compiler;     // of a kernel compiled for the problem: "NVRTC 13.0 build 65be0db3"
  std::string date;         // ISO 8601, UTC
  // Why `decision` proves less than a record's does: contests in a row that could not decide; and the
  // vendor's ways that had no part in it, since processes had died of them or its library did not load.
  // Either answers plan(), says that it is without proof, and has the next tune() hold the contest again.
  std::int64_t undecided = 0;
  std::string left_out;
  std::string searched;  // without proof: the kernels that its search chose from, "direct direct-6, ..."

  bool proven() const { return undecided == 0 && left_out.empty(); }
  bool operator==(const Record&) const = default;
};

// A folder of records. Reading never fails: an unreadable, truncated, foreign-owned or foreign
// record is a miss with one warning. Writes beside and renames; only writers lock the folder, each for the
// moment of one record, and none waits for ever.
class Database {
 public:
  // $XDG_DATA_HOME/convtune (~/.local/share/convtune) unless CONVTUNE_DATA_DIR says otherwise.
  static std::filesystem::path default_folder();
  explicit Database(std::filesystem::path folder = default_folder());

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path path_of(const ConvProblem& problem, const std::string& device) const;

  std::optional<Record> find(const ConvProblem& problem, const std::string& device) const;
  std::vector<Record> list() const;  // sorted by device, then problem text
  // Throws Error{io} with the folder and the reason; what was there before is still there then.
  void store(const Record&) const;
  // Stores the record where there is none of its problem and device yet, and returns whether it did.
  bool store_if_missing(const Record&) const;
  // Deletes every record and what searches have tried, and returns how many records that were. A file that
  // cannot be deleted holds nothing else up: Error{io} comes at the end.
  std::int64_t erase_all() const;
  bool erase(const ConvProblem& problem, const std::string& device) const;

  // Packs: one record a line, sorted, so that a diff is readable.
  void export_pack(const std::filesystem::path& file) const;  // "-" is standard output
  struct ImportResult {
    std::int64_t imported = 0, kept = 0 /* an own record was faster or equal */, rejected = 0;
    std::vector<std::string> problems;  // "FILE:LINE: why", the first 20
  };
  // The file may have up to a million records, of any length together. Throws Error{io} if it cannot be read.
  ImportResult import_pack(const std::filesystem::path& file) const;
  // Packs that are no files; problems are then "SOURCE:LINE: why".
  std::string pack() const;
  ImportResult import_lines(std::string_view lines, const std::string& source) const;

  // Warnings since the last call, each said once: print them, or do not.
  static std::vector<std::string> take_warnings();

 private:
  std::filesystem::path folder_;
};

// Takes over records that this version ships (records/): of the devices that are here, of kernels that have
// not changed since, and where there is no own record, which is of this very machine. Throws Error{io} as
// Database::store does.
struct ShippedRecords {
  std::int64_t imported = 0, kept = 0 /* an own record is there */,
               elsewhere = 0 /* records of other devices */;
  std::int64_t outdated = 0;  // records of kernels that have changed since
};
ShippedRecords import_shipped_records(const Database& database = Database());
// Returns the records that it would take over now.
std::vector<Record> missing_shipped_records(const Database& database = Database());

// Why a record had better be tuned again: it was proven against an older library of the vendor's than the one
// that is found here, or against none, or with machine code of another NVRTC. Empty where nothing is newer
// here.
std::string renewal(const Record&);

// One line of JSON and back; parse throws Error{invalid_argument} naming the field.
std::string to_json_line(const Record&);
Record parse_record(std::string_view json);

}  // namespace convtune
