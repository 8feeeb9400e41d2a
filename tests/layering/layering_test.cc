// SPDX-License-Identifier: Apache-2.0
#include "tests/layering/layering.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tally::layering {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Our own sources below `rooms`, as paths from the repository's root.
std::vector<std::string> Sources(std::initializer_list<const char*> rooms) {
  static const std::set<std::string> extensions = {".h", ".cc", ".inc", ".cpp", ".hpp"};
  const fs::path root = TALLY_SOURCE_DIR;
  std::vector<std::string> paths;
  for (const char* room : rooms) {
    for (auto it = fs::recursive_directory_iterator(root / room); it != fs::recursive_directory_iterator(); ++it) {
      if (it->path().filename() == "node_modules") it.disable_recursion_pending();  // bench/peers: not ours
      if (!it->is_regular_file() || !extensions.contains(it->path().extension().string())) continue;
      paths.push_back(fs::relative(it->path(), root).string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Layering, TheHouseKeepsItsRules) {
  const std::vector<std::string> paths = Sources({"engine", "counters", "loaders", "models", "tests", "bench"});
  int includes = 0;
  std::set<std::string> nodes;
  for (const std::string& path : paths) {
    const Checked checked = CheckFile(path, ReadText(fs::path(TALLY_SOURCE_DIR) / path));
    for (const std::string& finding : checked.findings) ADD_FAILURE() << finding;
    includes += checked.includes;
    if (const std::optional<std::string> node = NodeOf(path)) nodes.insert(*node);
  }
  EXPECT_GT(includes, 100) << "the walk found next to nothing";
  for (const auto& [node, arrows] : DirectArrows()) EXPECT_TRUE(nodes.contains(node)) << "no file belongs to " << node;
}

TEST(Layering, IncludedFilesExist) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]*)")re");
  for (const std::string& path : Sources({"engine", "counters", "loaders", "models"})) {
    std::istringstream lines(Blank(ReadText(fs::path(TALLY_SOURCE_DIR) / path), false));
    for (std::string line; std::getline(lines, line);) {
      if (std::smatch match; std::regex_search(line, match, include) && match[1].str().substr(0, 4) != "hwy/") {
        EXPECT_TRUE(fs::exists(fs::path(TALLY_SOURCE_DIR) / match[1].str())) << path << " includes " << match[1];
      }
    }
  }
}

// The table of docs/library.md names every header that tally.h includes.
TEST(Layering, TheLibrarysPageNamesItsHeaders) {
  const std::string page = ReadText(fs::path(TALLY_SOURCE_DIR) / "docs/library.md");
  const std::string text = ReadText(fs::path(TALLY_SOURCE_DIR) / "engine/api/tally.h");
  static const std::regex include(R"re(#include "[^"]*/([^"/]+\.h)")re"), row(R"re(\n\| ([^|]*\.h) \|)re"),
      name(R"re([a-z_]+\.h)re");
  std::set<std::string> named;
  for (std::sregex_iterator r(page.begin(), page.end(), row), end; r != end; ++r) {
    const std::string headers = (*r)[1];
    for (std::sregex_iterator n(headers.begin(), headers.end(), name); n != end; ++n) named.insert(n->str());
  }
  int included = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i, ++included) {
    EXPECT_TRUE(named.contains((*i)[1])) << (*i)[1] << " is not in the table of docs/library.md";
  }
  EXPECT_GT(included, 20);
}

TEST(Layering, InternalHeadersStayInTheirRooms) {
  static const std::regex include(R"re(^\s*#\s*include\s*"([^"]*)")re");
  std::map<std::string, bool> says;  // by header
  int internal = 0;
  for (const std::string& path : Sources({"engine", "counters", "loaders", "models"})) {
    std::istringstream lines(Blank(ReadText(fs::path(TALLY_SOURCE_DIR) / path), false));
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, include) || !SaysInternal(ReadText(fs::path(TALLY_SOURCE_DIR) / match[1].str())))
        continue;
      ++internal;
      EXPECT_EQ(NodeOf(path), NodeOf(match[1].str())) << path << " includes " << match[1] << ", which is internal to its room";
    }
  }
  EXPECT_GT(internal, 20);
  EXPECT_TRUE(SaysInternal("// SPDX-License-Identifier: Apache-2.0\n// A stepper. Internal to\n// the session.\n#pragma once\n"));
  EXPECT_FALSE(SaysInternal("// A stepper.\n#pragma once\n// Internal to the session.\n"));
}

// A test that nobody registered never runs.
TEST(Layering, EveryTestIsRegistered) {
  static const std::regex program(R"(tally_tests\([^)]*\))");
  size_t n = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(TALLY_SOURCE_DIR) / "tests")) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with("_test.cc")) continue;
    ++n;
    const std::regex name("\\s" + entry.path().stem().string().substr(0, file.size() - 8) + "[\\s)]");
    const std::string text =
        std::regex_replace(ReadText(entry.path().parent_path() / "CMakeLists.txt"), std::regex("#[^\n]*"), "");
    bool registered = false;
    for (std::sregex_iterator it(text.begin(), text.end(), program), end; it != end; ++it)
      registered |= std::regex_search(it->str(), name);
    EXPECT_TRUE(registered) << entry.path() << " is not registered";
  }
  EXPECT_GT(n, 100u);
}

// The line that names the licence stands first in every source of ours, or second after "#!". scripts/spdx.sh writes it.
TEST(Layering, EverySourceNamesItsLicence) {
  static const std::set<std::string> slashes = {".h", ".cc", ".inc", ".mjs", ".js"}, hashes = {".sh", ".py", ".cmake"};
  const fs::path root = TALLY_SOURCE_DIR;
  std::vector<fs::path> files = {root / "CMakeLists.txt", root / ".ci/run"};
  for (const char* room : {"engine", "counters", "loaders", "models", "tests", "bench", "cmake", "scripts"}) {
    for (auto it = fs::recursive_directory_iterator(root / room); it != fs::recursive_directory_iterator(); ++it) {
      if (it->path().filename() == "node_modules") it.disable_recursion_pending();  // bench/peers: not ours
      const std::string name = it->path().filename().string(), extension = it->path().extension().string();
      const bool ours = slashes.contains(extension) || hashes.contains(extension) || extension == ".css" ||
                        name == "CMakeLists.txt" || name.ends_with(".cmake.in") || name.ends_with(".cc.in");
      if (it->is_regular_file() && ours) files.push_back(it->path());
    }
  }
  EXPECT_GT(files.size(), 600u);
  for (const fs::path& path : files) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    if (line.starts_with("#!")) std::getline(in, line);
    const std::string extension = path.extension().string(), tag = "SPDX-License-Identifier: Apache-2.0";
    const bool slash = slashes.contains(extension) || path.filename().string().ends_with(".cc.in");
    EXPECT_EQ(line, extension == ".css" ? "/* " + tag + " */" : (slash ? "// " : "# ") + tag) << path << ": run scripts/spdx.sh";
  }
  for (const char* name : {"LICENSE", "NOTICE", "THIRD_PARTY.md"}) EXPECT_GT(fs::file_size(root / name), 100u) << name;
  EXPECT_NE(ReadText(root / "LICENSE").find("Apache License\n                           Version 2.0"), std::string::npos);
}

// The checker itself: what it must refuse, and what it must let pass.
struct Example {
  const char* path;
  const char* text;
  const char* expected;  // part of the finding; null: none
};

TEST(Layering, TheCheckerSeesWhatIsForbidden) {
  const Example examples[] = {
      // Arrows.
      {"engine/base/x.h", "#include \"engine/machine/machine.h\"\n", "base may not include machine"},
      {"engine/kernels/x.cc", "#include \"counters/ledger/ledger.h\"\n", "kernels may not include ledger"},
      {"engine/kernels/x.cc", "#include \"counters/cost/cost.h\"\n", nullptr},
      {"engine/kernels/matmul/x.cc", "#include \"engine/base/mat.h\"\n", nullptr},
      {"engine/kernels/matmul/x.cc", "  #  include \"engine/exec/executor.h\"\n", "kernels may not include exec"},
      {"engine/recipe/recipe.h", "#include \"engine/exec/executor.h\"\n", "recipe may not include exec"},
      {"engine/graph/block.h", "#include \"engine/exec/executor.h\"\n", nullptr},
      {"engine/graph/block.h", "#include \"engine/base/mat.h\"\n", nullptr},  // through exec and kernels
      {"loaders/inventory/inventory.h", "#include \"loaders/loaders.h\"\n", "inventory may not include loaders"},
      {"loaders/gguf.cc", "#include \"engine/machine/machine.h\"\n", "loaders may not include machine"},
      {"models/llama.cc", "#include \"loaders/inventory/inventory.h\"\n", nullptr},
      {"models/llama.cc", "#include \"engine/graph/block.h\"\n", "models may not include graph"},
      {"models/llama.cc", "#include \"loaders/loaders.h\"\n", "models may not include loaders"},
      {"models/llama.cc", "#include \"models/catalog/catalog.h\"\n", "models may not include catalog"},
      {"models/catalog/catalog.cc", "#include \"loaders/loaders.h\"\n#include \"models/family.h\"\n", nullptr},
      {"counters/books/report.cc", "#include \"counters/ledger/ledger.h\"\n", nullptr},
      {"counters/books/books.cc", "#include \"engine/exec/executor.h\"\n", "books may not include exec"},
      {"counters/cost/cost.h", "#include \"counters/ledger/ledger.h\"\n", "cost may not include ledger"},
      {"counters/cost.h", "int a;\n", "belongs to no node"},
      {"engine/text/bpe.cc", "#include \"loaders/loaders.h\"\n", "text may not include loaders"},
      {"engine/app/run.cc", "#include \"engine/api/tally.h\"\n", nullptr},
      {"engine/app/run.cc", "#include \"engine/session/session.h\"\n", "app may not include session"},
      {"engine/app/run.cc", "#include \"counters/ledger/ledger.h\"\n", "app may not include ledger"},
      {"engine/session/step.cc", "#include \"engine/app/run.h\"\n", "session may not include app"},
      {"engine/base/x.cc", "#include \"mat.h\"\n", "not a path from the repository's root"},
      {"engine/base/x.cc", "#include \"../base/mat.h\"\n", "not a path from the repository's root"},
      {"engine/exec/x.cc", "#include \"tests/support/fake.h\"\n", "not a path from the repository's root"},
      {"engine/novel/x.cc", "int a;\n", "belongs to no node"},
      {"engine/x.cc", "int a;\n", "belongs to no node"},
      {"engine/kernels/x.cc", "#include \"hwy/highway.h\"\n", nullptr},
      // Comments and strings are not code.
      {"engine/base/x.cc", "// #include \"engine/exec/executor.h\"\n", nullptr},
      {"engine/base/x.cc", "/* #include \"engine/exec/executor.h\"\n printf(\"\") */\n", nullptr},
      {"engine/base/x.cc", "const char* s = \"printf(1) throw // \"; int throws = 1'000;\n", nullptr},
      {"engine/base/x.cc", "const char* s = R\"(throw \" printf( )\"; char q = '\"';\n", nullptr},
      {"engine/base/x.cc", "const char* s = \"a\"; throw 1;\n", "throws"},
      {"engine/base/x.cc", "char q = '\\''; throw 1;\n", "throws"},
      // Threads, printing, ending.
      {"engine/exec/x.cc", "#pragma omp parallel\n", "OpenMP outside"},
      {"engine/exec/x.cc", "#  pragma  omp simd\n", "OpenMP outside"},
      {"engine/exec/x.cc", "int n = omp_get_max_threads();\n", "OpenMP outside"},
      {"engine/app/x.cc", "#include <omp.h>\n", "omp.h outside"},
      {"engine/machine/parallel.cc", "#include <omp.h>\n#pragma omp parallel\n#include <thread>\n", nullptr},
      {"loaders/x.cc", "#include <thread>\n", "threads outside"},
      {"engine/mpi/transport.cc", "#include \"engine/machine/x.h\"\n#include <mpi.h>\n", nullptr},
      {"engine/mpi/x.cc", "#include \"engine/exec/executor.h\"\n", "mpi may not include exec"},
      {"engine/machine/x.cc", "#include \"engine/mpi/x.h\"\n", "machine may not include mpi"},
      {"engine/machine/x.cc", "#include <mpi.h>\n", "MPI outside mpi/transport.cc"},
      {"engine/text/x.cc", "#include <iostream>\n", "printing header"},
      {"engine/text/x.cc", "  std::cerr << 1;\n", "prints"},
      {"engine/text/x.cc", "  fprintf(stderr, \"x\");\n", "prints"},
      {"engine/text/x.cc", "  std::printf (\"x\");\n", "prints"},
      {"engine/text/x.cc", "  fwrite(text, 1, 3, stderr);\n", "prints"},
      {"engine/text/x.cc", "  ::write(2, text, 3);\n", "prints"},
      {"engine/text/x.cc", "  ::write(fd_, text, 3);\n", nullptr},
      {"engine/text/x.cc", "  ::dprintf(STDERR_FILENO, \"x\");\n", "prints"},
      {"engine/text/x.cc", "  _exit(2);\n", "ends the process"},
      {"engine/text/x.cc", "  std::snprintf(buffer, 3, \"x\");\n", nullptr},
      {"engine/app/x.cc", "#include <iostream>\nint main() { printf(\"x\"); exit(2); }\n", nullptr},
      {"engine/text/x.cc", "  std::abort();\n", "ends the process"},
      {"engine/text/x.cc", "  if (bad) exit(1);\n", "ends the process"},
      {"engine/text/x.cc", "  loop.exit(1);\n", nullptr},
      // Objects are not asked what else they are.
      {"engine/studies/x.cc", "auto* s = dynamic_cast<Stepper*>(&engine);\n", "what else it is"},
      {"engine/serve/x.cc", "auto m = std::dynamic_pointer_cast<const LoadedModel>(model);\n", "what else it is"},
      {"engine/app/x.cc", "if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return;\n", nullptr},
      {"engine/chat/jinja/x.cc", "auto* loop = dynamic_cast<Loop*>(&object);\n", nullptr},
  };
  for (const Example& e : examples) {
    const Checked checked = CheckFile(e.path, e.text);
    const std::string all = checked.findings.empty() ? "" : checked.findings.front();
    if (e.expected == nullptr) {
      EXPECT_TRUE(checked.findings.empty()) << e.path << ": " << e.text << all;
    } else {
      ASSERT_FALSE(checked.findings.empty()) << e.path << ": " << e.text;
      EXPECT_NE(all.find(e.expected), std::string::npos) << all;
    }
  }
}

TEST(Layering, LinesAreCountedAndNamed) {
  std::string text;
  for (int i = 0; i < kMaxLines; ++i) text += "\n";
  EXPECT_TRUE(CheckFile("tests/base/x_test.cc", text).findings.empty());
  EXPECT_FALSE(CheckFile("tests/base/x_test.cc", text + "\n").findings.empty());
  const Checked checked = CheckFile("engine/base/x.cc", "\n/*\n*/\n#include \"engine/exec/executor.h\"\n");
  ASSERT_EQ(checked.findings.size(), 1u);
  EXPECT_EQ(checked.findings[0].find("engine/base/x.cc:4: "), 0u) << checked.findings[0];
}

TEST(Layering, ArrowsHaveNoCycle) {
  for (const auto& [from, direct] : DirectArrows()) {
    for (const std::string& to : direct) {
      ASSERT_TRUE(DirectArrows().contains(to)) << to;
      EXPECT_FALSE(MayInclude(to, from)) << from << " <-> " << to;
    }
  }
}

}  // namespace
}  // namespace tally::layering
