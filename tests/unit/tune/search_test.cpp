// The order of a search, on a made-up landscape.
#include "tune/search.h"

#include <gtest/gtest.h>

#include <set>

namespace convtune::search_test {
namespace {

// A 20 x 20 grid; candidates in row order, so that the estimate's order says nothing.
std::vector<Candidate> grid() {
  std::vector<Candidate> candidates;
  for (int a = 0; a < 20; ++a)
    for (int b = 0; b < 20; ++b) candidates.push_back({"bowl", {{{"a", a}, {"b", b}}}});
  return candidates;
}

double bowl(const Candidate& c) {
  const double a = static_cast<double>(c.config.at("a")) - 13, b = static_cast<double>(c.config.at("b")) - 7;
  return 100 + a * a + b * b;
}

TEST(Search, ClimbsToTheBottomOfABowlWithFewTrials) {
  Search search(grid(), 4);
  while (const auto index = search.next()) {
    search.report(*index, bowl(search.candidates()[*index]));
    if (search.best_us() == 100) break;
  }
  EXPECT_EQ(to_string(search.candidates()[*search.best()].config), "a=13 b=7");
  EXPECT_LT(search.tried(), 120u);  // out of 400
}

TEST(Search, TriesEveryCandidateOnce) {
  Search search(grid(), 4);
  std::set<std::size_t> seen;
  while (const auto index = search.next()) {
    EXPECT_TRUE(seen.insert(*index).second);
    search.report(*index, std::nullopt);
  }
  EXPECT_EQ(seen.size(), 400u);
  EXPECT_FALSE(search.best());
}

TEST(Search, StaysWithTheBestAlgorithmFirst) {
  std::vector<Candidate> candidates = {{"x", {{{"a", 1}}}}, {"y", {{{"a", 2}}}}, {"x", {{{"a", 2}}}}};
  Search search(candidates, 1);
  EXPECT_EQ(search.next(), 0u);
  search.report(0, 5.0);
  EXPECT_EQ(search.next(), 2u);  // the neighbour first, although it stands last
  search.report(2, 6.0);
  EXPECT_EQ(search.next(), 1u);
  EXPECT_EQ(search.next(), std::nullopt);
}

// An algorithm whose first guess is poor, behind one with many configs that are all alike.
std::vector<Candidate> two_algorithms() {
  std::vector<Candidate> candidates = {{"many", {{{"a", 0}}}}, {"few", {{{"b", 0}}}}};
  for (int i = 1; i < 40; ++i) candidates.push_back({"many", {{{"a", i}}}});
  for (int i = 1; i < 4; ++i) candidates.push_back({"few", {{{"b", i}}}});
  return candidates;
}

std::size_t trials_of_few(double first_us) {
  Search search(two_algorithms(), 2);
  std::size_t few = 0;
  for (int i = 0; i < 14; ++i) {
    const std::size_t index = search.next().value();
    const bool is_few = search.candidates()[index].algorithm == "few";
    few += is_few;
    search.report(index, is_few ? first_us : 100.0);
  }
  return few;
}

TEST(Search, EveryFourthIsOfAnotherAlgorithmThatIsNotFarOff) {
  EXPECT_EQ(trials_of_few(190), 4u);  // its first guess, and three of twelve more
  EXPECT_EQ(trials_of_few(210), 3u);  // as many as it takes to judge it
}

TEST(Search, FindsAnAlgorithmWhoseFirstGuessWasPoor) {
  Search search(two_algorithms(), 2);
  while (search.tried() < 6) {
    const std::size_t index = search.next().value();
    const Candidate& one = search.candidates()[index];
    search.report(index, one.algorithm == "many" ? 100.0 : one.config.at("b") == 0 ? 400.0 : 50.0);
  }
  EXPECT_EQ(search.best_us(), 50.0);
}

std::vector<Forecast> forecasts(const std::string& algorithm,
                                const std::vector<std::optional<double>>& estimates) {
  std::vector<Forecast> list;
  for (const auto& us : estimates)
    list.push_back({{algorithm, {{{"n", static_cast<std::int64_t>(list.size())}}}}, us});
  return list;
}

std::string dealt(const std::vector<std::vector<Forecast>>& lists) {
  std::string text;
  for (const Candidate& one : deal(lists))
    text += (text.empty() ? "" : " ") + one.algorithm + std::to_string(one.config.at("n"));
  return text;
}

TEST(Search, DealsTheFirstOfEveryAlgorithmThenByForecast) {
  EXPECT_EQ(dealt({forecasts("a", {90, 95, 400}), forecasts("b", {200, 210}), forecasts("c", {50, 60, 80})}),
            "c0 a0 c1 c2 a1 b0 b1 a2");  // b is far off, a not near
  EXPECT_EQ(dealt({forecasts("a", {90, 95, 400}), forecasts("b", {99, 210}), forecasts("c", {50, 60, 80})}),
            "c0 a0 b0 c1 c2 a1 b1 a2");
}

TEST(Search, DealsThreeOfEveryAlgorithmThatIsNear) {
  EXPECT_EQ(dealt({forecasts("a", {50, 51, 52, 53, 54}), forecasts("b", {60, 61, 62, 102})}),
            "a0 b0 a1 b1 a2 b2 a3 a4 b3");
  EXPECT_EQ(dealt({forecasts("a", {50, 200, 10}), forecasts("b", {60, 100})}), "a0 b0 b1 a1 a2");
}

TEST(Search, DealsConfigsOfAnAlgorithmThatDifferFirst) {
  const auto config = [](int rows, int columns, int cluster) {
    return Config{{{"rows", rows}, {"columns", columns}, {"cluster", cluster}}};
  };
  const std::vector<Forecast> list = {{{"a", config(16, 8, 1)}, 50.0},
                                      {{"a", config(16, 8, 2)}, 51.0},
                                      {{"a", config(20, 8, 1)}, 52.0},
                                      {{"a", config(2, 64, 1)}, 53.0},
                                      {{"a", config(4, 32, 2)}, 70.0}};
  std::string order;
  for (const Candidate& one : deal({list})) order += to_string(one.config) + "; ";
  EXPECT_EQ(
      order,
      "rows=16 columns=8 cluster=1; rows=2 columns=64 cluster=1; rows=16 columns=8 cluster=2; "
      "rows=20 columns=8 cluster=1; rows=4 columns=32 cluster=2; ");  // the last is slow by its forecast
}

TEST(Search, DealsInTurnsWithoutForecasts) {
  EXPECT_EQ(dealt({forecasts("a", {{}, {}, {}}), {}, forecasts("b", {{}, {}})}), "a0 b0 a1 b1 a2");
  EXPECT_EQ(dealt({}), "");
}

TEST(Search, NoCandidatesNoSearch) {
  EXPECT_EQ(Search({}).next(), std::nullopt);
}

}  // namespace
}  // namespace convtune::search_test
