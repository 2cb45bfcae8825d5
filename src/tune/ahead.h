// Things made on threads of their own before they are needed, in order, and the watch over what takes long.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace convtune {

// make(0), make(1), ... in this order, up to `ahead` of them made on threads of their own beforehand.
template <class Make>
class Ahead {
 public:
  using Made = std::invoke_result_t<Make, std::uint64_t>;
  Ahead(std::uint64_t count, std::uint64_t ahead, Make make)
      : count_(count), ahead_(ahead), make_(std::move(make)) {}
  Made next() {
    for (; begun_ < count_ && made_.size() < std::max<std::uint64_t>(ahead_, 1); ++begun_)
      made_.push_back(std::async(ahead_ > 0 ? kBeforehand : std::launch::deferred, std::cref(make_), begun_));
    Made made = made_.front().get();
    made_.pop_front();
    return made;
  }

 private:
  // Without a thread to be had, the C++ library makes it when it is asked for.
  static constexpr std::launch kBeforehand = std::launch::async | std::launch::deferred;

  const std::uint64_t count_, ahead_;
  const Make make_;
  std::uint64_t begun_ = 0;
  std::deque<std::future<Made>> made_;  // last: its threads use what stands above
};

// Names a stall: a kernel that compiles for minutes, one that never ends on its GPU. Says what the next
// problem, or what else `one` of them is, waits for whenever another `every` passes without it being done.
class StallWatch {
 public:
  StallWatch(std::function<void(const std::string&)> say, std::chrono::milliseconds every,
             std::string one = "problem");
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // Notes what some thread now does for number `index`.
  void doing(std::uint64_t index, std::string what);
  void done(std::uint64_t index);

 private:
  void watch();

  const std::function<void(const std::string&)> say_;
  const std::chrono::milliseconds every_;
  const std::string one_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::string> doing_;  // by number
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace convtune
