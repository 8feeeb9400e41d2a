// SPDX-License-Identifier: Apache-2.0
#include "engine/app/foreign_options.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/render/words.h"

namespace tally::app {
namespace {

using Kind = ForeignOption::Kind;

constexpr std::string_view kNoGpu = "models run on the CPU";
constexpr std::string_view kMemory = "weights are read into memory, on pages of their own";

// "--top_k" is "--top-k".
std::string Dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool HasName(const ForeignOption& option, const std::string& name) {
  return std::ranges::find(option.names, name) != option.names.end();
}

// "--system" of "-sys", if that is no option of the command.
const ForeignOption* FindLacking(const std::string& name) {
  const auto lacking = [&](const ForeignOption& option) {
    return option.kind == Kind::kTaken && option.of.empty() && HasName(option, name);
  };
  const std::span<const ForeignOption> all = ForeignOptions();
  const auto at = std::ranges::find_if(all, lacking);
  return at == all.end() ? nullptr : &*at;
}

Status NoSuchTarget(const Command& app, const Command& command, const std::string& given, const std::string& ours) {
  std::vector<std::string> others;
  for (const Command& other : app.commands()) {
    if (other.Has(ours)) others.push_back(other.name());
  }
  const std::string have = others.empty() ? "" : "; tally " + Join(others, ", ") + (others.size() == 1 ? " has" : " have");
  return BadInput(given + " is not an option here: " + command.name() + " has no " + ours + have);
}

// The options of a command line that take a value, as they were typed.
class GivenOptions {
 public:
  explicit GivenOptions(const Command& command) : syntax_(command.options()) {}
  // `ours`: the option that `typed` stands for.
  void Add(const std::string& ours, const std::string& typed) {
    const auto has = [&](const OptionSyntax& option) { return std::ranges::find(option.names, ours) != option.names.end(); };
    const auto at = std::ranges::find_if(syntax_, has);
    if (at != syntax_.end() && !at->many && !at->type.empty()) typed_[&*at].push_back(typed);
  }
  // kBadInput: "--tokens is given 3 times (--n-predict and -n are the same)".
  Status Check() const {
    for (const auto& [option, typed] : typed_) {
      if (typed.size() < 2) continue;
      const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
      const auto at = std::ranges::find_if(option->names, is_long);
      const std::string name = at == option->names.end() ? option->names.front() : *at;
      std::set<std::string> others(typed.begin(), typed.end());
      others.erase(name);
      const std::vector<std::string> same(others.begin(), others.end());
      return BadInput(name + " is given " + (typed.size() == 2 ? "twice" : std::to_string(typed.size()) + " times") +
                      (same.empty() ? "" : " (" + Join(same, " and ") + (same.size() == 1 ? " is" : " are") + " the same)"));
    }
    return {};
  }

 private:
  std::vector<OptionSyntax> syntax_;
  std::map<const OptionSyntax*, std::vector<std::string>> typed_;
};

// "-x" and "--x", but not "-1".
bool IsOption(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.';
}

const ForeignOption* Find(const Command& command, const std::string& name) {
  for (const ForeignOption& option : ForeignOptions()) {
    if (!HasName(option, name)) continue;
    if (!option.of.empty() && std::ranges::find(option.of, command.name()) == option.of.end()) continue;
    if (option.kind != Kind::kTaken || command.Has(std::string(option.text))) return &option;
  }
  return nullptr;
}

}  // namespace

std::span<const ForeignOption> ForeignOptions() {
  static const std::vector<ForeignOption> options = {
      {{"-hf", "-hfr", "--hf-repo"}, Kind::kTaken, "--model", true},
      {{"--n-predict", "--predict", "--num-predict", "--max-tokens", "--max-new-tokens", "--n-gen"},
       Kind::kTaken,
       "--tokens",
       true},
      {{"--context", "--context-length", "--n-ctx", "--num-ctx", "--max-model-len"}, Kind::kTaken, "--ctx", true},
      {{"--num-thread", "--n-threads"}, Kind::kTaken, "--threads", true},
      {{"--n-prompt"}, Kind::kTaken, "--prompt", true, {}, {"bench"}},
      {{"--n-depth"}, Kind::kTaken, "--depth", true, {}, {"bench"}},
      {{"-o", "--output"}, Kind::kTaken, "--format", true, {}, {"bench"}},
      {{"-np"},
       Kind::kTaken,
       "--parallel",
       true,
       {},
       {},
       "; -c is of each sequence, where llama-server divides it among its slots"},
      {{"--max-num-seqs"}, Kind::kTaken, "--parallel", true},
      {{"--batch-size"}, Kind::kTaken, "--batch", true, {}, {"count", "fit", "bench"}},
      {{"-sys", "--system-prompt"}, Kind::kTaken, "--system", true},
      {{"-sysf", "--system-prompt-file"}, Kind::kTaken, "--system-file", true},
      {{"--chat-template-file"}, Kind::kTaken, "--chat-template", true},
      {{"--chat-template-kwargs"}, Kind::kTaken, "--template-vars", true},
      {{"-j", "--json-schema", "-jf", "--json-schema-file"}, Kind::kTaken, "--schema", true},
      {{"--grammar-file"}, Kind::kTaken, "--grammar", true},
      {{"-a", "--served-model-name"}, Kind::kTaken, "--alias", true},
      {{"--no-webui", "--no-ui"}, Kind::kTaken, "--no-page"},
      {{"-ngl", "--gpu-layers", "--n-gpu-layers", "--num-gpu", "-ngld", "--gpu-layers-draft"}, Kind::kIgnored, kNoGpu, true},
      {{"-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-dev", "--device", "-ot", "--override-tensor",
        "-ncmoe", "--n-cpu-moe", "--gpu-memory-utilization"},
       Kind::kIgnored,
       kNoGpu,
       true},
      {{"-cmoe", "--cpu-moe", "-nkvo", "--no-kv-offload", "-nopo", "--no-op-offload", "--enforce-eager"},
       Kind::kIgnored,
       kNoGpu,
       false,
       {"0", "1"}},
      {{"-fa", "--flash-attn"}, Kind::kIgnored, "attention is always computed in pieces", false, {"on", "off", "auto", "0", "1"}},
      {{"--mlock", "--no-mmap", "--mmap", "-mmp"}, Kind::kIgnored, kMemory, false, {"0", "1"}},
      {{"--numa"}, Kind::kIgnored, "threads follow the cores that the process may use, and pages lie where they are read", true},
      {{"--no-warmup", "--warmup"}, Kind::kIgnored, "nothing runs before the first prompt"},
      {{"-b", "--batch-size", "-ub", "--ubatch-size"},
       Kind::kIgnored,
       "prompts run in pieces that the engine chooses",
       true,
       {},
       {"run", "chat", "serve", "batch", "perplexity"}},
      {{"-tb", "--threads-batch"}, Kind::kIgnored, "prompts run on the threads of -t", true},
      {{"--threads-http"}, Kind::kIgnored, "one thread serves all connections", true},
      {{"-cb", "--cont-batching", "--enable-prefix-caching"}, Kind::kIgnored, "it is always so"},
      {{"--no-context-shift"}, Kind::kIgnored, "a context that is full ends the answer"},
      {{"--jinja"}, Kind::kIgnored, "templates are always Jinja"},
      {{"-cnv", "--conversation"}, Kind::kIgnored, "chat is a conversation", false, {}, {"chat"}},
      {{"-no-cnv", "--no-conversation", "--no-display-prompt"},
       Kind::kIgnored,
       "run takes a prompt as it is, and prints what follows",
       false,
       {},
       {"run"}},
      {{"--no-escape"}, Kind::kIgnored, "texts are taken as they are"},
      {{"--log-disable", "--no-perf", "--color", "--simple-io", "--nowordwrap"},
       Kind::kIgnored,
       "it changes nothing here",
       false,
       {"on", "off", "auto"}},
      {{"--keepalive"}, Kind::kIgnored, "a model is in memory as long as its command runs", true},
      {{"--trust-remote-code"}, Kind::kIgnored, "no code of a repository is run"},
      {{"-ctk", "-ctv", "--cache-type-k", "--cache-type-v", "--kv-cache-dtype"},
       Kind::kRefused,
       "write --kv TYPE, for K and V together"},
      {{"-cnv", "--conversation", "-i", "--interactive"}, Kind::kRefused, "tally chat talks with a model"},
      {{"-md", "--model-draft"}, Kind::kRefused, "no second model drafts: write --draft lookup or --draft layers"},
      {{"-e", "--escape"}, Kind::kRefused, "texts are taken as they are: write $'a\\nb' in the shell"},
      {{"--repetition-penalty"}, Kind::kRefused, "write --repeat-penalty X --repeat-last-n -1"},
      {{"--api-key"}, Kind::kRefused, "write --api-key-file FILE: other users see command lines"},
      {{"-tp", "--tensor-parallel-size"}, Kind::kRefused, "mpirun divides a model over processes (docs/mpi.md)"},
      {{"--lora", "--lora-scaled"}, Kind::kRefused, "adapters are not run"},
      {{"--mmproj"}, Kind::kRefused, "pictures are not read"},
      {{"--embedding", "--embeddings", "--reranking"}, Kind::kRefused, "models of texts alone are served"}};
  return options;
}

Table ForeignOptionsTable() {
  Table table{"", {"option", "here"}, {}, {true, true}};
  for (const ForeignOption& option : ForeignOptions()) {
    const std::string of = option.of.empty() ? "" : " (" + Join(option.of, ", ") + ")", text(option.text);
    table.rows.push_back({Join(option.names, ", ") + of, option.kind == Kind::kTaken     ? text + std::string(option.remark)
                                                         : option.kind == Kind::kIgnored ? "ignored: " + text
                                                                                         : "refused: " + text});
  }
  return table;
}

std::string ForeignOptionsText(size_t width) {
  std::string text;
  const Table table = ForeignOptionsTable();
  for (const std::vector<Cell>& row : table.rows) {
    const std::string label = "  " + row[0].text;
    const bool beside = label.size() + 2 <= 26;
    if (!beside) {
      for (const std::string& line : WrapWords(row[0].text, width - 2)) text += "  " + line + "\n";
    }
    text += Paragraph(beside ? label : "", row[1].text, width, 26);
  }
  return text;
}

Result<std::vector<std::string>> TranslateOptions(const Command& app, const Command& command,
                                                  std::span<const std::string> arguments,
                                                  const std::function<void(const std::string& line)>& note) {
  std::vector<std::string> ours;
  GivenOptions typed(command);
  bool context = false, slots = false;  // by llama.cpp's names
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      ours.insert(ours.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    const std::string given = argument.substr(0, argument.find('=')), behind = argument.substr(given.size());
    const std::string name = given.starts_with("-") ? Dashed(given) : given;
    bool next_is_value = false;
    context = context || name == "-c" || name == "--ctx-size" || (name.starts_with("-c") && !IsOption("-" + name.substr(2)));
    slots = slots || name == "-np";
    if (command.Has(given) || !given.starts_with("-")) {
      ours.push_back(argument);
      next_is_value = behind.empty() && command.TakesValue(given);
      typed.Add(given, given);
    } else if (command.Has(name)) {
      ours.push_back(name + behind);
      typed.Add(name, given);
      next_is_value = behind.empty() && command.TakesValue(name);
    } else if (const ForeignOption* const option = Find(command, name); option == nullptr) {
      if (const ForeignOption* const lacking = FindLacking(name))
        return NoSuchTarget(app, command, given, std::string(lacking->text));
      ours.push_back(argument);
      const std::string letter = name.substr(0, 2);  // -n5
      if (command.TakesValue(letter)) typed.Add(letter, letter);
    } else if (option->kind == Kind::kRefused) {
      return BadInput(given + " is not an option here: " + std::string(option->text));
    } else if (option->kind == Kind::kTaken) {
      ours.push_back(std::string(option->text) + behind);
      typed.Add(std::string(option->text), given);
      next_is_value = behind.empty() && option->value;
    } else {
      note(given + " is ignored: " + std::string(option->text));
      const bool more = behind.empty() && i + 1 < arguments.size();
      if (more && ((option->value && !IsOption(arguments[i + 1])) ||
                   std::ranges::find(option->may_be, arguments[i + 1]) != option->may_be.end()))
        ++i;
    }
    if (next_is_value && i + 1 < arguments.size()) ours.push_back(arguments[++i]);
  }
  TALLY_RETURN_IF_ERROR(typed.Check());
  if (context && slots) note("-c is the context of each sequence of -np; llama-server divides it among them");
  return ours;
}

}  // namespace tally::app
