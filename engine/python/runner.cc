// SPDX-License-Identifier: Apache-2.0
#include "engine/python/runner.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>
#include <system_error>

namespace tally::python {

bool Answer::Wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, most, [&] { return ended_ || !events_.empty(); });
}

bool Answer::WaitForEnd(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return end_.wait_for(lock, most, [&] { return ended_; });
}

std::vector<RequestEvent> Answer::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

bool Answer::HasNews() const {
  const std::lock_guard lock(mutex_);
  return ended_ || !events_.empty();
}

bool Answer::Over() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool Answer::Ended() const {
  const std::lock_guard lock(mutex_);
  return ended_ && events_.empty();
}

void Answer::Push(std::vector<RequestEvent> events, bool ended) {
  if (events.empty() && !ended) return;
  const std::lock_guard lock(mutex_);
  for (RequestEvent& event : events) events_.push_back(std::move(event));
  ended_ = ended_ || ended;
  news_.notify_all();
  if (ended_) end_.notify_all();
  Wake();
}

// Under the lock, since the reader may close the file once it has said so. A full pipe has woken the reader before.
void Answer::Wake() const {
  if (wake_ < 0 || !(ended_ || (!wake_at_end_ && !events_.empty()))) return;
  const ssize_t written = write(wake_, "", 1);
  (void)written;
}

void Answer::SetWake(int file, bool at_end) {
  const std::lock_guard lock(mutex_);
  wake_ = file;
  wake_at_end_ = at_end;
  Wake();
}

bool Job::Wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return over_.wait_for(lock, most, [&] { return done_; });
}

Result<std::unique_ptr<Runner>> Runner::Start(std::unique_ptr<Engine> engine, int32_t sequences) {
  std::unique_ptr<Runner> runner(new Runner(std::move(engine), sequences));
  try {
    runner->thread_ = std::thread([r = runner.get()] { r->Run(); });
  } catch (const std::system_error& error) {
    return NoRoom(std::string("no thread for the engine: ") + error.what());
  }
  return runner;
}

void Runner::Stop() {
  std::call_once(stopped_, [this] {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (job_ != nullptr) job_->interrupted_ = true;
      wake_.notify_all();
    }
    thread_.join();
  });
}

bool Runner::Add(Work work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  waiting_.push_back(std::move(work));
  wake_.notify_all();
  return true;
}

void Runner::Drop(const Work& work) {
  if (work.job != nullptr) return Finish(*work.job);
  work.answer->request_->End(FinishReason::kInterrupted);
  work.answer->Push({}, true);
}

void Runner::Cancel(const std::shared_ptr<Answer>& answer) {
  const std::lock_guard lock(mutex_);
  const auto waits = std::ranges::find(waiting_, answer, &Work::answer);
  if (waits != waiting_.end()) {
    const Work work = std::move(*waits);
    waiting_.erase(waits);
    Drop(work);
  } else {
    cancelled_.push_back(answer);
    wake_.notify_all();
  }
}

void Runner::Cancel(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  job->interrupted_ = true;
  const auto waits = std::ranges::find(waiting_, job, &Work::job);
  if (waits == waiting_.end()) return;
  waiting_.erase(waits);
  Finish(*job);
}

void Runner::Finish(Job& job) {
  const std::lock_guard lock(job.mutex_);
  job.done_ = true;
  job.over_.notify_all();
}

void Runner::RunJob(const std::shared_ptr<Job>& job) {
  const bool had_room = job->call_(*engine_, [&job] { return job->interrupted_.load(); });
  const std::lock_guard lock(mutex_);
  job_ = nullptr;
  if (had_room || active_.empty() || job->interrupted_) return Finish(*job);
  job->alone_ = true;
  waiting_.push_front({.job = job});
}

// Waits for something to do, and takes it. False: the thread ends.
bool Runner::TakeWork(Scheduler& scheduler) {
  std::vector<std::shared_ptr<Answer>> cancelled;
  std::shared_ptr<Job> job;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !cancelled_.empty() || !scheduler.idle(); });
    if (stopping_) return false;
    // The scheduler has no more requests than run, so that those that wait cost it nothing.
    while (!waiting_.empty() && waiting_.front().answer != nullptr && active_.size() < most_running_) {
      active_.push_back(std::move(waiting_.front().answer));
      scheduler.Add(active_.back()->request_);
      waiting_.pop_front();
    }
    if (!waiting_.empty() && waiting_.front().job != nullptr &&
        active_.size() < (waiting_.front().job->alone_ ? 1 : most_running_)) {
      job = job_ = std::move(waiting_.front().job);
      waiting_.pop_front();
    }
    cancelled.swap(cancelled_);
  }
  for (const std::shared_ptr<Answer>& answer : cancelled) {
    if (answer->request_->ended()) continue;
    answer->request_->End(FinishReason::kInterrupted);
    scheduler.Cancel(*answer->request_);
  }
  if (!cancelled.empty()) Deliver();
  if (job != nullptr) RunJob(job);
  return true;
}

void Runner::Deliver() {
  for (const std::shared_ptr<Answer>& answer : active_) {
    answer->Push(answer->request_->TakeEvents(), answer->request_->ended());
  }
  std::erase_if(active_, [](const std::shared_ptr<Answer>& answer) { return answer->request_->ended(); });
}

void Runner::Step(Scheduler& scheduler) {
  try {
    scheduler.Step();
  } catch (const std::bad_alloc&) {
    for (const std::shared_ptr<Answer>& answer : active_) {
      if (!answer->request_->ended()) answer->request_->End(FinishReason::kError, NoRoom("not enough memory"));
      scheduler.Cancel(*answer->request_);
    }
  }
}

void Runner::Run() {
  {
    Scheduler scheduler(*engine_);
    while (TakeWork(scheduler)) {
      Step(scheduler);
      Deliver();
    }
  }  // ends what has not ended
  Deliver();
  const std::lock_guard lock(mutex_);
  for (const Work& work : waiting_) Drop(work);
  waiting_.clear();
}

}  // namespace tally::python
