// SPDX-License-Identifier: Apache-2.0
// Answers of several threads to one question. Internal to serve.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tally {

// What loops of several models give together: `done` is called once all that were asked have answered.
template <class T>
class Gathering {
 public:
  explicit Gathering(std::function<void(std::vector<std::pair<size_t, T>> answers)> done) : done_(std::move(done)) {}
  void Expect() {
    const std::lock_guard lock(mutex_);
    ++missing_;
  }
  void Add(size_t model, T answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_.emplace_back(model, std::move(answer));
    }
    Ended();
  }
  // One that was expected does not come; also once nobody else is to be asked.
  void Ended() {
    {
      const std::lock_guard lock(mutex_);
      if (--missing_ > 0) return;
    }
    std::ranges::sort(answers_, {}, &std::pair<size_t, T>::first);
    done_(std::move(answers_));
  }

 private:
  std::mutex mutex_;
  size_t missing_ = 1;  // the one who asks
  std::vector<std::pair<size_t, T>> answers_;
  const std::function<void(std::vector<std::pair<size_t, T>> answers)> done_;
};

}  // namespace tally
