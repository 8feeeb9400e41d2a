// SPDX-License-Identifier: Apache-2.0
// Figures that are published or in dispute, beside what Tally counts for them: every numeric claim of five course texts, what published
// code charges, and figures of models with recurrent layers, shared caches, tables and experts. A claim of a course text holds where both
// are the same text; why it does not, or holds for a wrong reason, is said by hand.
//
// The texts are course work found on the web (CS 839 homework, a language-modelling course's resource accounting, two notebooks, a lab on a
// Mini-GPT); of them only the numbers are here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tally {

struct CourseClaim {
  std::string text;        // 000 to 004
  std::string claim;       // what the number is said to be
  std::string printed;     // as printed, thousands grouped
  std::string ours;        // counted, brought to the same digits
  std::string convention;  // what ours counts
  std::string why;         // where wrong: why; where right: what else should be known
  bool right() const { return printed == ours; }
};

std::vector<CourseClaim> CourseClaims();

// Parameters that MoE-CAP's code charges to a token of a mixture, and those that it uses.
struct ChargedParameters {
  std::string model;
  uint64_t charged = 0, used = 0, top_k = 0;
};
std::vector<ChargedParameters> MoeCapCharges();

// A disputed figure.
struct HybridClaim {
  std::string model, claim;
  uint64_t claimed = 0, counted = 0;
  std::string convention;  // of what is counted
};
std::vector<HybridClaim> HybridClaims();   // of models with recurrent layers, tables that are looked up or layers that differ
std::vector<HybridClaim> CountedClaims();  // the same of models that are counted and not run
std::vector<HybridClaim> WorkClaims();     // of any model: what a token costs

// A share as text, "11.5 %": part of whole, to the nearest at that many digits, a half up. In integers: a tie is a tie. whole > 0.
std::string PercentOf(uint64_t part, uint64_t whole, int digits);

// FLOPs of a decoded token at a context, as a share of another model's.
struct FlopsShareClaim {
  std::string model, of;
  uint64_t positions = 0;
  std::string printed, source;
  uint64_t flops = 0,
           flops_of = 0;  // matrix products of both, each position what it sees; 0 where `lacks` says what is not counted
  std::string lacks;      // what the count of one of them lacks, by name; empty: both are whole
};
std::vector<FlopsShareClaim> FlopsShareClaims();

}  // namespace tally
