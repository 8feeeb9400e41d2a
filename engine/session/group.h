// SPDX-License-Identifier: Apache-2.0
// Processes that run one model together. The first process sends the others every call of its engines (Command), and they make the same
// calls. What a SequenceStore does depends on its calls alone, so the stores of all processes stay equal. Internal to the session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "counters/ledger/process_books.h"
#include "engine/base/communicator.h"
#include "engine/base/status.h"
#include "engine/session/model.h"

namespace tally {

// What the first process makes the others do.
enum class Command : uint8_t {
#define TALLY_COMMAND(name, call, ranks) k##name,
#include "engine/session/commands.inc"
#undef TALLY_COMMAND
};

// Values of plain types, strings and arrays of plain types as bytes.
class CommandWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T> &&(!std::is_pointer_v<T>)CommandWriter& Put(const T& value) {
    return Append(&value, sizeof(T));
  }
  template <class T>
  CommandWriter& PutAll(std::span<const T> values) {
    Put(static_cast<uint64_t>(values.size()));
    return Append(values.data(), values.size_bytes());
  }
  CommandWriter& PutText(std::string_view text) { return PutAll(std::span(text.data(), text.size())); }
  std::vector<uint8_t>& bytes() { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  CommandWriter& Append(const void* from, size_t size) {
    const uint8_t* const begin = static_cast<const uint8_t*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
    return *this;
  }
  std::vector<uint8_t> bytes_;
};

// Reads what a CommandWriter of the same program wrote.
class CommandReader {
 public:
  explicit CommandReader(std::span<const uint8_t> bytes) : left_(bytes) {}
  explicit CommandReader(std::string_view bytes) : left_(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()) {}
  bool empty() const { return left_.empty(); }
  template <class T>
  T Get() {
    T value{};
    Take(&value, sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> GetAll() {
    const uint64_t n = Get<uint64_t>();
    std::vector<T> values(n <= left_.size() / sizeof(T) ? n : 0);
    Take(values.data(), values.size() * sizeof(T));
    return values;
  }
  std::string GetText() {
    const std::vector<char> text = GetAll<char>();
    return {text.begin(), text.end()};
  }

 private:
  void Take(void* to, size_t size) {
    size = std::min(size, left_.size());
    if (size > 0) std::memcpy(to, left_.data(), size);
    left_ = left_.subspan(size);
  }
  std::span<const uint8_t> left_;
};

// Sends the others what the first process does.
class GroupLog {
 public:
  explicit GroupLog(Communicator& group) : group_(group) {}
  // Its arguments are put after it.
  CommandWriter& Add(Command command) { return pending_.Put(command); }
  // Sends what was added.
  Status Flush();
  Communicator& group() { return group_; }
  int32_t NextEngine() { return engines_++; }

 private:
  Communicator& group_;
  CommandWriter pending_;
  int32_t engines_ = 0;
};

// The bytes of the first process's next Flush; waits as long as it takes.
Result<std::vector<uint8_t>> ReceiveCommands(Communicator& group);

// Processes of the group on this process's machine, which share its memory; 1: there is no group.
uint64_t RanksHere(const Communicator* group);

void WriteCost(const Cost& cost, CommandWriter& out);
Cost ReadCost(CommandReader& in);
void WriteBooks(const ProcessBooks& books, CommandWriter& out);
ProcessBooks ReadBooks(CommandReader& in);

// The same status in every process: ok, or the failure of the lowest rank that has one (Together, machine/communicator.h). `own` if there
// is no group.
Status AgreeOnStatus(Communicator* group, const Status& own);

}  // namespace tally
