// SPDX-License-Identifier: Apache-2.0
// What an engine shows of itself to those who measure and check it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "counters/ledger/record.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/recipe/sizes.h"

namespace tally {

class PackedWeights;
struct Shard;

// The weights of a loaded model, for a proof of their charges. Valid for the engine's lifetime; a Probe's pointers are not null.
struct ProbedWeights {
  std::span<const Recipe* const> stacks = {};  // that the engine runs, the text first
  std::span<const WeightInfo> stored = {};     // the table of weights, from the files' headers
  std::span<const DType> types = {};           // the stored type of each
  const PackedWeights* packed = nullptr;       // in this process's memory
  const Shard* shard = nullptr;                // the part of the model that this process has
};

// A pass of the layer for multi-token prediction, before it runs.
struct PredictionPass {
  std::span<const int32_t> tokens = {};  // of its rows
  int64_t context = 0;                   // positions that the last row sees, its own included
  int64_t logit_rows = 0;
  bool own_states = false;  // hidden states are what the layer's head got before; else the model's output
};

// Taps and records of the ops that an engine runs. They change no result.
class TALLY_API Probe {
 public:
  virtual ~Probe() = default;
  // Called after every op with a view of its output, valid during the call: row-major f32 [rows, width], rows of the step or one
  // for each row and expert; empty for some ops. Null: no more calls.
  virtual void SetTap(std::function<void(Site, std::string_view op, Mat<const float>)> tap) = 0;
  // Called in every step with the residual stream, [rows of the step, d_model], valid during the call: after the embedding with 0, after
  // each layer with how many layers have run. Null: no more calls.
  virtual void SetStreamTap(std::function<void(int32_t layers, Mat<const float> x)> tap) = 0;
  // Called after every op with its record (record.h): charges, kernel and time. Ops are timed only while a recorder is set. Null:
  // no more calls.
  virtual void SetRecorder(Recorder recorder) = 0;
  // From now on all processes of the model keep which op runs when. To be called right after SetRecorder. A single process does nothing.
  virtual Status RecordRanks() { return {}; }
  // Returns what the other processes have kept since RecordRanks, and ends that. Times are by this process's clock. At most the first half
  // million ops of each. Errors of the group.
  virtual Result<std::vector<RankOps>> RankRecords() { return std::vector<RankOps>(); }
  // From now on keeps which kernel ran for each op and why others were passed over.
  virtual void EnableExplain() = 0;
  virtual std::vector<std::string> Explanations() const = 0;  // one line per op: "attn.q matmul: hwy (blas: ...)"
  // Called before each pass of the layer for multi-token prediction, in Step and Predict, when the step or pass before it has ended. Null:
  // no more calls. An engine that does not predict never calls.
  virtual void SetBeforePass(std::function<void(const PredictionPass&)> before) = 0;
  // Null: the model is not one that LoadModel made.
  virtual const ProbedWeights* weights() const { return nullptr; }
};

}  // namespace tally
