// SPDX-License-Identifier: Apache-2.0
#include "loaders/inventory/inventory.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

Metadata Sample() {
  Metadata m;
  m.source = "some/config.json";
  m.Set("bool", true);
  m.Set("int", int64_t{-7});
  m.Set("uint", uint64_t{7});
  m.Set("huge", uint64_t{1} << 63);
  m.Set("double", 0.5);
  m.Set("integral", 4096.0);
  m.Set("rounded", 1e300);
  m.Set("string", std::string("x"));
  m.Set("bools", std::vector<bool>{true, false});
  m.Set("ints", std::vector<int64_t>{1, -2});
  m.Set("doubles", std::vector<double>{0.5, 2});
  m.Set("strings", std::vector<std::string>{"a", ""});
  m.Set("empty", std::vector<int64_t>{});
  return m;
}

TEST(Metadata, AbsentIsNotAnError) {
  const Metadata m = Sample();
  EXPECT_FALSE(m.Has("no"));
  EXPECT_EQ(m.GetInt("no").value(), std::nullopt);
  EXPECT_EQ(m.GetDouble("no").value(), std::nullopt);
  EXPECT_EQ(m.GetBool("no").value(), std::nullopt);
  EXPECT_EQ(m.GetString("no").value(), std::nullopt);
  EXPECT_EQ(m.GetInts("no").value(), std::nullopt);
  EXPECT_EQ(m.GetDoubles("no").value(), std::nullopt);
  EXPECT_EQ(m.GetStrings("no").value(), std::nullopt);
}

TEST(Metadata, NullIsAbsentButKnown) {
  Metadata m = Sample();
  const size_t before = m.size();
  m.SetNull("nothing");
  EXPECT_TRUE(m.IsNull("nothing"));
  EXPECT_FALSE(m.Has("nothing") || m.IsNull("int") || m.IsNull("no"));
  EXPECT_EQ(m.GetInt("nothing").value(), std::nullopt);
  EXPECT_EQ(m.size(), before + 1);
  EXPECT_EQ(m.values().size(), before);
}

TEST(Metadata, ValuesOfTheirType) {
  const Metadata m = Sample();
  EXPECT_EQ(m.GetInt("int").value(), -7);
  EXPECT_EQ(m.GetInt("uint").value(), 7);
  EXPECT_EQ(m.GetInt("integral").value(), 4096);
  EXPECT_EQ(m.GetDouble("int").value(), -7.0);
  EXPECT_EQ(m.GetDouble("huge").value(), 9223372036854775808.0);
  EXPECT_EQ(m.GetDouble("double").value(), 0.5);
  EXPECT_EQ(m.GetBool("bool").value(), true);
  EXPECT_EQ(m.GetString("string").value(), "x");
  EXPECT_EQ(m.GetInts("ints").value(), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(m.GetDoubles("ints").value(), (std::vector<double>{1, -2}));
  EXPECT_EQ(m.GetDoubles("doubles").value(), (std::vector<double>{0.5, 2}));
  EXPECT_EQ(m.GetStrings("strings").value(), (std::vector<std::string>{"a", ""}));
}

TEST(Metadata, AnEmptyArrayIsOneOfAnyType) {
  const Metadata m = Sample();
  EXPECT_EQ(m.GetInts("empty").value(), std::vector<int64_t>{});
  EXPECT_EQ(m.GetDoubles("empty").value(), std::vector<double>{});
  EXPECT_EQ(m.GetStrings("empty").value(), std::vector<std::string>{});
}

// GGUF: a value for each layer where one for all is asked for.
TEST(Metadata, EqualValuesOfAllLayersAreOne) {
  Metadata m = Sample();
  m.Set("heads", std::vector<int64_t>{8, 8, 8});
  m.Set("scales", std::vector<double>{0.5, 0.5, 0.5});
  m.Set("on", std::vector<bool>{true, true, true});
  m.Set("mixed", std::vector<int64_t>{8, 8, 4});
  EXPECT_FALSE(m.GetInt("heads").ok());  // of how many layers is not known
  m.layers = 3;
  EXPECT_EQ(m.GetInt("heads").value(), 8);
  EXPECT_EQ(m.GetDouble("heads").value(), 8.0);
  EXPECT_EQ(m.GetDouble("scales").value(), 0.5);
  EXPECT_EQ(m.GetBool("on").value(), true);
  EXPECT_EQ(m.GetInts("heads").value(), (std::vector<int64_t>{8, 8, 8}));
  EXPECT_EQ(m.GetBools("on").value(), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(
      m.GetInt("mixed").status().message(),
      "some/config.json: key 'mixed': expected an integer that fits 64 signed bits, the same for all layers, found an array "
      "of integers that differ");
  EXPECT_FALSE(m.GetBool("heads").ok());
  m.layers = 2;
  EXPECT_FALSE(m.GetInt("heads").ok());
}

TEST(Metadata, WrongTypesNameKeyFileAndBothKinds) {
  const Metadata m = Sample();
  const auto expect = [](const Status& status, std::string_view line) {
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_EQ(status.message(), line);
  };
  expect(m.GetInt("string").status(),
         "some/config.json: key 'string': expected an integer that fits 64 signed bits, found a string");
  expect(m.GetInt("huge").status(),
         "some/config.json: key 'huge': expected an integer that fits 64 signed bits, found an integer "
         "(9223372036854775808)");
  expect(m.GetInt("double").status(),
         "some/config.json: key 'double': expected an integer that fits 64 signed bits, found a number "
         "(0.500000)");
  EXPECT_FALSE(m.GetInt("rounded").ok());
  EXPECT_FALSE(m.GetInt("bool").ok());
  EXPECT_FALSE(m.GetInt("ints").ok());
  expect(m.GetDouble("bool").status(), "some/config.json: key 'bool': expected a number, found a boolean");
  expect(m.GetBool("int").status(), "some/config.json: key 'int': expected a boolean, found an integer");
  expect(m.GetString("ints").status(), "some/config.json: key 'ints': expected a string, found an array of integers");
  expect(m.GetInts("doubles").status(),
         "some/config.json: key 'doubles': expected an array of integers, found an array of numbers");
  EXPECT_FALSE(m.GetInts("int").ok());
  EXPECT_FALSE(m.GetInts("bools").ok());
  EXPECT_FALSE(m.GetDoubles("bools").ok());
  EXPECT_FALSE(m.GetDoubles("string").ok());
  EXPECT_FALSE(m.GetStrings("ints").ok());
  EXPECT_FALSE(m.GetStrings("string").ok());
}

TEST(Inventory, FindsByNameAlsoInACopy) {
  Inventory inventory;
  for (const char* name : {"b", "a", "c"}) inventory.tensors.emplace_back().name = name;
  EXPECT_EQ(inventory.Find("a"), nullptr);  // no index yet
  inventory.BuildIndex();
  const Inventory copy = inventory;
  EXPECT_EQ(inventory.Find("a"), &inventory.tensors[1]);
  EXPECT_EQ(copy.Find("a"), &copy.tensors[1]);
  EXPECT_EQ(inventory.Find("d"), nullptr);
  inventory.tensors.clear();
  inventory.BuildIndex();
  EXPECT_EQ(inventory.Find("a"), nullptr);
}

}  // namespace
}  // namespace tally
