// SPDX-License-Identifier: Apache-2.0
// --ledger, --trace and --csv: what they hold, and that it is as docs/ledger.schema.json says.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/goldens.h"
#include "tests/support/json_schema.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream file(ReadAll(path));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A CSV row by the names of its columns; our fields hold no commas.
std::map<std::string, std::string> Fields(const std::string& header, const std::string& row) {
  std::map<std::string, std::string> fields;
  std::istringstream names(header), values(row);
  for (std::string name, value; std::getline(names, name, ',') && std::getline(values, value, ',');) fields[name] = value;
  return fields;
}

JsonSchema LedgerSchema() { return JsonSchema(Json::parse(ReadAll(std::string(TALLY_SOURCE_DIR) + "/docs/ledger.schema.json"))); }

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
                         "--trace", trace, "--csv", csv, "--force"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json run = Json::parse(e.out);
  const JsonSchema schema = LedgerSchema();
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
    const std::map<std::string, std::string> row = Fields(rows[0], rows[i + 1]);
    const auto number = [&](const std::string& column) { return std::stoull(row.at(column)); };
    EXPECT_EQ(number("flops_linear"), Sum(line["useful"]["flops"].value("linear", Json::object())));
    EXPECT_EQ(number("flops_residual_bias"), Sum(line["useful"]["flops"].value("residual/bias", Json::object())));
    EXPECT_EQ(number("flops_f32") + number("flops_bf16") + number("flops_int8"), Sum(line["useful"]["flops"]));
    EXPECT_EQ(number("executed_flops"), Sum(line["executed"]["flops"]));
    EXPECT_EQ(number("special"), Sum(line["useful"]["special"]));
    for (const char* kind : {"weights stored", "weights packed", "KV read", "activations written"}) {
      std::string column = std::string("bytes_") + kind;
      std::replace(column.begin(), column.end(), ' ', '_');
      EXPECT_EQ(number(column), line["bytes"].value(kind, uint64_t{0}));
    }
    EXPECT_EQ(number("ns"), line["ns"].get<uint64_t>());
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
  const Json events = Json::parse(ReadAll(trace));
  uint64_t ops = 0, step_slices = 0, layer_slices = 0;
  std::vector<std::pair<double, double>> slices[2], layered;
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    if (event.contains("args")) {
      ++ops;
      if (event["args"]["site"].get<std::string>().starts_with("layer ")) layered.emplace_back(begin, end);
    } else {
      const bool layer = event["name"].get<std::string>().starts_with("layer ");
      ++(layer ? layer_slices : step_slices);
      slices[layer ? 1 : 0].emplace_back(begin, end);
    }
  }
  EXPECT_EQ(ops, lines.size());
  EXPECT_EQ(step_slices, steps);
  EXPECT_EQ(layer_slices, steps * 6);
  const auto within = [](const auto& outer, const auto& inner) {
    return std::count_if(outer.begin(), outer.end(),
                         [&](const auto& s) { return s.first <= inner.first + 0.01 && inner.second <= s.second + 0.01; });
  };
  for (const auto& layer : slices[1]) EXPECT_EQ(within(slices[0], layer), 1);
  for (const auto& op : layered) EXPECT_EQ(within(slices[1], op), 1);
  EXPECT_GT(layered.size(), layer_slices * 10);
}

TEST(CliRecords, TheSchemaRefusesWhatItDoesNotKnow) {
  const TempFolder dir;
  const std::string ledger = dir.path() + "/l.jsonl";
  ASSERT_EQ(Tally({"logits", kGoldens + "gpt2/gpt2-a-f32-release-names", "--tokens", "1,2", "--ledger", ledger}).code, 0);
  const JsonSchema schema = LedgerSchema();
  const Json good = Json::parse(Lines(ledger).at(4));
  ASSERT_EQ(schema.Check(good), "");
  const auto refused = [&](const char* pointer, const Json& value) {
    Json line = good;
    line[Json::json_pointer(pointer)] = value;
    EXPECT_NE(schema.Check(line), "") << pointer << " = " << value;
  };
  refused("/version", 1);
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
  refused({"--ledger", same, "--csv", dir.path() + "/./same"}, "was given twice");
  refused({"--csv", model}, "is a file of the model: it would be overwritten");
  EXPECT_EQ(std::filesystem::file_size(model), size);
  const std::string prompt = dir.Write("p.txt", "1,2");
  EXPECT_EQ(Tally({"logits", model, "--tokens-file", prompt, "--csv", prompt}).code, 2);
  EXPECT_EQ(std::filesystem::file_size(prompt), 3u);
  const std::string folder = kGoldens + "gpt2/gpt2-a-f32-release-names";
  const Ended e = Tally({"logits", folder, "--tokens", "1", "--trace", folder + "/config.json"});
  EXPECT_EQ(e.code, 2);
  EXPECT_NE(e.err.find("is a file of the model"), std::string::npos) << e.err;
  EXPECT_GT(std::filesystem::file_size(folder + "/config.json"), 10u);
  if (std::filesystem::exists("/dev/full"))
    refused({"--ledger", "/dev/full"}, "cannot write '/dev/full': No space left on device");
}

// Every option that writes, but for sessions and reports, which take the place of their like. Without --force what is there stays.
TEST(CliRecords, FilesThatAreThereAreReplacedByForceAlone) {
  const TempFolder dir;
  const std::string model = kGoldens + "gpt2/gpt2-a-f32-release-names/model.gguf", file = dir / "file", folder = dir / "folder";
  const std::string config = kGoldens + "llama/llama-a-f32-gqa-untied/config.json";
  const std::string text = dir.Write("text", "1,2,3,4");
  std::filesystem::create_directory(folder);
  struct Row {
    std::vector<std::string> command;
    std::string there, part = "";  // the file; a part of what takes its place
  };
  const std::vector<std::string> run = {"run", model, "--prompt-tokens", "1,2", "-n", "1"},
                                 logits = {"logits", model, "--tokens", "1"};
  const auto with = [](std::vector<std::string> command, const std::string& option, const std::string& path) {
    command.insert(command.end(), {option, path});
    return command;
  };
  for (const Row& row :
       {Row{with(run, "--ledger", file), file, "\"step\":"}, Row{with(run, "--trace", file), file, "\"ph\":"},
        Row{with(run, "--csv", file), file, "step,"}, Row{with({"audit", model, "-n", "1"}, "--csv", file), file, "step,"},
        Row{with(logits, "-o", file), file, "NUMPY"}, Row{with(logits, "--dump", folder), folder + "/old.npy"},
        Row{with({"perplexity", model, "--tokens-file", text}, "--save", file), file, "NUMPY"},
        Row{{"quantize", model, file, "--type", "F16"}, file, "GGUF"},
        Row{{"synth", config, dir / "x.gguf", "--type", "F32"}, dir / "x.gguf", "GGUF"},
        Row{{"synth", config, folder}, folder + "/config.json", "num_hidden_layers"},
        Row{{"report", model, "-n", "1", "-o", dir / "page.html", "--svg", folder}, folder + "/old.svg"},
        Row{{"man", "-o", folder}, folder + "/tally-run.1", ".TH"}}) {
    SCOPED_TRACE(row.command[0] + " " + row.command[row.command.size() - 2]);
    const std::string before = "what it held before\n";
    std::ofstream(row.there) << before;
    ExpectAdvice(row.command, {"'" + row.there + "' is there; --force replaces it"});
    EXPECT_EQ(ReadAll(row.there), before);
    std::vector<std::string> forced = row.command;
    forced.emplace_back("--force");
    const Ended e = Tally(forced);
    EXPECT_EQ(e.code, 0) << e.err;
    if (row.part.empty()) continue;
    EXPECT_NE(ReadAll(row.there).find(row.part), std::string::npos);
    EXPECT_EQ(ReadAll(row.there).find(before), std::string::npos);
  }
  std::ofstream(file, std::ios::trunc).close();  // of mktemp: there is nothing to lose
  EXPECT_EQ(Tally(with(run, "--csv", file)).code, 0);
}

// Each would be written over the other, from its own place in the file.
TEST(CliRecords, WhereStandardOutputOrErrorGoesIsRefused) {
  const TempFolder dir;
  const std::string model = kGoldens + "llama/llama-a-f32-gqa-untied/model.gguf", file = dir / "file", link = dir / "link";
  std::filesystem::create_symlink(file, link);
  const std::vector<std::string> run = {"run", model, "--prompt-tokens", "1,2", "-n", "1"};
  const std::vector<std::string> logits = {"logits", model, "--tokens", "1"};
  const auto with = [](std::vector<std::string> arguments, const std::string& option, const std::string& path) {
    arguments.insert(arguments.end(), {option, path});
    return arguments;
  };
  const auto expect_line = [](const std::string& text) {
    EXPECT_TRUE(IsOneLine(text)) << text;
    EXPECT_NE(text.find("is where standard output or standard error goes"), std::string::npos) << text;
  };
  for (const std::vector<std::string>& arguments :
       {with(run, "--ledger", file), with(run, "--trace", file), with(run, "--csv", link), with(logits, "--ledger", link),
        with(logits, "-o", file), with(logits, "-o", link)}) {
    SCOPED_TRACE(arguments[0] + " " + arguments[arguments.size() - 2] + " " + arguments.back());
    Ended e = Tally(arguments, {.stdout_file = file});
    EXPECT_EQ(e.code, 2);
    expect_line(e.err);
    EXPECT_EQ(ReadAll(file), "");

    e = Tally(arguments, {.wrapper = {"bash", "-c", "exec \"$@\" 2>\"$0\"", file}});
    EXPECT_EQ(e.code, 2);
    EXPECT_EQ(e.out, "");
    expect_line(ReadAll(file));

    std::ofstream(file) << "what it held before\n";
    e = Tally(arguments, {.wrapper = {"bash", "-c", "exec \"$@\" >>\"$0\"", file}});
    EXPECT_EQ(e.code, 2);
    expect_line(e.err);
    EXPECT_EQ(ReadAll(file), "what it held before\n");
    EXPECT_EQ(dir.Entries(), 2u) << "nothing else is left";
  }
  // Another file, and a device, which takes both.
  EXPECT_EQ(Tally(with(run, "--ledger", dir / "ledger"), {.stdout_file = file}).code, 0);
  EXPECT_GT(Lines(dir / "ledger").size(), 10u);
  EXPECT_EQ(Tally(with(run, "--ledger", "/dev/null"), {.stdout_file = "/dev/null"}).code, 0);
  EXPECT_EQ(Tally(with(logits, "-o", "/dev/null"), {.stdout_file = "/dev/null"}).code, 0);
}

}  // namespace
}  // namespace tally
