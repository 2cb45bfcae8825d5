// See ahead.h.
#include "tune/ahead.h"

#include <fmt/format.h>

#include <system_error>

namespace convtune {

StallWatch::StallWatch(std::function<void(const std::string&)> say, std::chrono::milliseconds every,
                       std::string one)
    : say_(std::move(say)), every_(every), one_(std::move(one)) {
  if (!say_) return;
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {
    say_(fmt::format("no thread can be started ({}): nothing says so where a {} takes long",
                     error.code().message(), one_));
  }
}

StallWatch::~StallWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StallWatch::doing(std::uint64_t index, std::string what) {
  const std::lock_guard lock(mutex_);
  doing_[index] = std::move(what);
}

void StallWatch::done(std::uint64_t index) {
  const std::lock_guard lock(mutex_);
  doing_.erase(index);
  next_ = index + 1;
  changed_.notify_all();
}

void StallWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const std::uint64_t waited_for = next_;
    const auto moved = [&] { return ended_ || next_ != waited_for; };
    for (auto waited = every_; !changed_.wait_for(lock, every_, moved); waited += every_) {
      const auto entry = doing_.find(waited_for);
      const std::string what = entry == doing_.end() ? "its turn" : entry->second;
      lock.unlock();
      say_(fmt::format("{} {} has waited {:.0f} s for {}", one_, waited_for,
                       std::chrono::duration<double>(waited).count(), what));
      lock.lock();
      if (moved()) break;
    }
  }
}

}  // namespace convtune
