// SPDX-License-Identifier: Apache-2.0
// The format: safetensors.h.
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "loaders/checks.h"
#include "loaders/tensor_file.h"

namespace tally {
namespace {

Result<internal::TensorFile> MakeLayout(const std::vector<StoredTensor>& tensors) {
  TALLY_RETURN_IF_ERROR(internal::CheckUniqueNames("safetensors file to be written", tensors));
  internal::TensorFile file;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const StoredTensor& t : tensors) {
    std::optional<uint64_t> elements = 1;
    for (const uint64_t d : t.shape) elements = elements ? CheckedMul(*elements, d) : elements;
    const auto bytes = elements ? StoredBytes(t.dtype, *elements) : std::nullopt;
    const auto end = bytes ? CheckedAdd(offset, *bytes) : std::nullopt;
    if (GetDTypeInfo(t.dtype).quantised) {
      return BadInput("tensor " + Quote(t.name) + ": safetensors has no type " + std::string(DTypeName(t.dtype)));
    }
    if (!end || *end > INT64_MAX / 2) return BadInput("tensor " + Quote(t.name) + ": the file would be larger than 2^62 bytes");
    header[t.name] = {{"dtype", DTypeName(t.dtype)}, {"shape", t.shape}, {"data_offsets", {offset, *end}}};
    file.bytes.push_back(*bytes);
    offset = *end;
  }
  std::string json = header.dump();
  json.append(internal::Padding(json.size(), 8), ' ');
  const uint64_t size = json.size();
  static_assert(std::endian::native == std::endian::little);
  file.header.resize(sizeof(size));
  std::memcpy(file.header.data(), &size, sizeof(size));
  file.header += json;
  file.total = file.header.size() + offset;
  return file;
}

}  // namespace

Result<uint64_t> SafetensorsBytes(const std::vector<StoredTensor>& tensors) {
  TALLY_ASSIGN_OR_RETURN(const internal::TensorFile layout, MakeLayout(tensors));
  return layout.total;
}

Status WriteSafetensors(const std::string& path, const std::vector<StoredTensor>& tensors, const FillTensor& fill,
                        const WriteProgress& progress) {
  TALLY_ASSIGN_OR_RETURN(const internal::TensorFile layout, MakeLayout(tensors));
  return internal::WriteTensorFile(path, layout, tensors, fill, progress);
}

}  // namespace tally
