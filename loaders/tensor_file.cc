// SPDX-License-Identifier: Apache-2.0
#include "loaders/tensor_file.h"

#include <algorithm>

#include "loaders/inventory/message.h"
#include "loaders/output_file.h"

namespace tally {
namespace internal {
namespace {

// Bytes of the pieces in which a tensor is asked for: whole rows if one fits, else whole blocks.
uint64_t PieceBytes(const StoredTensor& t) {
  const DTypeInfo info = GetDTypeInfo(t.dtype);
  const uint64_t row = t.shape.empty() ? 1 : t.shape.back();
  const uint64_t row_bytes = row / info.block_size * info.block_bytes;
  const uint64_t unit = row_bytes <= OutputFile::kBufferBytes ? row_bytes : info.block_bytes;
  return OutputFile::kBufferBytes / unit * unit;
}

}  // namespace

Status WriteTensorFile(const std::string& path, const TensorFile& layout, const std::vector<StoredTensor>& tensors,
                       const FillTensor& fill, const WriteProgress& progress) {
  TALLY_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path, fill ? layout.total : layout.header.size()));
  TALLY_RETURN_IF_ERROR(file.Append(layout.header));
  if (!fill) {
    TALLY_RETURN_IF_ERROR(file.Extend(layout.total));
    return file.Commit(/*durable=*/false);
  }
  const auto go_on = [&] { return !progress || progress(file.position(), layout.total); };
  Status stopped(StatusCode::kInterrupted, Printable(path) + ": stopped; nothing was written");
  if (!go_on()) return stopped;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t piece_bytes = PieceBytes(tensors[i]);
    for (uint64_t at = 0; at < layout.bytes[i];) {
      const uint64_t n = std::min(piece_bytes, layout.bytes[i] - at);
      TALLY_ASSIGN_OR_RETURN(const std::span<uint8_t> piece, file.Reserve(n));
      fill(i, at, piece);
      at += n;
      if (!go_on()) return stopped;
    }
    TALLY_RETURN_IF_ERROR(file.Append(std::string(Padding(layout.bytes[i], layout.alignment), '\0')));
  }
  return file.Commit();
}

}  // namespace internal

Status WriteTextFile(const std::string& path, std::string_view text) {
  TALLY_ASSIGN_OR_RETURN(internal::OutputFile file, internal::OutputFile::Create(path, text.size()));
  TALLY_RETURN_IF_ERROR(file.Append(text));
  return file.Commit();
}

}  // namespace tally
