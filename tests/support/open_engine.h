// SPDX-License-Identifier: Apache-2.0
// A model and an engine for a test; both null, and the test failed, where they cannot be had.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "engine/api/tally.h"

namespace tally {

struct Opened {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
};

// A short context, and every op shared among the threads, which ops of the goldens' size would not be.
inline EngineOptions SmallOptions() {
  EngineOptions options;
  options.threads = 2;
  options.context = 32;
  options.max_batch = 8;
  options.share_gain_ns = 0;
  return options;
}

inline Opened Open(const std::string& path, const EngineOptions& options, const LoadOptions& load = {}) {
  auto model = LoadModel(path, options, load);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  auto engine = NewEngine(*model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return {};
  return {*model, std::move(engine).value()};
}

}  // namespace tally
