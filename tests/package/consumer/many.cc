// SPDX-License-Identifier: Apache-2.0
// Several requests at once on one engine: many MODEL TEXT... prints each answer as it comes, in turns, and what each cost.
#include <tally/tally.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

static int Fail(const tally::Status& status) {
  std::cerr << status.message() << '\n';
  return status.code() == tally::StatusCode::kBadInput ? 2 : 1;
}

int main(int argc, char** argv) {
  if (argc < 3) return Fail(tally::BadInput("usage: many MODEL TEXT..."));
  tally::EngineOptions options;
  options.context = 64;
  options.sequences = argc - 2;
  const auto model = tally::LoadModel(argv[1], options);
  if (!model.ok()) return Fail(model.status());
  const tally::Tokenizer* tokenizer = (*model)->tokenizer();
  if (tokenizer == nullptr) return Fail(tally::BadInput("the model has no tokenizer"));
  const auto engine = tally::NewEngine(*model, options);
  if (!engine.ok()) return Fail(engine.status());

  tally::RequestOptions ask;
  ask.max_tokens = 8;
  ask.sampling.temperature = 0;
  tally::Scheduler scheduler(**engine);
  std::vector<std::shared_ptr<tally::Request>> requests;
  std::vector<std::string> answers(static_cast<size_t>(argc - 2));
  for (int i = 2; i < argc; ++i) {
    const auto prompt = tokenizer->Encode(argv[i], {.add_special = true});
    if (!prompt.ok()) return Fail(prompt.status());
    const auto request = tally::Request::New(**engine, *prompt, ask);
    if (!request.ok()) return Fail(request.status());
    scheduler.Add(*request);
    requests.push_back(*request);
  }
  while (!scheduler.idle()) {
    scheduler.Step();  // a token of each
    for (size_t i = 0; i < requests.size(); ++i) {
      for (const tally::RequestEvent& event : requests[i]->TakeEvents()) {
        for (const tally::OutputPart& part : event.parts) answers[i] += part.text;
      }
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const tally::GenerateResult& result = requests[i]->result();
    if (!result.error.ok()) return Fail(result.error);
    std::cout << answers[i] << "\n[" << result.bill.total().useful.TotalFlops() << " FLOPs]\n";
  }
}
