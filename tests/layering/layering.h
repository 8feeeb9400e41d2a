// SPDX-License-Identifier: Apache-2.0
// The house rules that a compiler does not know: who may include whom, and what only one room may do.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tally::layering {

using Arrows = std::map<std::string, std::set<std::string>>;

// DESIGN, "Rooms": A -> B means that A may include B, and what B may include. The app and the Python module are the exceptions: what stands
// here is all that they may include, so that they stay callers of the public headers. More than DESIGN has: recipe -> cost (the table of
// roles says which component a tensor belongs to); catalog (its configurations are parsed by loaders and read by models); hub -> loaders
// (JSON from outside has one parser; where a GGUF file's header ends is the readers' knowledge); reports (between studies and api).
inline const Arrows& DirectArrows() {
  static const Arrows arrows = {
      {"base", {}},
      {"cost", {"base"}},
      {"machine", {"base"}},
      {"mpi", {"machine"}},
      {"kernels", {"base", "cost"}},
      {"ledger", {"cost"}},
      {"recipe", {"base", "cost"}},
      {"inventory", {"base"}},
      {"loaders", {"base", "inventory"}},
      {"weights", {"kernels", "inventory", "machine", "recipe"}},
      {"exec", {"kernels", "ledger", "machine"}},
      {"books", {"recipe", "inventory", "ledger"}},
      {"graph", {"exec", "weights", "recipe"}},
      {"models", {"recipe", "inventory"}},
      {"catalog", {"models", "loaders"}},
      {"text", {"base", "inventory"}},
      {"chat", {"text", "grammar"}},
      {"grammar", {"base"}},
      {"session", {"graph", "text", "chat", "grammar", "models", "books", "loaders"}},
      {"render", {"base"}},
      {"page", {"render"}},
      {"studies", {"session", "catalog", "render", "page"}},
      {"hub", {"base", "loaders"}},
      {"reports", {"studies", "render"}},
      {"api", {"reports", "hub"}},
      {"serve", {"api", "page"}},
      {"python", {"api"}},
      {"app", {"api", "serve", "reports", "render", "recipe", "machine", "base"}},
  };
  return arrows;
}

inline bool MayInclude(const std::string& from, const std::string& to) {
  if (from == to) return true;
  const std::set<std::string>& direct = DirectArrows().at(from);
  if (direct.contains(to)) return true;
  if (from == "app" || from == "python") return false;
  return std::any_of(direct.begin(), direct.end(), [&](const std::string& step) { return MayInclude(step, to); });
}

// The node a file of the libraries or the app belongs to, by its path from the repository's root.
inline std::optional<std::string> NodeOf(std::string_view path) {
  const auto in = [&](std::string_view prefix) { return path.substr(0, prefix.size()) == prefix; };
  if (in("counters/cost/")) return "cost";
  if (in("counters/ledger/")) return "ledger";
  if (in("counters/books/")) return "books";
  if (in("counters/")) return std::nullopt;
  if (in("loaders/inventory/")) return "inventory";
  if (in("loaders/")) return "loaders";
  if (in("models/catalog/")) return "catalog";
  if (in("models/")) return "models";
  if (!in("engine/")) return std::nullopt;
  std::string_view rest = path.substr(7);
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string room(rest.substr(0, slash));
  return DirectArrows().contains(room) && room != "cost" && room != "loaders" ? std::optional(room) : std::nullopt;
}

// Replaces comments, and where `strings` the contents of string and character literals too, by spaces. Lines
// stay lines.
inline std::string Blank(std::string_view text, bool strings) {
  std::string out(text);
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end && i < out.size(); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    size_t end = i + 1;
    if (rest.substr(0, 2) == "//") {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (rest.substr(0, 2) == "/*") {
      const size_t close = text.find("*/", i + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
      blank(i, end);
    } else if (rest.substr(0, 2) == "R\"") {
      const size_t open = text.find('(', i);
      const std::string close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      const size_t found = open == std::string_view::npos ? open : text.find(close, open);
      end = found == std::string_view::npos ? text.size() : found + close.size();
      if (strings) blank(i + 2, end - 1);
    } else if (rest[0] == '"' || (rest[0] == '\'' && (i == 0 || !isalnum(static_cast<unsigned char>(text[i - 1]))))) {
      while (end < text.size() && text[end] != rest[0] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      if (strings) blank(i + 1, end);
      end = std::min(end + 1, text.size());
    }
    i = end;
  }
  return out;
}

struct Checked {
  std::vector<std::string> findings;  // "file:line: what is wrong"
  int includes = 0;                   // of our own headers
};

struct Rule {
  std::regex pattern;
  const char* message;
  bool app_may;
  const char* only_file;           // which may all the same; null: none
  const char* too_file = nullptr;  // and this one
};

inline const std::vector<Rule>& CodeRules() {
  static const std::vector<Rule> rules = [] {
    const char* team = "engine/machine/parallel.cc";
    std::vector<Rule> r;
    r.push_back(
        {std::regex(R"(#\s*pragma\s+omp\b|\b_Pragma\s*\(|\bomp_\w+\s*\()"), "OpenMP outside machine/parallel.cc", false, team});
    r.push_back({std::regex(R"(#\s*include\s*<omp\.h>)"), "omp.h outside machine/parallel.cc", false, team});
    r.push_back({std::regex(R"(#\s*include\s*<mpi\.h>|\bMPI_\w+\s*\()"), "MPI outside mpi/transport.cc", false,
                 "engine/mpi/transport.cc"});
    r.push_back({std::regex(R"(#\s*include\s*<(thread|future|pthread\.h)>)"), "threads outside machine/parallel.cc", true, team,
                 "engine/serve/service_thread.cc"});  // those of a server, which wait
    r.push_back(
        {std::regex(R"(#\s*include\s*<(iostream|print|ostream)>)"), "a library includes a printing header", true, nullptr});
    r.push_back({std::regex(R"(\b(v?[fd]?printf|puts|fputs|f?putc|putchar|perror|psignal)\s*\(|\bstd::(cout|cerr|clog)\b)"),
                 "a library prints", true, nullptr});
    r.push_back({std::regex(R"(\bstd(out|err)\b|\bSTD(OUT|ERR)_FILENO\b|\bwrite\s*\(\s*[12]\s*,)"), "a library prints", true,
                 "engine/machine/machine.cc"});  // whose the standard streams are
    r.push_back({std::regex(R"(\bthrow\b)"), "a library throws", true, nullptr});
    r.push_back({std::regex(R"((^|[^\w.>])(std::)?(abort|_?exit|_Exit|quick_exit|terminate)\s*\()"), "a library ends the process",
                 true, nullptr});
    return r;
  }();
  return rules;
}

inline constexpr int kMaxLines = 800;

// True if the comment that begins a header says that it is internal to its room.
inline bool SaysInternal(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string comment;
  for (std::string line; std::getline(lines, line) && line.starts_with("//");) comment += line.substr(2);
  return std::regex_search(comment, std::regex("\\b[Ii]nternal to\\b"));
}

// The rooms in which an object may be asked what else it is: templates' values have types; NewEngine takes what LoadModel made.
inline bool MayCast(std::string_view path) {
  return path.starts_with("engine/chat/jinja/") || path.starts_with("engine/session/");
}

// What is wrong with one file; `path` from the repository's root. Files outside the libraries and the app are
// only measured.
inline Checked CheckFile(const std::string& path, std::string_view text) {
  Checked checked;
  const auto report = [&](int line, const std::string& what) {
    checked.findings.push_back(path + ":" + std::to_string(line) + ": " + what);
  };
  const auto lines = std::count(text.begin(), text.end(), '\n');
  if (lines > kMaxLines) report(kMaxLines + 1, std::to_string(lines) + " lines; " + std::to_string(kMaxLines) + " is the wall");

  static const std::set<std::string> houses = {"engine", "counters", "loaders", "models"};
  if (!houses.contains(path.substr(0, path.find('/')))) return checked;
  const std::optional<std::string> node = NodeOf(path);
  if (!node) {
    report(1, "belongs to no node of the design");
    return checked;
  }

  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]*)")re");
  std::istringstream with_strings(Blank(text, false)), code(Blank(text, true));
  std::string line, bare;
  for (int n = 1; std::getline(with_strings, line) && std::getline(code, bare); ++n) {
    if (std::smatch match; std::regex_search(line, match, include)) {
      const std::string target = match[1];
      if (target.substr(0, 4) == "hwy/") continue;  // Highway's documentation writes it in quotes
      ++checked.includes;
      const std::optional<std::string> to = NodeOf(target);
      if (!to) {
        report(n, "includes \"" + target + "\": not a path from the repository's root to a node of the design");
      } else if (!MayInclude(*node, *to)) {
        report(n, *node + " may not include " + *to + " (\"" + target + "\")");
      }
    }
    static const std::regex cast(R"(\bdynamic_(pointer_)?cast\s*<(?!\s*(const\s+)?CLI::))");
    if (!MayCast(path) && std::regex_search(bare, cast)) report(n, "asks an object what else it is (dynamic_cast)");
    for (const Rule& rule : CodeRules()) {
      if (rule.app_may && (*node == "app" || *node == "python")) continue;
      if (rule.only_file != nullptr && path == rule.only_file) continue;
      if (rule.too_file != nullptr && path == rule.too_file) continue;
      if (std::regex_search(bare, rule.pattern)) report(n, rule.message);
    }
  }
  return checked;
}

}  // namespace tally::layering
