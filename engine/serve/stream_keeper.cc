// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/stream_keeper.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "engine/machine/machine.h"

namespace tally {

class StreamKeeper::Kept final : public HttpExchange {
 public:
  Kept(std::shared_ptr<HttpExchange> exchange, std::string sign) : exchange_(std::move(exchange)), sign_(std::move(sign)) {}
  HttpRequest& request() override { return exchange_->request(); }
  void Answer(HttpAnswer answer) override { exchange_->Answer(std::move(answer)); }
  void Begin(HttpAnswer head) override {
    exchange_->Begin(std::move(head));
    written_ = MonotonicSeconds();
  }
  void Write(std::string_view bytes) override {
    exchange_->Write(bytes);
    written_ = MonotonicSeconds();
  }
  void End(bool whole) override {
    written_ = 0;
    exchange_->End(whole);
  }
  bool left() const override { return exchange_->left(); }

  void SignIfSilentSince(double when) {
    const double written = written_;
    if (written > 0 && written <= when) Write(sign_);
  }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
  const std::string sign_;
  std::atomic<double> written_{0};  // MonotonicSeconds() of the last write; 0: it has not begun, or has ended
};

Status StreamKeeper::Start() {
  if (thread_.Start([this] { Run(); })) return {};
  return NoRoom("the server cannot start: the system refuses it a thread");
}

void StreamKeeper::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.Join();
}

std::shared_ptr<HttpExchange> StreamKeeper::Keep(std::shared_ptr<HttpExchange> exchange, std::string sign) {
  auto kept = std::make_shared<Kept>(std::move(exchange), std::move(sign));
  const std::lock_guard lock(mutex_);
  kept_.push_back(kept);
  wake_.notify_all();
  return kept;
}

void StreamKeeper::Run() {
  constexpr double kLooks = 8;  // in that time
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait(lock, [&] { return stopping_ || !kept_.empty(); });
    wake_.wait_for(lock, std::chrono::duration<double>(seconds_ / kLooks), [&] { return stopping_; });
    if (stopping_) return;
    std::erase_if(kept_, [](const std::weak_ptr<Kept>& kept) { return kept.expired(); });
    const std::vector<std::weak_ptr<Kept>> all = kept_;
    lock.unlock();
    for (const std::weak_ptr<Kept>& one : all) {
      if (const std::shared_ptr<Kept> kept = one.lock()) kept->SignIfSilentSince(MonotonicSeconds() - seconds_);
    }
    lock.lock();
  }
}

}  // namespace tally
