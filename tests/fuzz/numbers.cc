// SPDX-License-Identifier: Apache-2.0
// Arrays (.npy) and lists of token ids.
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/app/token_list.h"
#include "loaders/npy.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first byte: columns; the second: at how many rows the array is closed and opened again; then the values.
void RunNpy(std::string_view input) {
  static const Scratch scratch;
  if (input.size() < 2) return;
  const int64_t cols = static_cast<uint8_t>(input[0]) % 64, again = static_cast<uint8_t>(input[1]);
  std::vector<float> values((input.size() - 2) / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), input.data() + 2, values.size() * sizeof(float));
  const int64_t rows = cols == 0 ? 3 : static_cast<int64_t>(values.size()) / cols;
  const std::string path = scratch.path() + "/x.npy";
  Result<NpyWriter> made = NpyWriter::Create(path, cols);
  Require(made.ok(), "not created");
  std::optional<NpyWriter> writer(std::move(*made));
  for (int64_t r = 0; r < rows; ++r) {
    if (r == again) {
      Require(writer->Close().ok(), "not closed");
      Result<NpyWriter> reopened = NpyWriter::Reopen(path, r, cols);
      Require(reopened.ok(), "not opened again");
      writer.emplace(std::move(*reopened));
    }
    Require(writer->Append(Mat<const float>(values.data() + r * cols, 1, cols, cols)).ok(), "not written");
  }
  Require(writer->Append(Mat<const float>(values.data(), 0, cols + 1, cols + 1)).code() == StatusCode::kInternal,
          "other columns");
  Require(writer->Close().ok(), "not closed");
  writer.reset();

  const std::string bytes = ReadFile(path);
  Require(bytes.starts_with(std::string_view("\x93NUMPY\x01\x00", 8)), "no magic");
  const size_t header = 10 + static_cast<uint8_t>(bytes[8]) + 256u * static_cast<uint8_t>(bytes[9]);
  Require(header % 64 == 0 && bytes.size() >= header && bytes[header - 1] == '\n', "not a padded header");
  const std::string shape = "(" + std::to_string(rows) + ", " + std::to_string(cols) + ")";
  Require(bytes.substr(10).starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"), "another header");
  const size_t data = static_cast<size_t>(rows * cols) * sizeof(float);
  Require(bytes.size() == header + data && (data == 0 || std::memcmp(bytes.data() + header, values.data(), data) == 0),
          "other values");
}

std::vector<std::string> NpySeeds() {
  std::string two("\x02\x01", 2);
  for (const float x : {1.0f, -2.5f, NAN, INFINITY, 0.0f, 1e-40f}) two.append(reinterpret_cast<const char*>(&x), sizeof x);
  return {two, std::string("\x00\x00", 2), std::string("\x03\xff", 2) + std::string(40, 'x')};
}

void RunTokenList(std::string_view input) {
  const std::string text(input);
  const Result<std::vector<int32_t>> tokens = app::ParseTokens(text, "tokens.txt");
  if (!tokens.ok()) return RequireOneLine(tokens.status());
  Require(!tokens->empty(), "no tokens and no error");
  std::string again;
  for (const int32_t id : *tokens) {
    Require(id >= 0, "a negative id");
    again += std::to_string(id) + ",";
  }
  const Result<std::vector<int32_t>> same = app::ParseTokens("[" + again + "]", "tokens.txt");
  Require(same.ok() && *same == *tokens, "its own spelling reads otherwise");
}

std::vector<std::string> TokenListSeeds() {
  return {"1,2,3", "[1, 2, 3]\n", " 2147483647 ", "1,,2\n3\t4\r\n", "2147483648", "-1", "[", "[]", "1 x", "\xff"};
}

}  // namespace

const Target kNpy = {"npy", RunNpy, NpySeeds};
const Target kTokenList = {"token_list", RunTokenList, TokenListSeeds};

}  // namespace tally::fuzz
