// SPDX-License-Identifier: Apache-2.0
// What libtally.so gives out: the public headers' interface, all of it and nothing else.
#include <cxxabi.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace tally {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> LinesOf(const std::string& command) {
  std::vector<std::string> lines;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  std::string line;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c == '\n') {
      lines.push_back(std::move(line));
      line.clear();
    } else {
      line += static_cast<char>(c);
    }
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return lines;
}

// "tally::LoadModel(std::string const&, ...)" of "_ZN5tally9LoadModel...@@TALLY_0.1". Not nm's work: LLVM's leaves versioned
// names alone.
std::string Demangled(const std::string& symbol) {
  const std::string name = symbol.substr(0, symbol.find('@'));
  int error = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &error);
  std::string demangled = error == 0 ? text : name;
  std::free(text);
  return demangled;
}

std::set<std::string> Exported() {
  std::set<std::string> names;
  for (const std::string& line : LinesOf("'" TALLY_NM "' -D --defined-only '" TALLY_LIBRARY "'")) {
    const size_t type = line.find_first_not_of("0123456789abcdef ");  // "0000000000012340 T name", "                 A name"
    if (type == std::string::npos || type + 2 > line.size()) continue;
    if (line[type] == 'A') continue;  // the version's own
    names.insert(Demangled(line.substr(type + 2)));
  }
  return names;
}

// File name -> text without comments and macros.
std::map<std::string, std::string> PublicHeaders() {
  std::map<std::string, std::string> headers;
  for (const fs::directory_entry& entry : fs::directory_iterator(TALLY_PUBLIC_HEADERS)) {
    std::ifstream in(entry.path());
    std::ostringstream text;
    text << in.rdbuf();
    headers[entry.path().filename()] = std::regex_replace(text.str(), std::regex("//[^\n]*|#define[^\n]*"), "");
  }
  return headers;
}

TEST(Symbols, NothingButTheInterfaceIsExported) {
  std::set<std::string> words;
  for (const auto& [file, text] : PublicHeaders()) {
    static const std::regex word("[A-Za-z_][A-Za-z_0-9]*");
    for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) words.insert(it->str());
  }
  const std::set<std::string> exported = Exported();
  EXPECT_GT(exported.size(), 30u);
  for (const std::string& symbol : exported) {
    std::string name = symbol;
    for (const char* prefix : {"vtable for ", "typeinfo for ", "typeinfo name for "}) {
      if (name.rfind(prefix, 0) == 0) name.erase(0, std::string(prefix).size());
    }
    name = name.substr(0, name.find_first_of("(["));  // "RunSummary[abi:cxx11](...)"
    EXPECT_EQ(name.rfind("tally::", 0), 0u) << symbol;
    // Every part of the name is one that a public header mentions.
    static const std::regex part("[A-Za-z_][A-Za-z_0-9]*");
    for (std::sregex_iterator it(name.begin(), name.end(), part), end; it != end; ++it) {
      EXPECT_TRUE(words.count(it->str()) != 0) << symbol << ": no public header knows " << it->str();
    }
  }
}

// The other way round: what a public header declares and does not define can be linked to.
TEST(Symbols, WhatTheHeadersDeclareIsExported) {
  std::set<std::string> names;  // "LoadModel", "OpDump::Create"
  for (const std::string& symbol : Exported()) {
    const std::string name = symbol.substr(0, symbol.find_first_of("(["));
    names.insert(name.substr(name.rfind("::") == std::string::npos ? 0 : name.rfind("::") + 2));
  }
  int declared = 0;
  for (const auto& [file, text] : PublicHeaders()) {
    // A free function: at the left edge, ends in a semicolon, no template and nothing inline.
    static const std::regex function(R"re(\n(?!inline|constexpr|template|using|typedef|enum|struct|class|namespace|#|\}))re"
                                     R"re((?:\[\[nodiscard\]\] )?([A-Za-z_][^\n;{}()=]*[ &*>])([A-Za-z_]\w*)\([^;{}]*\);)re");
    for (std::sregex_iterator it(text.begin(), text.end(), function), end; it != end; ++it) {
      ++declared;
      EXPECT_EQ((*it)[1].str().rfind("TALLY_API ", 0), 0u) << file << ": " << (*it)[2] << " is not marked TALLY_API";
    }
    // Whatever is marked, members too.
    static const std::regex marked(R"re(TALLY_API (?:static |explicit )*(?:[^;{}()=]*[ &*>])?(~?[A-Za-z_]\w*|operator\+=)\()re");
    for (std::sregex_iterator it(text.begin(), text.end(), marked), end; it != end; ++it) {
      ++declared;
      EXPECT_TRUE(names.count((*it)[1].str()) != 0) << file << ": " << (*it)[1] << " is not exported";
    }
  }
  EXPECT_GT(declared, 40);
}

}  // namespace
}  // namespace tally
