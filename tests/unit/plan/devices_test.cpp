// Devices, threads, probes, and the table of algorithms.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/onednn/onednn.h"
#include "cpu/onednn/onednn_api.h"
#include "plan/algorithms.h"

namespace convtune::devices_test {
namespace {

constexpr Device kCuda{Device::Kind::cuda, 3};

// The message of the Error that `call` throws, after its kind was checked.
std::string message_of(ErrorKind kind, const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Devices, TheCpuIsAlwaysLast) {
  const std::vector<DeviceInfo> all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().device, Device{});
  EXPECT_EQ(all.front().device, best_device());
}

TEST(Devices, InfoOfADevice) {
  EXPECT_EQ(device_info(Device{}).fingerprint, cpu::backend().info().fingerprint);
  const std::string message = message_of(ErrorKind::no_device, [] { device_info(kCuda); });
  EXPECT_NE(message.find("cuda:3"), std::string::npos) << message;
  EXPECT_NE(message.find("cpu (" + device_info(Device{}).name + ")"), std::string::npos) << message;
}

TEST(Devices, BackendOfADevice) {
  EXPECT_EQ(&backend(Device{}), &cpu::backend());
  EXPECT_NE(message_of(ErrorKind::no_device, [] { backend(kCuda); }).find("cuda:3"), std::string::npos);
}

TEST(Devices, ThreadsAreSetAndChecked) {
  const int start = device_info(Device{}).units;
  set_cpu_threads(3);
  EXPECT_EQ(device_info(Device{}).units, 3);
  EXPECT_TRUE(device_info(Device{}).fingerprint.ends_with("|3 threads"));
  set_cpu_threads(1);
  EXPECT_TRUE(device_info(Device{}).fingerprint.ends_with("|1 thread"));
  for (const int bad : {0, -4, 1 << 20}) {
    const std::string message = message_of(ErrorKind::invalid_argument, [bad] { set_cpu_threads(bad); });
    EXPECT_NE(message.find(std::to_string(bad)), std::string::npos) << message;
  }
  EXPECT_EQ(device_info(Device{}).units, 1);
  set_cpu_threads(start);
}

std::map<std::string, Probe> probes() {
  std::map<std::string, Probe> by_name;
  for (const Probe& probe : probe_environment()) by_name[probe.what] = probe;
  return by_name;
}

TEST(Probes, SayWhatWasFoundAndWhatWasNot) {
  auto found = probes();
  EXPECT_TRUE(found["CPU threads"].found);
  EXPECT_NE(found["CPU threads"].detail.find(" usable"), std::string::npos);
  EXPECT_NE(found["CPU instructions"].detail.find(device_info(Device{}).isa), std::string::npos);
  EXPECT_EQ(found["oneDNN"].found, cpu::onednn() != nullptr);
  EXPECT_EQ(found["oneDNN"].detail, cpu::describe_onednn());
  for (const char* name : {"NVIDIA driver", "NVRTC", "cuDNN"})
    EXPECT_FALSE(found[name].detail.empty()) << name << ": its version, or why it is not used";
  for (const DeviceInfo& info : devices())
    EXPECT_TRUE(info.device.kind == Device::Kind::cpu || found[to_string(info.device)].found);
  EXPECT_TRUE(found["case suites"].found);
  EXPECT_NE(found["case suites"].detail.find("stem"), std::string::npos) << found["case suites"].detail;
}

TEST(Probes, JudgeTheRecordsFolder) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("convtune_devices_" + std::to_string(::getpid()));
  fs::create_directories(root);
  fs::permissions(root, fs::perms::owner_all);
  const auto probe = [](const fs::path& folder) {
    ::setenv("CONVTUNE_DATA_DIR", folder.c_str(), 1);
    return probes()["records folder"];
  };
  EXPECT_TRUE(probe(root).found) << probe(root).detail;
  const Probe absent = probe(root / "a" / "b");
  EXPECT_TRUE(absent.found);
  EXPECT_NE(absent.detail.find("made at the first record"), std::string::npos) << absent.detail;
  EXPECT_FALSE(fs::exists(root / "a")) << "looking must not create";

  const Probe below_a_file = probe("/proc/self/status/records");
  EXPECT_FALSE(below_a_file.found);
  EXPECT_NE(below_a_file.detail.find("/proc/self/status"), std::string::npos) << below_a_file.detail;
  fs::create_directories(root / "open_to_all");
  fs::permissions(root / "open_to_all", fs::perms::all);
  EXPECT_FALSE(probe(root / "open_to_all").found);
  if (::geteuid() != 0) {
    fs::permissions(root, fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_FALSE(probe(root / "a").found);
    fs::permissions(root, fs::perms::owner_all);
  }
  ::unsetenv("CONVTUNE_DATA_DIR");
  fs::remove_all(root);
}

TEST(AlgorithmTable, HasTheReferenceLastAndEveryNameOnce) {
  const auto& table = algorithms(Device::Kind::cpu);
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : table) {
    names.push_back(algorithm->name());
    EXPECT_EQ(algorithm->device_kind(), Device::Kind::cpu);
    EXPECT_EQ(algorithm->reference(), algorithm == table.back());
    EXPECT_EQ(&find_algorithm(Device::Kind::cpu, algorithm->name()), algorithm);
  }
  const std::set<std::string_view> each(names.begin(), names.end());
  EXPECT_EQ(each.size(), names.size());
  for (const char* name :
       {"winograd", "winograd_filters", "direct", "direct_depthwise", "implicit_gemm", "reference"})
    EXPECT_TRUE(each.contains(name)) << name;
  EXPECT_EQ(each.contains("onednn"), cpu::onednn() != nullptr);
}

TEST(AlgorithmTable, AnUnknownNameListsTheKnown) {
  const std::string message =
      message_of(ErrorKind::invalid_argument, [] { find_algorithm(Device::Kind::cpu, "fourier"); });
  EXPECT_NE(message.find("'fourier'"), std::string::npos) << message;
  EXPECT_NE(message.find("direct"), std::string::npos) << message;
  EXPECT_NE(message.find("reference"), std::string::npos) << message;
}

}  // namespace
}  // namespace convtune::devices_test
