// SPDX-License-Identifier: Apache-2.0
// Published chat templates, byte for byte as Python's jinja2 renders them in transformers' environment (jinja_oracle.py). The templates
// are not part of the project: those of ../shared/templates, and of the folder TALLY_CHAT_TEMPLATES where that is set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/chat/jinja/template.h"
#include "tests/support/temp_folder.h"

namespace tally::jinja {
namespace {

constexpr int64_t kNow = 1760000000;

std::vector<std::string> TemplateFiles() {
  std::vector<std::string> files;
  const char* more = std::getenv("TALLY_CHAT_TEMPLATES");
  for (const std::string& folder :
       {std::string(TALLY_SOURCE_DIR "/../shared/templates"), std::string(more != nullptr ? more : "")}) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
      if (entry.path().extension() == ".jinja") files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The lines that a command prints; none where it fails.
std::vector<std::string> Lines(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string all;
  char buffer[1 << 16];
  for (size_t n; pipe != nullptr && (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) all.append(buffer, n);
  if (pipe == nullptr || ::pclose(pipe) != 0) return {};
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = all.find('\n', begin)) != all.npos; begin = end + 1)
    lines.push_back(all.substr(begin, end - begin));
  return lines;
}

TEST(JinjaOracle, PublishedTemplatesAreRenderedAsByJinja2) {
  const std::vector<std::string> files = TemplateFiles();
  if (files.empty()) GTEST_SKIP() << "no templates in ../shared/templates";
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0) GTEST_SKIP() << "python3 has no jinja2";
  std::string command = "python3 " TALLY_SOURCE_DIR "/tests/chat/jinja_oracle.py " + std::to_string(kNow);
  for (const std::string& file : files) command += " '" + file + "'";
  const std::vector<std::string> lines = Lines(command);
  ASSERT_GT(lines.size(), files.size());
  RenderOptions options;
  options.now = kNow;
  options.trusted = {"bos_token", "eos_token", "pad_token", "unk_token"};
  size_t rendered = 0;
  for (const std::string& line : lines) {
    const Json expected = Json::parse(line);
    const auto path = expected["template"].get<std::string>();
    SCOPED_TRACE(path + ", " + expected["case"].get<std::string>());
    const Result<Template> parsed = Template::Parse(ReadAll(path), "T");
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const Result<std::vector<PromptSegment>> segments = parsed->Render(expected["variables"], options);
    if (expected.contains("text")) {
      ASSERT_TRUE(segments.ok()) << segments.status().message();
      EXPECT_EQ(JoinSegments(*segments), expected["text"].get<std::string>());
      ++rendered;
      continue;
    }
    EXPECT_FALSE(segments.ok()) << expected["error"] << "\n" << JoinSegments(*segments);
    if (!segments.ok() && expected["raised"].get<bool>()) {
      EXPECT_TRUE(segments.status().message().ends_with(": " + expected["error"].get<std::string>()))
          << segments.status().message();
    }
    if (!segments.ok() && std::getenv("TALLY_SHOW_ERRORS") != nullptr) {
      std::printf("%s\n  %s\n", expected["error"].get<std::string>().c_str(), segments.status().message().c_str());
    }
  }
  std::printf("%zu templates, %zu conversations, %zu of them rendered\n", files.size(), lines.size(), rendered);
}

}  // namespace
}  // namespace tally::jinja
