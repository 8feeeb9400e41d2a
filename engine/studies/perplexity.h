// SPDX-License-Identifier: Apache-2.0
// Perplexity of a text, and the divergence of a model's distributions from saved ones.
//
// Perplexity = exp(mean of -ln p(token | what precedes it in its window)), as in Hugging Face's guide to fixed-length models: windows
// of `window` tokens begin every `stride` tokens, and each scores the tokens that no earlier window has scored. With `bos` each window
// begins with it, and its first token is scored too; without, a window's first token is not. llama.cpp's llama-perplexity scores the
// second half of disjoint windows, so its figure is another one.
//   standard error of the perplexity   perplexity * (standard deviation of the terms / sqrt(their number)), the delta method
//   divergence                         KL(saved || this) = sum over the vocabulary of p_saved (ln p_saved - ln p), in nats
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "engine/base/export.h"
#include "engine/session/engine.h"

namespace tally {

struct PerplexityOptions {
  int64_t window = 512;  // tokens, bos included; 2 to the engine's context
  int64_t stride = 256;  // 1 to the tokens of a window
  int64_t windows = 0;   // stop after so many; 0: all
  int32_t bos = -1;      // -1: none
  // A .npy file, float32 [tokens scored, 3 + vocab]: of each token its id, the window, the stride, and the logits that predicted it.
  std::string save = {};                   // written, complete or not at all; empty: none
  std::string against = {};                // read and compared with; empty: none
  std::function<bool()> interrupted = {};  // true: stop; may be null
  // After each step: tokens scored of all, and the perplexity so far. May be null.
  std::function<void(int64_t scored, int64_t total, double perplexity)> progress = {};
};

struct Divergence {
  double mean = 0, median = 0, p99 = 0, most = 0;  // KL, nats a token
  double mean_error = 0;                           // standard error
  double same_top = 0, same_top_error = 0;         // share of tokens with the same most likely token
  double saved_perplexity = 0;
  double log_ratio = 0;  // ln(perplexity / saved perplexity)
};

struct PerplexityReport {
  int64_t scored = 0, windows = 0;
  double mean_nll = 0;  // nats a token
  double perplexity = 0, perplexity_error = 0;
  std::optional<Divergence> divergence = {};
  bool interrupted = false;  // the figures are those so far
};

// Runs on sequences of its own. kBadInput: fewer than 2 tokens, options out of range, a file that cannot be read or written, or is of
// other tokens, windows or another vocabulary; errors of Step.
TALLY_API Result<PerplexityReport> Perplexity(Engine& engine, std::span<const int32_t> tokens, const PerplexityOptions& options);

}  // namespace tally
