// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/template_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "tests/support/temp_folder.h"

namespace tally {
namespace {

// "NAME=TEXT" of each, the default one first, and the error where there is one.
std::string Show(const Result<std::vector<ChatTemplateSource>>& read) {
  if (!read.ok()) return read.status().message();
  std::string text;
  for (const ChatTemplateSource& source : *read) text += source.name + "=" + source.text + ";";
  return text;
}

class InFolder : public testing::Test {
 protected:
  void Write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    folder_.Write(name, text);
  }
  Result<std::vector<ChatTemplateSource>> Read() {
    Inventory inventory;
    inventory.format = FileFormat::kHuggingFace;
    inventory.path = folder_.path();
    return ReadChatTemplates(inventory, nullptr);
  }
  TempFolder folder_;
};

TEST_F(InFolder, AStringOrAListOrFiles) {
  EXPECT_EQ(Show(Read()), "");
  Write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null, "chat_template": "one",
            "additional_special_tokens": ["<a>", {"content": "<b>"}, 1]})");
  const auto one = Read();
  EXPECT_EQ(Show(one), "=one;");
  EXPECT_EQ(one->at(0).special_tokens, (std::map<std::string, std::string>{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_EQ(one->at(0).additional_special_tokens, (std::vector<std::string>{"<a>", "<b>"}));
  EXPECT_EQ(one->at(0).origin, folder_ / "tokenizer_config.json" + ": chat_template");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(Show(Read()), "=plain;tool_use=tools;");
  // Files come before the configuration's.
  Write("chat_template.jinja", "file");
  Write("additional_chat_templates/rag.jinja", "more");
  Write("additional_chat_templates/notes.txt", "no template");
  EXPECT_EQ(Show(Read()), "=file;rag=more;");
  EXPECT_TRUE(Read()->at(0).stop.empty());
  Write("generation_config.json", R"({"stop_strings": ["\n\n", "User:"]})");
  EXPECT_EQ(Read()->at(1).stop, (std::vector<std::string>{"\n\n", "User:"}));
  Write("generation_config.json", R"({"stop_strings": "User:"})");
  EXPECT_EQ(Read()->at(0).stop, std::vector<std::string>{"User:"});
}

TEST_F(InFolder, WhatIsNoTemplateIsSaid) {
  Write("tokenizer_config.json", R"({"chat_template": [1]})");
  EXPECT_NE(Show(Read()).find("chat_template: expected a string or a list of {name, template}"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_NE(Show(Read()).find("expected a string"), std::string::npos);
  Write("tokenizer_config.json", "{");
  EXPECT_NE(Show(Read()).find("tokenizer_config.json"), std::string::npos);
  Write("chat_template.jinja", "\xFF");
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Show(Read()), folder_ / "chat_template.jinja" + ": the chat template is not UTF-8");
  Write("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
  EXPECT_NE(Show(Read()).find("chat_template.jinja"), std::string::npos);
}

TEST(GgufTemplates, AreKeys) {
  Inventory inventory;
  inventory.metadata.source = "m.gguf";
  inventory.metadata.Set("tokenizer.chat_template.tool_use", std::string("tools"));
  inventory.metadata.Set("tokenizer.chat_template", std::string("plain"));
  inventory.metadata.Set("tokenizer.chat_templates", std::vector<std::string>{"tool_use"});
  EXPECT_EQ(Show(ReadChatTemplates(inventory, nullptr)), "=plain;tool_use=tools;");
  inventory.metadata.Set("tally.chat.stop_strings", std::vector<std::string>{"\n\n"});
  EXPECT_EQ(ReadChatTemplates(inventory, nullptr)->at(0).stop, std::vector<std::string>{"\n\n"});
  inventory.metadata.Set("tokenizer.chat_template", int64_t{3});
  EXPECT_EQ(Show(ReadChatTemplates(inventory, nullptr)),
            "m.gguf: key 'tokenizer.chat_template': expected a string, found an integer");
}

}  // namespace
}  // namespace tally
