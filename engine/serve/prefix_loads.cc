// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/prefix_loads.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace tally {

void PrefixLoads::Stop() {
  stopping_ = true;
  reader_.Stop();
}

size_t PrefixLoads::waiting() const {
  size_t n = 0;
  for (const std::shared_ptr<Load>& load : loads_) n += load->requests.size();
  return n;
}

bool PrefixLoads::Begin(const std::shared_ptr<Request>& request) {
  if (!request->prefix_key()) return false;
  const std::span<const int32_t> tokens = request->tokens();  // the last one's logits are wanted: it runs
  std::unique_ptr<PrefixFiles::Found> found = files_.Find(*request->prefix_key(), tokens.first(tokens.size() - 1));
  if (found == nullptr) return false;
  const auto same = std::ranges::find_if(loads_, [&](const auto& load) { return load->found->name == found->name; });
  if (same != loads_.end()) {
    (*same)->requests.push_back(request);
    return true;
  }
  auto load = std::make_shared<Load>();
  load->found = std::move(found);
  load->requests.push_back(request);
  const auto check = [this, load] {
    try {
      load->checked = stopping_ ? NoRoom("the server ends") : load->found->session.Check();
    } catch (const std::exception&) {
      load->checked = NoRoom("not enough memory to read a file");
    }
    load->done = true;
    ++ready_;
    wake_();
  };
  if (!reader_.Add("", check)) return false;
  loads_.push_back(std::move(load));
  return true;
}

std::vector<std::shared_ptr<Request>> PrefixLoads::TakeReady() {
  std::vector<std::shared_ptr<Request>> ready;
  if (!this->ready()) return ready;
  std::vector<std::shared_ptr<Load>> done;
  std::erase_if(loads_, [&](const std::shared_ptr<Load>& load) {
    const bool is_done = load->done;
    if (is_done) done.push_back(load);
    return is_done;
  });
  ready_ -= static_cast<int>(done.size());
  for (const std::shared_ptr<Load>& load : done) {
    const bool wanted = std::ranges::any_of(load->requests, [](const auto& request) { return !request->ended(); });
    const bool good = !wanted || files_.Import(*load->found, load->checked);
    for (std::shared_ptr<Request>& request : load->requests) {
      if (request->ended() || (!good && Begin(request))) continue;
      ready.push_back(std::move(request));
    }
  }
  return ready;
}

}  // namespace tally
