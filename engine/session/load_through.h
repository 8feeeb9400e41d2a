// SPDX-License-Identifier: Apache-2.0
// Loading with other readers of what stays on disk; internal to the session and its tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/session/model.h"
#include "engine/weights/record_reads.h"

namespace tally {

// LoadModel, with a reader of records of the caller's in front of the one that it opens: for tests of disks that fail.
using RecordsThrough = std::function<std::unique_ptr<RecordReader>(std::unique_ptr<RecordReader>)>;
Result<std::shared_ptr<const Model>> LoadModelThrough(const std::string& path, const EngineOptions& engine,
                                                      const RecordsThrough& through);

}  // namespace tally
