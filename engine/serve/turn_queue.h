// SPDX-License-Identifier: Apache-2.0
// A queue of waiting entries for each client; clients take turns. Not for several threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace tally {

template <class T>
class TurnQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }  // of all clients
  size_t SizeOf(const std::string& client) const {
    const auto queue = queues_.find(client);
    return queue == queues_.end() ? 0 : queue->second.size();
  }
  void Push(const std::string& client, T thing) {
    std::deque<T>& queue = queues_[client];
    queue.push_back(std::move(thing));
    ++size_;
    if (queue.size() == 1) turns_.push_back(client);
  }
  // The first entry of the client whose turn it is. The queue must not be empty.
  T Pop() {
    return *PopOf([](const std::string&) { return true; });
  }
  // The same among the clients for which `may` holds; nullopt: none of them has an entry.
  template <class May>
  std::optional<T> PopOf(const May& may) {
    const auto turn = std::ranges::find_if(turns_, may);
    if (turn == turns_.end()) return std::nullopt;
    const std::string client = std::move(*turn);
    turns_.erase(turn);
    const auto queue = queues_.find(client);
    T first = std::move(queue->second.front());
    queue->second.pop_front();
    --size_;
    if (queue->second.empty()) {
      queues_.erase(queue);
    } else {
      turns_.push_back(client);
    }
    return first;
  }
  // Removes the entries of a client for which `gone` holds.
  template <class Gone>
  void Erase(const std::string& client, const Gone& gone) {
    const auto queue = queues_.find(client);
    if (queue == queues_.end()) return;
    size_ -= std::erase_if(queue->second, gone);
    if (!queue->second.empty()) return;
    std::erase(turns_, client);
    queues_.erase(queue);
  }

 private:
  std::map<std::string, std::deque<T>> queues_;  // none is empty
  std::deque<std::string> turns_;                // their clients, the next one first
  size_t size_ = 0;
};

}  // namespace tally
