// --ledger, --trace and --csv: what they hold, that it is as docs/ledger.schema.json says, and that bench/replay can build it again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>
#include <vector>

#include "bench/replay_op.h"
#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream file(ReadAll(path));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class Schema {
 public:
  Schema() {
    document_ = Json::parse(ReadAll(std::string(TALLY_SOURCE_DIR) + "/docs/ledger.schema.json"));
    valijson::adapters::NlohmannJsonAdapter adapter(document_);
    valijson::SchemaParser().populateSchema(adapter, schema_);
  }
  // What is wrong with it, or nothing.
  std::string Check(const Json& line) const {
    valijson::Validator validator;
    valijson::ValidationResults results;
    valijson::adapters::NlohmannJsonAdapter adapter(line);
    if (validator.validate(schema_, adapter, &results)) return "";
    valijson::ValidationResults::Error error;
    std::string text = "refused";
    while (results.popError(error)) {
      for (const std::string& part : error.context) text += " " + part;
      text += " " + error.description + ";";
    }
    return text;
  }

 private:
  Json document_;
  valijson::Schema schema_;
};

uint64_t Sum(const Json& tree) {
  uint64_t n = 0;
  for (const Json& v : tree) n += v.is_object() ? Sum(v) : v.get<uint64_t>();
  return n;
}

TEST(CliRecords, TheThreeFilesTellOfTheSameRun) {
  const TempFolder dir;
  const std::string ledger = dir.path() + "/l.jsonl", trace = dir.path() + "/t.json", csv = dir.path() + "/c.csv";
  std::ofstream(ledger) << "what it held before\n";
  const Ended e = Tally({"run", "demo", "-p", "KING:", "-n", "5", "--temp", "0", "--threads", "2", "--json", "--ledger", ledger,
                         "--trace", trace, "--csv", csv});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json run = Json::parse(e.out);
  const Schema schema;
  const std::vector<std::string> lines = Lines(ledger), rows = Lines(csv);
  ASSERT_GT(lines.size(), 100u);
  ASSERT_EQ(rows.size(), lines.size() + 1);
  uint64_t decode_flops = 0, decode_bytes = 0, executed = 0, steps = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Json line = Json::parse(lines[i]);
    ASSERT_EQ(schema.Check(line), "") << lines[i];
    steps = line["step"].get<uint64_t>() + 1;
    const std::string start = std::to_string(line["step"].get<int>()) + "," + std::to_string(line["index"].get<int>()) + "," +
                              line["phase"].get<std::string>() + ",";
    EXPECT_TRUE(rows[i + 1].starts_with(start)) << rows[i + 1];
    EXPECT_EQ(std::count(rows[i + 1].begin(), rows[i + 1].end(), ','), std::count(rows[0].begin(), rows[0].end(), ','));
    if (line["phase"] != "decode") continue;
    decode_flops += Sum(line["useful"]["flops"]);
    executed += Sum(line["executed"]["flops"]);
    if (line["bytes"].contains("weights packed")) decode_bytes += line["bytes"]["weights packed"].get<uint64_t>();
  }
  const uint64_t decode_steps = run["decode_steps"];
  EXPECT_EQ(steps, decode_steps + 1);
  const auto per_token = [&](const char* name) { return run[name].get<double>() * static_cast<double>(decode_steps); };
  EXPECT_NEAR(static_cast<double>(decode_flops), per_token("flops_per_token"), 0.5);
  EXPECT_NEAR(static_cast<double>(executed), per_token("executed_flops_per_token"), 0.5);
  EXPECT_NEAR(static_cast<double>(decode_bytes), per_token("weight_bytes_per_token"), 0.5);

  // The trace: each op once, inside its layer's slice, which is inside its step's.
  const Json document = Json::parse(ReadAll(trace));
  uint64_t ops = 0, step_slices = 0, layer_slices = 0;
  std::vector<std::pair<double, double>> slices[2];
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    if (event.contains("args")) {
      ++ops;
    } else {
      const bool layer = event["name"].get<std::string>().starts_with("layer ");
      ++(layer ? layer_slices : step_slices);
      slices[layer ? 1 : 0].emplace_back(begin, end);
    }
  }
  EXPECT_EQ(ops, lines.size());
  EXPECT_EQ(step_slices, steps);
  EXPECT_EQ(layer_slices, steps * 6);
  for (const auto& [begin, end] : slices[1]) {
    EXPECT_EQ(std::count_if(slices[0].begin(), slices[0].end(),
                            [&](const auto& s) { return s.first <= begin + 0.01 && end <= s.second + 0.01; }),
              1);
  }
}

TEST(CliRecords, TheSchemaRefusesWhatItDoesNotKnow) {
  const TempFolder dir;
  const std::string ledger = dir.path() + "/l.jsonl";
  ASSERT_EQ(Tally({"logits", kGoldens + "gpt2/gpt2-a-f32-release-names", "--tokens", "1,2", "--ledger", ledger}).code, 0);
  const Schema schema;
  const Json good = Json::parse(Lines(ledger).at(4));
  ASSERT_EQ(schema.Check(good), "");
  const auto refused = [&](const char* pointer, const Json& value) {
    Json line = good;
    line[Json::json_pointer(pointer)] = value;
    EXPECT_NE(schema.Check(line), "") << pointer << " = " << value;
  };
  refused("/version", 2);
  refused("/surplus", 1);
  refused("/ns", -1);
  refused("/phase", "verify");
  refused("/op", "conv");
  refused("/useful/flops", {{"linear", 5}});
  refused("/useful/flops", {{"magic", {{"f32", 5}}}});
  refused("/bytes/disk", 5);
  refused("/operands/0/role", "guest");
  Json line = good;
  line.erase("executed");
  EXPECT_NE(schema.Check(line), "");
}

// Every kind of op of every family, prefill and decode: built from its line alone, it is charged what was logged, and its kernels agree.
TEST(CliRecords, ReplayBuildsTheOpsAgain) {
  Team team(2);
  std::set<std::string> ops;
  for (const std::string model :
       {"gpt2/gpt2-a-f32-release-names", "llama/llama-b-bf16-llama3rope-headdim-tied/model.gguf", "demo"}) {
    const TempFolder dir;
    const std::string ledger = dir.path() + "/l.jsonl", path = model == "demo" ? model : kGoldens + model;
    const Ended e = Tally({"run", path, "--prompt-tokens", "1,2,3,4,5,6,7,8,9", "-n", "2", "--temp", "0", "--ledger", ledger});
    ASSERT_EQ(e.code, 0) << e.err;
    for (const std::string& text : Lines(ledger)) {
      const Json line = Json::parse(text);
      if (line["layer"] > 1) continue;
      ops.insert(line["op"]);
      auto built = BuildReplay(line, team, 0);
      ASSERT_TRUE(built.ok()) << built.status().message() << "\n" << text;
      Executor executor(team, nullptr);
      Cost useful;
      executor.SetRecorder([&](const OpRecord& r) { useful = r.useful; });
      const Status status = (*built)->Run(executor);
      ASSERT_TRUE(status.ok()) << status.message() << "\n" << text;
      EXPECT_EQ(useful.TotalFlops(), Sum(line["useful"]["flops"])) << text;
      for (int k = 0; k < kByteKinds; ++k) {
        const std::string kind(kByteKindNames[k]);
        EXPECT_EQ(useful.Bytes(static_cast<ByteKind>(k)), line["bytes"].value(kind, uint64_t{0})) << kind << "\n" << text;
      }
    }
  }
  EXPECT_EQ(ops.size(), 11u) << "every op there is";
}

TEST(CliRecords, LinesThatAreNoneAreRefused) {
  Team team(1);
  for (const char* text :
       {R"({})", R"({"op":"matmul","operands":[],"settings":{}})", R"({"op":"conv","operands":[],"settings":{}})",
        R"({"op":"norm","operands":[{"name":"x","role":"input","type":"f32","shape":[-1,4]}],"settings":{}})"}) {
    const auto built = BuildReplay(Json::parse(text), team, 0);
    ASSERT_FALSE(built.ok()) << text;
    EXPECT_EQ(built.status().code(), StatusCode::kBadInput) << text;
  }
}

TEST(CliRecords, FilesThatCannotBeWrittenAreRefused) {
  const TempFolder dir;
  const std::string model = kGoldens + "llama/llama-a-f32-gqa-untied/model.gguf", same = dir.path() + "/same";
  const auto refused = [&](std::vector<std::string> arguments, const std::string& part) {
    std::vector<std::string> all = {"run", model, "--prompt-tokens", "1,2", "-n", "1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ended e = Tally(all);
    EXPECT_EQ(e.code, 2) << part;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  };
  refused({"--ledger", dir.path() + "/none/l.jsonl"}, "No such file or directory");
  refused({"--trace", dir.path()}, "Is a directory");
  refused({"--ledger", same, "--csv", same}, "was given twice");
  const auto size = std::filesystem::file_size(model);
  refused({"--csv", model}, "is the model: it would be overwritten");
  EXPECT_EQ(std::filesystem::file_size(model), size);
  if (std::filesystem::exists("/dev/full"))
    refused({"--ledger", "/dev/full"}, "cannot write '/dev/full': No space left on device");
}

}  // namespace
}  // namespace tally
