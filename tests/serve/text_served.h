// SPDX-License-Identifier: Apache-2.0
// TextModel, to be answered with: after <|turn|> it says "xyz", after "a" the letters that follow.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/serve/completion.h"
#include "tests/app/text_model.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {

class TextServed {
 public:
  // `draft`: so many tokens are drafted, by the model's layer for multi-token prediction.
  explicit TextServed(int32_t sequences = 4, int64_t draft = 0) {
    const std::string path = folder_ / "text.gguf";
    EXPECT_TRUE((draft > 0 ? TextModel::WritePredicting(path) : TextModel::Write(path)).ok());
    EngineOptions options;
    options.prediction = draft > 0;
    options.draft_rows = draft > 0 ? 7 : 0;
    model.draft = draft;
    options.threads = 1;
    options.context = 128;
    options.max_batch = 32;
    options.sequences = sequences;
    opened_ = Open(path, options);
    model.engine = opened_.engine.get();
    model.name = "text";
    model.sampling.temperature = 0;
    Result<ChatSide> side =
        MakeChatSide({.text = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<|turn|>' }}"}, /*native=*/true);
    EXPECT_TRUE(side.ok()) << side.status().message();
    model.chat = model.tool_chat = side;
  }
  const TempFolder& folder() const { return folder_; }

  ServedModel model;

 private:
  TempFolder folder_;
  Opened opened_;
};

}  // namespace tally
