// A program that uses the installed library: consumer MODEL TEXT, or, where the model has no tokenizer, consumer MODEL 1 2 3
#include <tally/summary.h>
#include <tally/tally.h>

#include <cstdlib>
#include <iostream>
#include <vector>

static int Fail(const tally::Status& status) {
  std::cerr << status.message() << '\n';
  return status.code() == tally::StatusCode::kBadInput ? 2 : 1;
}

int main(int argc, char** argv) {
  if (argc < 3) return Fail(tally::BadInput("usage: consumer MODEL TEXT | MODEL TOKEN..."));
  tally::LoadOptions options;
  options.context = 64;
  const auto model = tally::LoadModel(argv[1], options);
  if (!model.ok()) return Fail(model.status());
  const auto engine = tally::NewEngine(*model, options);
  if (!engine.ok()) return Fail(engine.status());

  std::vector<int32_t> prompt;
  if (const tally::Tokenizer* tokenizer = (*model)->tokenizer()) {
    auto ids = tokenizer->Encode(argv[2]);
    if (!ids.ok()) return Fail(ids.status());
    prompt = *ids;
  } else {
    for (int i = 2; i < argc; ++i) prompt.push_back(std::atoi(argv[i]));
  }

  tally::GenerateOptions generate;
  generate.max_tokens = 8;
  generate.sampling.temperature = 0;
  const auto result = tally::Generate(**engine, prompt, generate);
  if (!result.ok()) return Fail(result.status());
  std::cout << result->text << '\n';
  for (const int32_t token : result->tokens) std::cout << token << ' ';

  const tally::Account& decode = (*engine)->ledger().total(tally::Phase::kDecode);
  std::cout << '\n' << decode.useful.TotalFlops() << " FLOPs in " << result->decode_steps << " decode steps\n";
  std::cout << tally::books::RunSummary(tally::MeasureRun(**engine, *result));
}
