// SPDX-License-Identifier: Apache-2.0
// The models that serve is given: their names, and how they are loaded.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/answers.h"
#include "engine/base/status.h"
#include "engine/serve/model_pool.h"

namespace tally::app {

// An argument: MODEL, or NAME=MODEL where no file has that whole name. kBadInput: a name or a model is missing.
struct NamedModel {
  std::string name = {};   // empty: MODEL's own (ServedName)
  std::string model = {};  // as other commands take it
};
Result<NamedModel> ReadNamedModel(const std::string& given);
// How answers name the model: of a path, its last part, since a path is nobody's business. `path`: of `model`, by ModelPath.
std::string ServedName(const NamedModel& model, const std::string& path);

// What serve loads when it is wanted. Reads the files' headers. `flags` and `engine`: of all of them. `serving`: whether requests are
// answered already; until then a load shows its progress, and what it says names files as the user does. kBadInput, and errors of
// PlanModel.
Result<std::vector<ModelSource>> ModelSources(const std::vector<std::string>& models, const AnswerFlags& flags,
                                              const EngineOptions& engine, const std::shared_ptr<std::atomic<bool>>& serving);

}  // namespace tally::app
