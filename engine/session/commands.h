// SPDX-License-Identifier: Apache-2.0
// The calls that the first process of a group makes the others make, out of one table (commands.inc): each with its arguments as bytes.
// Internal to the session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/session/group.h"
#include "engine/session/loaded_model.h"
#include "engine/session/stepper.h"

namespace tally {

// A process that follows the first one: its engines, by the numbers that the first one gave them.
class Follower {
 public:
  // `options`: their threads are this process's.
  Follower(std::shared_ptr<const LoadedModel> model, const EngineOptions& options)
      : model_(std::move(model)), options_(options) {}
  // Makes the first process's calls until its model ends. Errors of the group.
  Status Run();

  // An error is that of all processes.
  void NewEngine(int32_t id, const EngineOptions& options);
  void FreeEngine(int32_t id) { engines_.erase(id); }
  void End() { ended_ = true; }
  // Null: there is none of this number.
  Stepper* engine(int32_t id) const {
    const auto found = engines_.find(id);
    return found != engines_.end() ? found->second.get() : nullptr;
  }

 private:
  const std::shared_ptr<const LoadedModel> model_;
  const EngineOptions options_;
  std::map<int32_t, std::unique_ptr<Stepper>> engines_;
  bool ended_ = false;
};

// An argument as bytes, and what keeps it where it is read.
template <class T>
struct CommandArgument {
  using Kept = T;
  static void Put(CommandWriter& out, const T& value) { out.Put(value); }
  static Kept Get(CommandReader& in) { return in.Get<T>(); }
};
template <>
struct CommandArgument<std::string_view> {
  using Kept = std::string;
  static void Put(CommandWriter& out, std::string_view text) { out.PutText(text); }
  static Kept Get(CommandReader& in) { return in.GetText(); }
};
template <class T>
struct CommandArgument<std::span<const T>> {
  using Kept = std::vector<T>;
  static void Put(CommandWriter& out, std::span<const T> values) { out.PutAll(values); }
  static Kept Get(CommandReader& in) { return in.GetAll<T>(); }
};

// Rows of a step, and the embeddings that they have.
template <>
struct CommandArgument<std::span<const BatchRow>> {
  class Kept {
   public:
    Kept() = default;
    Kept(Kept&&) = default;                                       // a copy's rows would have the embeddings of another
    operator std::span<const BatchRow>() const { return rows_; }  // NOLINT(google-explicit-constructor): an argument of the call

   private:
    friend CommandArgument;
    std::vector<BatchRow> rows_;
    std::vector<std::vector<float>> embeddings_;
  };
  static void Put(CommandWriter& out, std::span<const BatchRow> rows);
  static Kept Get(CommandReader& in);
};

// A call of a Follower's, or of one of its engines, whose number stands first.
template <class Object, class Member, Member kMember, class... Parameters>
struct FollowedCall {
  static constexpr bool kOfEngine = std::is_same_v<Object, Stepper>;
  template <class... Arguments>
  static void Write(CommandWriter& out, int32_t engine, const Arguments&... arguments) requires kOfEngine {
    out.Put(engine);
    WriteAll(out, arguments...);
  }
  template <class... Arguments>
  static void Write(CommandWriter& out, const Arguments&... arguments) requires(!kOfEngine) {
    WriteAll(out, arguments...);
  }
  // False: there is no such engine.
  static bool Make(Follower& follower, CommandReader& in) {
    Object* object = nullptr;
    if constexpr (kOfEngine) {
      object = follower.engine(in.Get<int32_t>());
    } else {
      object = &follower;
    }
    if (object == nullptr) return false;
    // Braces read in order.
    std::tuple<typename CommandArgument<Parameters>::Kept...> arguments{CommandArgument<Parameters>::Get(in)...};
    std::apply([object](auto&... kept) { (void)(object->*kMember)(kept...); }, arguments);
    return true;
  }

 private:
  static void WriteAll(CommandWriter& out, const Parameters&... arguments) {
    (CommandArgument<Parameters>::Put(out, arguments), ...);
  }
};

template <auto kMember>
struct CommandCall;
template <class Object, class Returned, class... Parameters, Returned (Object::*kMember)(Parameters...)>
struct CommandCall<kMember>
    : FollowedCall<Object, Returned (Object::*)(Parameters...), kMember, std::remove_cvref_t<Parameters>...> {};
template <class Object, class Returned, class... Parameters, Returned (Object::*kMember)(Parameters...) const>
struct CommandCall<kMember>
    : FollowedCall<Object, Returned (Object::*)(Parameters...) const, kMember, std::remove_cvref_t<Parameters>...> {};

enum class CommandRanks : uint8_t { kAlone, kTogether };
struct CommandRow {
  std::string_view name;
  bool (*make)(Follower&, CommandReader&);
  CommandRanks ranks;
};
// By Command.
inline constexpr CommandRow kCommands[] = {
#define TALLY_COMMAND(name, call, ranks) {#name, &CommandCall<&call>::Make, CommandRanks::ranks},
#include "engine/session/commands.inc"
#undef TALLY_COMMAND
};

template <Command command>
struct CallOf;
#define TALLY_COMMAND(name, call, ranks) \
  template <>                            \
  struct CallOf<Command::k##name> : CommandCall<&call> {};
#include "engine/session/commands.inc"
#undef TALLY_COMMAND

// At the first process of a group: the others will make the call when the log is next sent. `log` null: nobody is told. Arguments: the
// engine's number, unless the call is a Follower's, then those of the call.
template <Command command, class... Arguments>
void Tell(GroupLog* log, const Arguments&... arguments) {
  if (log != nullptr) CallOf<command>::Write(log->Add(command), arguments...);
}
// The same, and sends it with what was told before. Errors of the group.
template <Command command, class... Arguments>
Status TellNow(GroupLog* log, const Arguments&... arguments) {
  Tell<command>(log, arguments...);
  return log != nullptr ? log->Flush() : Status();
}

}  // namespace tally
