// Which records are near: by file names, so that a full folder costs a plan nothing.
#include "plan/recorded_batches.h"

#include "plan/algorithms.h"
#include "plan/planner.h"
#include "records_fixture.h"

namespace convtune::recorded_batches_test {
namespace {

namespace fs = std::filesystem;
using Batches = std::vector<std::int64_t>;

class RecordedBatches : public DatabaseTest {
 protected:
  RecordedBatches() { ::setenv("CONVTUNE_DATA_DIR", database_.folder().c_str(), 1); }
  ~RecordedBatches() override { ::unsetenv("CONVTUNE_DATA_DIR"); }

  Batches batches(const std::string& problem) const {
    return recorded_batches(database_, parse_problem(problem), record_.device);
  }
  // Looks until `expected` is found, for ten seconds at most: a list that a busy machine made long is read
  // again after a while.
  Batches batches_after(const std::string& problem, const Batches& expected) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    Batches found = batches(problem);
    while (found != expected && std::chrono::steady_clock::now() < end) found = batches(problem);
    return found;
  }
  void store(const std::string& problem, const std::string& device) {
    record_.problem = parse_problem(problem);
    Record record = record_;
    record.device = device;
    database_.store(record);
  }
  void store(const std::string& problem) { store(problem, record_.device); }
  // A record's file with something else in it: who opens it warns.
  void plant(const std::string& problem, const std::string& device) {
    fs::create_directories(database_.folder());
    write_text(database_.path_of(parse_problem(problem), device), "not to be read");
  }
};

TEST_F(RecordedBatches, AreOfThisLayerAndDeviceNearestFirst) {
  EXPECT_EQ(batches("mb8ic3ih9oc4kh3"), Batches{});
  EXPECT_FALSE(fs::exists(database_.folder()));
  for (const char* batch : {"mb1", "mb64", "mb2", "mb7", "mb1000", "mb10", "mb8", "mb0"})
    store(std::string(batch) + "ic3ih9oc4kh3");
  store("mb9ic3ih9oc4kh3", "another device");
  store("g3mb9ic3ih9oc3kh3");
  store("mb9ic3ih9oc4kh3ph1");
  store("mb9ic3ih9oc4kh3 act=relu");
  EXPECT_EQ(batches("mb8ic3ih9oc4kh3"), (Batches{7, 10, 2, 1, 64, 0, 1000}));
  EXPECT_EQ(batches("mb2000ic3ih9oc4kh3"), (Batches{1000, 64, 10, 8, 7, 2, 1, 0}));
  EXPECT_EQ(batches("g3mb1ic3ih9oc3kh3"), (Batches{9}));
}

// A name holds the first 48 characters of the problem's key, of which the batch takes up to 21.
TEST_F(RecordedBatches, AreFoundWhereNamesAreCut) {
  const std::string rest = R"(ic1024ih10iw20oc4096kh3kw5sh2sw3ph4pw5dh6dw1n"a" act=relu bias=0 pad_right=9)";
  for (const char* batch : {"", "mb3", "mb12345678901"}) store("g512" + std::string(batch) + rest);
  EXPECT_EQ(batches("g512mb4" + rest), (Batches{3, 2, 12345678901}));
  EXPECT_EQ(batches("g512mb4" + rest + " pad_bottom=9"), Batches{});
}

TEST_F(RecordedBatches, FollowTheFolder) {
  const auto expect = [&](const Batches& expected) {
    EXPECT_EQ(batches_after("mb8ic3ih9oc4kh3", expected), expected);
  };
  store("mb1ic3ih9oc4kh3");
  expect(Batches{1});
  store("mb4ic3ih9oc4kh3");  // within the same tick of the clock
  expect(Batches{4, 1});
  fs::last_write_time(database_.folder(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  expect(Batches{4, 1});
  store("mb16ic3ih9oc4kh3");
  expect(Batches{4, 16, 1});
  EXPECT_TRUE(database_.erase(parse_problem("mb4ic3ih9oc4kh3"), record_.device));
  expect(Batches{16, 1});
  for (const char* name : {"mbic3-0123456789abcdef.json", "mb99999999999999999999ic3-0.json", "g", "-", "mb"})
    write_text(database_.folder() / name, "");
  expect(Batches{16, 1});
  fs::remove_all(database_.folder());
  expect(Batches{});
}

// Beside a search that writes all the time a long list is not read for every plan.
TEST_F(RecordedBatches, ALongListIsReadNowAndThen) {
  store("mb1ic3ih9oc4kh3");
  for (int i = 0; i < 4'000; ++i)
    write_text(database_.folder() / ("mb8ic" + std::to_string(i) + "-0123456789abcdef.json"), "");
  Batches known = batches("mb100000ic3ih9oc4kh3");
  int lists = 0, latest = 0;
  const auto write_and_look = [&] {
    plant("mb" + std::to_string(1000 + latest++) + "ic3ih9oc4kh3", record_.device);
    const Batches now = batches("mb100000ic3ih9oc4kh3");
    lists += now != known;
    known = now;
  };
  for (int i = 0; i < 200; ++i) write_and_look();
  EXPECT_LT(lists, 100);
  for (const int before = lists; lists == before;)
    write_and_look();  // a file that is new is seen after a while
}

// Counted by what would warn: hundreds of files of other layers and devices, none of which is opened.
TEST_F(RecordedBatches, APlanOpensNoOtherRecord) {
  const DeviceInfo& cpu = backend({}).info();
  for (int i = 1; i <= 300; ++i) {
    plant("mb8ic3ih9oc" + std::to_string(i) + "kh3ph1", cpu.fingerprint);
    plant("mb" + std::to_string(i) + "ic3ih9oc4kh3", "another device");
  }
  const ConvProblem problem = resolve(parse_problem("mb8ic3ih9oc4kh3"), backend({}));
  EXPECT_EQ(choose(problem, cpu).source, PlanSource::estimate);
  EXPECT_EQ(Database::take_warnings(), std::vector<std::string>{});

  const Algorithm& direct = find_algorithm(Device::Kind::cpu, "direct");
  record_.algorithm = "direct", record_.kernel_hash = direct.source_hash(), record_.device = cpu.fingerprint;
  for (const std::int64_t batch : {1, 4, 100}) {
    record_.problem = problem, record_.problem.n = batch;
    record_.config = direct.candidates(record_.problem, cpu)[static_cast<std::size_t>(batch) % 7];
    if (batch == 4) record_.kernel_hash = "gone";
    if (batch == 100) record_.kernel_hash = direct.source_hash();
    database_.store(record_);
  }
  Plan plan = choose(problem, cpu);  // a long list is read now and then: looks until it was
  for (int i = 0; i < 10'000 && plan.source != PlanSource::nearest; ++i) plan = choose(problem, cpu);
  EXPECT_EQ(plan.source, PlanSource::nearest);
  EXPECT_NE(plan.why.find("for batch 1;"), std::string::npos) << plan.why;
  EXPECT_EQ(Database::take_warnings(), std::vector<std::string>{});
}

}  // namespace
}  // namespace convtune::recorded_batches_test
