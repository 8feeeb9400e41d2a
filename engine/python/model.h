// SPDX-License-Identifier: Apache-2.0
// A loaded model with its engine and the thread that steps it: what tally.Model holds.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine/python/py.h"
#include "engine/python/runner.h"

namespace tally::python {

// Calls with the interpreter's lock held. In a child of fork() what uses the engine's thread throws ForkedError.
class ModelState {
 public:
  ModelState(std::string name, std::shared_ptr<const Model> model, std::shared_ptr<Runner> runner);
  ~ModelState();
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  const std::string& name() const { return name_; }
  // These keep what they return alive while another thread closes the model. BadInput: it was closed.
  std::shared_ptr<const Model> model() const;
  std::shared_ptr<Runner> runner() const;
  std::shared_ptr<const Tokenizer> tokenizer() const;  // BadInput: the model has none
  // For chats, with tools or not: by `source` if that is not empty, else the checkpoint's. BadInput: there is none.
  std::shared_ptr<const ChatFormat> Format(const std::string& source, bool tools, std::vector<std::string>* stop);
  GrammarCache& grammars() { return grammars_; }
  // Waits for the engine's thread, at most a step; gives the memory back. What was started and not taken stays to be taken.
  void Close();
  bool closed() const { return runner_ == nullptr; }

  // Runs `call` on the engine's thread: a Job. Ctrl-C interrupts it.
  template <class T>
  T OnEngine(bool alone, const std::function<Result<T>(Engine& engine, const Job::Interrupted& interrupted)>& call) {
    Result<T> result = Closed();
    const auto job = std::make_shared<Job>(alone, [&](Engine& engine, const Job::Interrupted& interrupted) {
      try {
        result = call(engine, interrupted);
      } catch (const std::bad_alloc&) {
        result = NoRoom("not enough memory");
      }
      return result.status().code() != StatusCode::kNoRoom;
    });
    const std::shared_ptr<Runner> runner = this->runner();
    if (!runner->Add(job)) Throw(Closed());
    WaitFor([&](std::chrono::milliseconds most) { return job->Wait(most); }, [&] { runner->Cancel(job); }, /*until_over=*/true);
    if (result.status().code() == StatusCode::kInterrupted) Throw(Closed());
    return Unwrap(std::move(result));
  }

  static Status Closed() { return BadInput("the model was closed"); }

 private:
  const std::string name_;
  std::shared_ptr<const Model> model_;
  std::shared_ptr<Runner> runner_;
  GrammarCache grammars_;
  std::string format_of_;  // the template that format_ is of
  std::shared_ptr<const ChatFormat> format_;
};

}  // namespace tally::python
