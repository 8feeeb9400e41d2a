// SPDX-License-Identifier: Apache-2.0
// The bundled demo model, to be answered with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/serve/completion.h"
#include "tests/serve/served_api.h"
#include "tests/support/open_engine.h"

namespace tally {

class ServedDemo {
 public:
  static EngineOptions Options() {
    EngineOptions options;
    options.threads = 1;
    options.context = 512;
    options.sequences = 4;
    return options;
  }
  explicit ServedDemo(const EngineOptions& options = Options()) {
    const Result<std::string> path = DemoModelPath();
    EXPECT_TRUE(path.ok());
    opened_ = Open(*path, options);
    model.engine = opened_.engine.get();
    model.name = "demo";
    for (const ChatTemplateSource& source : *opened_.model->chat_templates())
      model.chat = model.tool_chat = MakeChatSide(source, true);
  }

  ServedModel model;

 private:
  Opened opened_;
};

}  // namespace tally
