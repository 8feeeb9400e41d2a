// SPDX-License-Identifier: Apache-2.0
// A program that uses the installed library: consumer demo|MODEL TEXT goes on with TEXT and tells what that cost.
#include <tally/summary.h>
#include <tally/tally.h>

#include <iostream>
#include <string>

static int Fail(const tally::Status& status) {
  std::cerr << status.message() << '\n';
  return status.code() == tally::StatusCode::kBadInput ? 2 : 1;
}

int main(int argc, char** argv) {
  if (argc != 3) return Fail(tally::BadInput("usage: consumer demo|MODEL TEXT"));
  const tally::Result<std::string> path = argv[1] == std::string("demo") ? tally::DemoModelPath() : std::string(argv[1]);
  if (!path.ok()) return Fail(path.status());
  tally::EngineOptions options;
  options.context = 64;
  const auto model = tally::LoadModel(*path, options);
  if (!model.ok()) return Fail(model.status());
  const auto engine = tally::NewEngine(*model, options);
  if (!engine.ok()) return Fail(engine.status());

  const tally::Tokenizer* tokenizer = (*model)->tokenizer();
  if (!(*model)->tokenizer_status().ok()) return Fail((*model)->tokenizer_status());
  if (tokenizer == nullptr) return Fail(tally::BadInput(*path + ": the model has no tokenizer"));
  const auto prompt = tokenizer->Encode(argv[2], {.add_special = true});
  if (!prompt.ok()) return Fail(prompt.status());

  tally::GenerateOptions generate;
  generate.max_tokens = 8;
  generate.sampling.temperature = 0;
  const auto result = tally::Generate(**engine, *prompt, generate);
  if (!result.ok()) return Fail(result.status());
  std::cout << result->text << '\n';
  if (!result->error.ok()) return Fail(result->error);

  const tally::Account& decode = (*engine)->ledger().total(tally::Phase::kDecode);
  std::cout << decode.useful.TotalFlops() << " FLOPs in " << result->decode_steps << " decode steps\n";
  std::cout << tally::RunSummary(tally::MeasureRun(**engine, *result));
}
