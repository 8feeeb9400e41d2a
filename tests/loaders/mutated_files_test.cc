// Random damage to sound files: every outcome is a success or one clear line, and what is accepted lies
// inside the file.
#include <gtest/gtest.h>

#include <random>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

uint64_t Seed() {
  const char* given = std::getenv("TALLY_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

// Flips, overwrites, cuts, repeats or removes bytes, one to four times.
std::string Mutate(std::string bytes, std::mt19937_64& random) {
  static const uint64_t kNasty[] = {0, 1, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 63, UINT64_MAX, INT64_MAX};
  const auto below = [&](uint64_t n) { return n == 0 ? 0 : random() % n; };
  for (uint64_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
      case 1: bytes[at] = static_cast<char>(random()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.insert(at, bytes.substr(below(bytes.size()), below(40))); break;
      case 4: bytes.erase(at, below(20)); break;
      default: {
        const uint64_t value = kNasty[below(std::size(kNasty))];
        const size_t size = std::min<size_t>(below(2) ? 8 : 4, bytes.size() - at);
        std::memcpy(bytes.data() + at, &value, size);
      }
    }
  }
  return bytes;
}

void CheckOutcome(const Result<Inventory>& r, std::string_view name) {
  if (!r.ok()) {
    ExpectBadInput(r.status(), {name});
    EXPECT_LT(r.status().message().size(), 1000u);
    return;
  }
  for (const StoredTensor& t : r->tensors) {
    ASSERT_LT(t.file, r->files.size());
    ASSERT_LE(t.offset, r->files[t.file].size);
    ASSERT_LE(t.bytes, r->files[t.file].size - t.offset);
    ASSERT_EQ(StoredBytes(t.dtype, t.elements()), t.bytes);
    ASSERT_EQ(r->Find(t.name), &t);
  }
}

TEST(MutatedFiles, Gguf) {
  RawGguf g;
  g.keys = {Key("general.architecture", 8, Bytes().Str("llama")),
            Key("general.alignment", 4, Bytes().U32(32)),
            Key("tokens", 9, Bytes().U32(8).U64(3).Str("a").Str("bc").Str("")),
            Key("scores", 9, Bytes().U32(6).U64(2).Le(0.5f).Le(1.5f)),
            Key("flag", 7, Bytes().U8(1)),
            Key("split.count", 2, Bytes().Le(uint16_t{1}))};
  g.tensors = {{"blk.0.a", {3, 2}, 0, 0}, {"blk.0.b", {64, 5}, 8, 32}, {"c", {32, 1, 2}, 39, 384}};
  g.data_bytes = 384 + 34;
  const std::string whole = g.Make();
  const TempFolder dir;
  ASSERT_TRUE(ReadGguf(dir.Write("m.gguf", whole)).ok());
  const uint64_t seed = Seed();
  SCOPED_TRACE("TALLY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int i = 0; i < 4000 && !testing::Test::HasFailure(); ++i) {
    const auto r = ReadGguf(dir.Write("m.gguf", Mutate(whole, random)));
    CheckOutcome(r, "m.gguf");
    accepted += r.ok();
  }
  EXPECT_GT(accepted, 0);  // damage to names and data is not seen
  EXPECT_LT(accepted, 4000);
}

TEST(MutatedFiles, HuggingFace) {
  const std::string config = R"({"a": [1, 2], "b": {"c": 0.5, "d": [true]}, "e": "text", "f": [{"g": null}]})";
  const std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("v":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  const std::string index = R"({"metadata":{"total_size":32},"weight_map":{"w":"s.safetensors","v":"s.safetensors"}})";
  const std::string weights = Safetensors(header, 32);
  const TempFolder dir;
  const uint64_t seed = Seed();
  SCOPED_TRACE("TALLY_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto write = [&] {
    dir.Write("config.json", config);
    dir.Write("model.safetensors.index.json", index);
    dir.Write("s.safetensors", weights);
  };
  write();
  ASSERT_TRUE(ReadHuggingFace(dir.path()).ok());
  for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    write();
    if (i % 3 == 0) dir.Write("config.json", Mutate(config, random));
    if (i % 3 == 1) dir.Write("model.safetensors.index.json", Mutate(index, random));
    if (i % 3 == 2) dir.Write("s.safetensors", Mutate(weights, random));
    CheckOutcome(ReadHuggingFace(dir.path()), dir.path());
  }
}

}  // namespace
}  // namespace tally
