// SPDX-License-Identifier: Apache-2.0
// A Hugging Face directory as the GGUF file of its model: names, shapes and metadata as llama.cpp's convert_hf_to_gguf.py has them, and
// the rows of its tensors as values.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/machine/parallel.h"
#include "engine/recipe/model_spec.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/inventory.h"
#include "models/made_checkpoint.h"

namespace tally {

class GgufOfDirectory {
 public:
  // `allowed`: names of what may be lost of the tokenizer (TokenizerLossNames). kBadInput: no such directory; a model that cannot be
  // read; a family that GGUF has no architecture for; what its keys cannot say.
  static Result<GgufOfDirectory> Open(const std::string& directory, const std::vector<std::string>& allowed);

  const Inventory& source() const { return source_; }  // the directory
  // The file: metadata, the tokenizer's keys among them, and tensors without places. Their types are those of the directory, F32 for
  // vectors, routers and learned positions.
  const Inventory& inventory() const { return made_.inventory; }
  // Of the model, and the parts of the directory that the file lacks: vision towers, and layers for multi-token prediction other than the
  // first one, or of a family that does not run them.
  const std::vector<std::string>& notes() const { return spec_.notes; }
  // Why the file has no vocabulary although the directory has a tokenizer; empty: it has one, or there is none to have.
  const std::string& no_tokenizer() const { return no_tokenizer_; }
  // What other engines do not read of the vocabulary: "its normalizer".
  const std::vector<std::string>& tokenizer_losses() const { return tokenizer_losses_; }

  // Reads the tensor of this index into memory, with the team.
  Status Load(size_t tensor, Team& team);
  // Row `row` of that tensor, counted through its slices, as shape.back() f32. Any threads.
  void Row(uint64_t row, float* out) const;

 private:
  // A bound weight of the loaded tensor.
  struct Part {
    const TensorBinding* binding = nullptr;  // in the file
    WeightView view;
  };

  Status ReadModel();
  Status SetTypes();
  Status SetXielu();
  Status SetTokenizer(const std::vector<std::string>& allowed);
  void SetTemplates();
  const TensorBinding* SourceOf(const TensorBinding& made) const;
  uint64_t SourceRow(const TensorBinding& binding, uint64_t row) const;
  uint64_t RotatedRow(const TensorBinding& binding, uint64_t row) const;
  uint64_t OfTiled(uint64_t element, int32_t width) const;
  void PutVector(const Part& part);

  Inventory source_;
  ModelSpec spec_;  // of the directory
  MadeCheckpoint made_;
  std::string no_tokenizer_;
  std::vector<std::string> tokenizer_losses_;

  PackedWeights weights_;
  std::vector<Part> parts_;
  std::vector<std::pair<uint32_t, uint64_t>> rows_;  // of a slice of the loaded matrix, as stored: part, and row of its view
  std::vector<float> values_;                        // of a loaded vector
  uint64_t cols_ = 0;
};

}  // namespace tally
