// SPDX-License-Identifier: Apache-2.0
// A model bigger than its memory whose disk fails, or whose file changes under it: requests fail by name, and the engine goes on with the
// bits of one that has all in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/loaded_model.h"
#include "engine/session/scheduler.h"
#include "engine/studies/packed_model.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// What a disk does to reads.
struct Disk {
  std::atomic<int> fails{0};        // so many reads fail
  std::atomic<int64_t> expert{-1};  // all reads of it fail
};

class FailingRecords final : public RecordReader {
 public:
  FailingRecords(std::unique_ptr<RecordReader> disk, Disk& faults) : disk_(std::move(disk)), faults_(faults) {}
  int pieces(size_t layer) const override { return disk_->pieces(layer); }
  uint64_t bytes(size_t layer) const override { return disk_->bytes(layer); }
  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int thread) const override {
    if (faults_.expert == expert || (faults_.fails > 0 && faults_.fails-- > 0)) {
      std::fill_n(slot, 64, uint8_t{0xa5});
      return BadInput("FILE: cannot be read at byte 17: Input/output error");
    }
    return disk_->Read(layer, expert, piece, slot, thread);
  }

 private:
  const std::unique_ptr<RecordReader> disk_;
  Disk& faults_;
};

EngineOptions Options(uint64_t budget = EngineOptions::kAllWeights) {
  EngineOptions options = SmallOptions();
  options.sequences = 4;
  options.max_batch = 16;
  options.max_logit_rows = 8;
  options.weights_budget = budget;
  return options;
}

// The least that is accepted: k + 2 slots of each layer.
uint64_t LeastBudget(const std::string& path) {
  const auto most = PlanModel(path, Options(1));
  EXPECT_TRUE(most.ok()) << most.status().message();
  const auto spec = ReadModelSpec(ReadCheckpoint(path).value());
  const auto all = PlanModel(path, Options());
  const auto part = PlanModel(path, Options(all->packed_weights - 1));
  const uint64_t slot = (part->all_weights - part->dense_weights) / static_cast<uint64_t>(part->experts);
  return part->dense_weights + static_cast<uint64_t>(ExpertsOf(spec->recipe).top_k + 2) * slot;
}

using Tokens = std::vector<int32_t>;
Tokens PromptOf(int i) {
  Tokens tokens;
  for (int t = 0; t < 5 + 2 * i; ++t) tokens.push_back((17 * i + 31 * t + 5) % 101);
  return tokens;
}

// Logits of a prompt and of decode steps, in the engine's sequence. The error of the first step that fails.
Result<std::vector<float>> LogitsOf(Engine& engine, int32_t sequence, const Tokens& tokens) {
  std::vector<float> all;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<BatchRow> rows = {{tokens[i], sequence, true, i > 3}};
    TALLY_ASSIGN_OR_RETURN(const StepOutput out, engine.Step(rows));
    all.insert(all.end(), out.Logits(0).begin(), out.Logits(0).end());
  }
  return all;
}

std::shared_ptr<Request> Ask(Scheduler& scheduler, const Engine& engine, int i, int64_t tokens = 12) {
  RequestOptions options{.max_tokens = tokens};
  options.sampling.seed = static_cast<uint64_t>(i);
  options.top_logprobs = 2;
  const auto request = Request::New(engine, PromptOf(i), options);
  EXPECT_TRUE(request.ok()) << request.status().message();
  scheduler.Add(*request);
  return *request;
}

void Finish(Scheduler& scheduler) {
  for (int i = 0; i < 1000 && !scheduler.idle(); ++i) scheduler.Step();
  EXPECT_TRUE(scheduler.idle());
}

// Tokens, and log probabilities as bits.
std::pair<Tokens, std::vector<double>> AnswerOf(Request& request) {
  std::vector<double> logprobs;
  for (const RequestEvent& event : request.TakeEvents()) {
    logprobs.push_back(event.logprobs.logprob);
    for (const auto& other : event.logprobs.top) logprobs.push_back(other.logprob);
  }
  return {request.result().tokens, logprobs};
}

class StreamedFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<SmallCheckpoint>(SmallConfig("Granite-3.0-1B-A400M"));
    gguf_ = made_->WriteGguf();
    packed_ = made_->folder() / "made.tally";
    ASSERT_TRUE(PackModel(gguf_, packed_, {.threads = 2}).ok());
  }
  static void TearDownTestSuite() { made_.reset(); }

  // A copy that the test may spoil.
  std::string Copy(const std::string& of) const {
    const std::string to = folder_ / fs::path(of).filename().string();
    fs::copy_file(of, to, fs::copy_options::overwrite_existing);
    return to;
  }
  static void ExpectNamed(const Status& status, const std::string& what) {
    EXPECT_EQ(status.code(), StatusCode::kUnreadable) << status.message();
    for (const std::string& part : {std::string("layer "), std::string(", expert "), what}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    EXPECT_EQ(status.message().find("expert "), status.message().rfind("expert ")) << "named twice: " << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }

  static inline std::unique_ptr<SmallCheckpoint> made_;
  static inline std::string gguf_, packed_;
  TempFolder folder_;
};

// EIO through the whole engine: once is not noticed; twice fails the step and what runs in it; then all is as if nothing had been.
TEST_F(StreamedFaults, ADiskThatFails) {
  for (const std::string& path : {gguf_, packed_}) {
    SCOPED_TRACE(path);
    const Tokens tokens = {3, 22, 60, 5, 3, 71, 80, 14, 9, 1};
    const Opened all = Open(path, Options());
    ASSERT_NE(all.engine, nullptr);
    const auto wanted = LogitsOf(*all.engine, all.engine->NewSequence().value(), tokens);
    Disk disk;
    const auto through = [&](std::unique_ptr<RecordReader> reader) -> std::unique_ptr<RecordReader> {
      return std::make_unique<FailingRecords>(std::move(reader), disk);
    };
    const EngineOptions options = Options(LeastBudget(path));
    const auto model = LoadModelThrough(path, options, through);
    ASSERT_TRUE(model.ok()) << model.status().message();
    ASSERT_TRUE((*model)->memory_plan().streams());
    const auto engine = NewEngine(*model, options).value();

    disk.fails = 1;
    const int32_t first = engine->NewSequence().value();
    EXPECT_EQ(*LogitsOf(*engine, first, tokens), *wanted);
    EXPECT_EQ(disk.fails, 0);

    // A sequence is as it was before the step that failed.
    const int32_t second = engine->NewSequence().value();
    disk.fails = 1000;
    const std::vector<BatchRow> row = {{tokens[0], second, true}, {tokens[0], first, true}};
    int failed = 0;
    for (const BatchRow& r : row) {
      const auto out = engine->Step({&r, 1});
      if (out.ok()) continue;  // all in memory
      ++failed;
      ExpectNamed(out.status(), "FILE: cannot be read at byte 17: Input/output error");
    }
    EXPECT_GT(failed, 0);
    disk.fails = 0;
    EXPECT_TRUE(engine->Health().ok());
    if (engine->Length(second) == 0) {
      EXPECT_EQ(*LogitsOf(*engine, second, tokens), *wanted);
    }
    engine->Free(first);
    engine->Free(second);

    Scheduler scheduler(*engine), other(*all.engine);
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < 3; ++i) requests.push_back(Ask(scheduler, *engine, i));
    for (int i = 0; i < 3; ++i) scheduler.Step();
    disk.fails = 1000;
    Finish(scheduler);
    disk.fails = 0;
    for (const auto& request : requests) {
      EXPECT_EQ(request->result().finish, FinishReason::kError);
      ExpectNamed(request->result().error, "Input/output error");
    }
    EXPECT_EQ(engine->KvBytesInUse(), 0u);
    for (int i = 0; i < 3; ++i) {
      const auto again = Ask(scheduler, *engine, i), same = Ask(other, *all.engine, i);
      Finish(scheduler);
      Finish(other);
      EXPECT_TRUE(again->result().error.ok()) << again->result().error.message();
      EXPECT_EQ(AnswerOf(*again), AnswerOf(*same));
    }
    // One expert's place is bad for good: who does not need it is answered.
    disk.expert = 3;
    int answered = 0;
    for (int i = 0; i < 8; ++i) {
      const auto request = Ask(scheduler, *engine, i, 1), same = Ask(other, *all.engine, i, 1);
      Finish(scheduler);
      Finish(other);
      if (request->result().error.ok()) {
        EXPECT_EQ(AnswerOf(*request), AnswerOf(*same));
        ++answered;
      } else {
        ExpectNamed(request->result().error, ", expert 3: FILE");
      }
    }
    EXPECT_LT(answered, 8);
  }
}

// A file that is cut, written to or replaced while an engine runs on it. A replaced one is held open, and nothing changes.
TEST_F(StreamedFaults, AFileThatChanges) {
  const Tokens tokens = {3, 22, 60, 5, 3, 71, 80, 14, 9, 1};
  for (const std::string& original : {gguf_, packed_}) {
    const Opened all = Open(original, Options());
    ASSERT_NE(all.engine, nullptr);
    const auto wanted = LogitsOf(*all.engine, all.engine->NewSequence().value(), tokens);
    const EngineOptions options = Options(LeastBudget(original));
    const auto overwrite = [](const std::string& path) {
      const auto size = static_cast<std::streamoff>(fs::file_size(path));
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(size / 2);
      const std::string other(static_cast<size_t>(size - size / 2), '\x3c');
      file.write(other.data(), static_cast<std::streamsize>(other.size()));
    };
    struct Change {
      const char* name;
      std::function<void(const std::string& path)> make;
      const char* error;  // part of it; null: there is none
      bool packed_only = false;
    };
    const std::vector<Change> changes = {
        {"replaced", [&](const std::string& path) { fs::rename(folder_.Write("other", std::string(4096, 'x')), path); }, nullptr},
        {"removed", [](const std::string& path) { fs::remove(path); }, nullptr},
        {"cut", [](const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); }, ""},
        {"emptied", [](const std::string& path) { fs::resize_file(path, 0); }, "the file"},
        {"written to", overwrite, "has changed since its header was read"},
        {"written to in secret",
         [&](const std::string& path) {
           const auto time = fs::last_write_time(path);
           overwrite(path);
           fs::last_write_time(path, time);
         },
         "their checksum does not agree", true},
    };
    for (const Change& change : changes) {
      for (const bool running : {false, true}) {
        if (change.packed_only && (original != packed_ || running))
          continue;  // a checksum is looked at when a record is first read
        SCOPED_TRACE(original + " " + change.name);
        const std::string path = Copy(original);
        const Opened opened = Open(path, options);
        ASSERT_NE(opened.engine, nullptr);
        Engine& engine = *opened.engine;
        const int32_t sequence = engine.NewSequence().value();
        if (running) {
          EXPECT_EQ(*LogitsOf(engine, sequence, tokens), *wanted);
        }
        change.make(path);
        int answered = 0;
        for (int i = 0; i < 3; ++i) {  // the engine lives
          const auto logits = LogitsOf(engine, engine.NewSequence().value(), tokens);
          if (logits.ok()) {
            EXPECT_EQ(*logits, *wanted);
            ++answered;
          } else {
            ASSERT_NE(change.error, nullptr) << logits.status().message();
            ExpectNamed(logits.status(), change.error);
            EXPECT_NE(logits.status().message().find(fs::path(path).filename().string()), std::string::npos);
          }
        }
        if (change.error == nullptr) {
          EXPECT_EQ(answered, 3);
        } else if (std::string_view(change.name) != "cut") {
          EXPECT_EQ(answered, 0);
        }
        EXPECT_TRUE(engine.Health().ok());
      }
    }
  }
}

// With the fewest slots, four requests at once take turns with them. Each has the bits that it has alone with all in memory.
TEST_F(StreamedFaults, CompanyWithTheFewestSlots) {
  const Opened all = Open(packed_, Options());
  ASSERT_NE(all.engine, nullptr);
  Scheduler alone(*all.engine);
  std::vector<std::pair<Tokens, std::vector<double>>> wanted;
  for (int i = 0; i < 6; ++i) {
    const auto request = Ask(alone, *all.engine, i);
    Finish(alone);
    wanted.push_back(AnswerOf(*request));
    ASSERT_EQ(wanted.back().first.size(), 12u);
  }
  for (const std::string& path : {gguf_, packed_}) {
    const uint64_t least = LeastBudget(path);
    EXPECT_FALSE(LoadModel(path, Options(least - 1)).ok());
    const Opened few = Open(path, Options(least));
    ASSERT_NE(few.engine, nullptr);
    EXPECT_EQ(few.model->memory_plan().expert_slots, ExpertsOf(few.model->recipe()).top_k + 2);
    Scheduler scheduler(*few.engine, {.step_seconds = 1e-3});
    std::vector<std::shared_ptr<Request>> requests;
    for (int i = 0; i < 6; ++i) {  // six of four places; one comes late, one leaves
      requests.push_back(Ask(scheduler, *few.engine, i));
      scheduler.Step();
    }
    const auto leaves = Ask(scheduler, *few.engine, 7);
    scheduler.Step();
    scheduler.Cancel(*leaves);
    Finish(scheduler);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(AnswerOf(*requests[i]), wanted[i]) << path << " " << i;
    EXPECT_EQ(few.engine->KvBytesInUse(), 0u);
  }
}

}  // namespace
}  // namespace tally
