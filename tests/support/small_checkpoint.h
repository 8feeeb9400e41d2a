// SPDX-License-Identifier: Apache-2.0
// A published configuration made small, with random weights.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "engine/studies/quantize.h"
#include "engine/studies/synth.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"

namespace tally {

// A Hugging Face directory in F32, and the GGUF file in Q8_0 that is made of it.
class SmallCheckpoint {
 public:
  explicit SmallCheckpoint(const OrderedJson& config) {
    SynthOptions options;
    options.type = DType::kF32;
    const auto made = Synthesize(folder_.Write("config.json", config.dump()), directory(), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
  }
  std::string directory() const { return folder_ / "made"; }
  // "" where GGUF cannot say all of it.
  std::string WriteGguf() const {
    QuantizeOptions options;
    options.type = "Q8_0";
    options.threads = 1;
    const auto written = Quantize(directory(), folder_ / "made.gguf", options);
    if (written.ok()) return folder_ / "made.gguf";
    if (written.status().message().find("the directory has nothing for") != std::string::npos) return SynthesizeGguf();
    EXPECT_NE(written.status().message().find("GGUF"), std::string::npos) << written.status().message();
    return "";
  }
  // As the one above, of other weights; slow, as there are millions of blocks to draw from.
  std::string SynthesizeGguf() const {
    SynthOptions options;
    options.type = DType::kQ8_0;
    const auto made = Synthesize(folder_ / "config.json", folder_ / "synth.gguf", options);
    if (made.ok()) return folder_ / "synth.gguf";
    EXPECT_NE(made.status().message().find("GGUF"), std::string::npos) << made.status().message();
    return "";
  }
  const TempFolder& folder() const { return folder_; }

 private:
  const TempFolder folder_;
};

}  // namespace tally
