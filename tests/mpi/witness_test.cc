// SPDX-License-Identifier: Apache-2.0
// What the ledgers say that ranks sent and received, beside what the witness saw from outside, to the byte.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_folder.h"

namespace tally {
namespace {

#ifndef TALLY_RANKS
TEST(Witness, IsNotHere) { GTEST_SKIP() << "ranks under mpirun, which is not here, or tests with sanitizers"; }
#else

// Experts, heads of which three ranks have different numbers, rows that are no whole pieces.
constexpr const char* kConfig =
    R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 331, "hidden_size": 80,
  "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
  "moe_intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3, "decoder_sparse_step": 1, "mlp_only_layers": [],
  "norm_topk_prob": true, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 128,
  "tie_word_embeddings": false})";

std::string Output(const std::string& command, int& code) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char piece[4096];
  while (const size_t n = std::fread(piece, 1, sizeof piece, pipe)) text.append(piece, n);
  const int status = ::pclose(pipe);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return text;
}

TEST(Witness, SawWhatTheLedgersAndTheProtocolSay) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << kConfig;
  int code = -1;
  const std::string made =
      Output(std::string(TALLY_COMMAND) + " synth " + (folder / "config.json") + " " + (folder / "model") + " 2>&1", code);
  ASSERT_EQ(code, 0) << made;
  for (const uint64_t ranks : {2, 3}) {
    const std::string file = folder / ("seen" + std::to_string(ranks));
    const std::string out =
        Output("TALLY_MPI_PLUGIN=" TALLY_PLUGIN " TALLY_WITNESS=" + file +
                   " timeout 60 " TALLY_MPIRUN " -q --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) +
                   " env LD_PRELOAD=" TALLY_WITNESS_LIBRARY " " TALLY_COMMAND " run " + (folder / "model") +
                   " --prompt-tokens 1,2,3,100,330,7 -n 9 -t 1 --json",
               code);
    ASSERT_EQ(code, 0) << out;
    const auto document = nlohmann::json::parse(out);
    const auto& books = document["ranks"];
    ASSERT_EQ(books.size(), ranks);
    // What rank 0 tells the others: a message of 1,024 bytes for the prompt and each decoded token, for the request's bill, for the books,
    // and for the end of the model; 88 bytes for the end of the command. What they answer: eight bytes a step. The bill and the books:
    // their sizes, then they.
    constexpr uint64_t kCommand = 1024, kWord = 8, kOrder = 88;
    const uint64_t steps = 1 + document["decode_steps"].get<uint64_t>(), others = ranks - 1;
    uint64_t all_books = 0, all_bills = 0;
    const auto bill_of = [&](uint64_t rank) {
      return rank == 0 ? 0 : books[rank]["traffic"]["commands"]["sent"].get<uint64_t>() - (steps + others) * kWord;
    };
    for (uint64_t r = 0; r < ranks; ++r) all_bills += bill_of(r);
    EXPECT_GT(all_bills, 0u);
    for (const auto& b : books) all_books += b["traffic"]["these_books"].get<uint64_t>();
    for (uint64_t r = 0; r < ranks; ++r) {
      const auto& t = books[r]["traffic"];
      const auto bytes = [&](const char* part, const char* way) { return t[part][way].get<uint64_t>(); };
      const bool first = r == 0;
      EXPECT_EQ(bytes("commands", "sent"),
                first ? others * (steps + 2) * kCommand + others * kWord : (steps + others) * kWord + bill_of(r))
          << ranks << " " << r;
      EXPECT_EQ(bytes("commands", "received"),
                first ? others * (steps + 1) * kWord + all_bills : (steps + 2) * kCommand + others * kWord)
          << ranks << " " << r;
      EXPECT_GT(bytes("gathers", "sent"), 10'000u);
      const uint64_t sent_after = others * kWord + (first ? others * (kCommand + kOrder) : t["these_books"].get<uint64_t>());
      const uint64_t received_after = others * kWord + (first ? all_books : kCommand + kOrder);
      uint64_t rank = 0, sent = 0, received = 0;
      std::ifstream(file + "." + std::to_string(r)) >> rank >> sent >> received;
      EXPECT_EQ(sent, bytes("start", "sent") + bytes("gathers", "sent") + bytes("commands", "sent") + sent_after)
          << ranks << " " << r;
      EXPECT_EQ(received,
                bytes("start", "received") + bytes("gathers", "received") + bytes("commands", "received") + received_after)
          << ranks << " " << r;
    }
  }
}

// More ranks than heads, channels and cores there are.
TEST(Witness, LogitsUnderMpirunAreThoseOfOneProcess) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << kConfig;
  int code = -1;
  Output(std::string(TALLY_COMMAND) + " synth " + (folder / "config.json") + " " + (folder / "model") + " 2>&1", code);
  ASSERT_EQ(code, 0);
  const auto logits = [&](int ranks) {
    const std::string file = folder / ("logits" + std::to_string(ranks));
    const std::string out =
        Output("TALLY_MPI_PLUGIN=" TALLY_PLUGIN " timeout 60 " TALLY_MPIRUN " -q --allow-run-as-root --oversubscribe -n " +
                   std::to_string(ranks) + " " TALLY_COMMAND " logits " + (folder / "model") +
                   " --tokens 1,2,3,100,330,7 -t 1 -o " + file + " 2>&1",
               code);
    EXPECT_EQ(code, 0) << out;
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string wanted = logits(1);
  EXPECT_GT(wanted.size(), 1000u);
  for (const int ranks : {2, 3, 4, 7}) EXPECT_TRUE(logits(ranks) == wanted) << ranks;
}

#endif

}  // namespace
}  // namespace tally
