// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/packed_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/machine/parallel.h"
#include "engine/session/engine_plan.h"
#include "engine/studies/pack_source.h"
#include "engine/weights/file_tensors.h"
#include "engine/weights/packed_file.h"
#include "engine/weights/packed_writer.h"
#include "loaders/loaders.h"
#include "loaders/output_file.h"
#include "models/family.h"

namespace tally {

Result<PackPlan> PlanPack(const Inventory& source, const Shard& shard) {
  // With the layer for prediction where there is one: a run without it reads the rest.
  Result<ModelSpec> spec = ReadModelSpec(source, /*prediction=*/true);
  if (!spec.ok()) spec = ReadModelSpec(source);
  if (!spec.ok()) return spec.status();
  const Status runs = CheckRunnable(spec->recipe);
  if (!runs.ok()) return Status(runs.code(), source.path + ": " + runs.message());
  TALLY_ASSIGN_OR_RETURN(WeightPlan weights, PlanWeights(source, *spec, /*guard_page=*/0, shard));
  return PackPlan{std::move(weights), source.path};
}

Result<PackReport> WritePackedFile(const Inventory& source, const PackPlan& plan, const TensorReader& reader,
                                   const std::string& out, const PackOptions& options, const std::function<Status()>& after) {
  Team team(options.threads);
  if (!team.status().ok()) return team.status();
  TALLY_ASSIGN_OR_RETURN(const PackedLayout layout, PackedLayout::Of(plan.weights, source.path));
  const Shard& shard = plan.weights.shard;
  PackedHeader header;
  header.layout_version = kPackedLayoutVersion;
  header.family = kPackedFamily;
  header.rank = shard.rank;
  header.ranks = shard.ranks;
  header.whole_mixers = shard.whole_mixers;
  header.own_experts = shard.own_experts;
  header.weights = layout.weights();
  header.data_bytes = layout.data_bytes();
  header.sums.resize(layout.sums());
  for (const PlannedHostVector& v : plan.weights.host_vectors) {
    PackedHeader::Buffer& buffer = header.buffers.emplace_back();
    buffer.name = v.source->name;
    buffer.bytes.resize(v.source->bytes);
    TALLY_RETURN_IF_ERROR(reader.Read(*v.source, 0, buffer.bytes.size(), buffer.bytes.data()));
  }
  TALLY_ASSIGN_OR_RETURN(const std::string planned, EncodePackedHeader(source, header));
  const uint64_t data = header.data_offset, total = data + header.data_bytes;
  TALLY_ASSIGN_OR_RETURN(internal::OutputFile file, internal::OutputFile::CreateSized(out, total));
  const WritePacked write = [&](uint64_t offset, std::span<const uint8_t> bytes) { return file.WriteAt(data + offset, bytes); };
  Result<std::vector<uint64_t>> sums = PackWeights(plan.weights, layout, reader, team, write, options.progress,
                                                   options.window_bytes > 0 ? options.window_bytes : kPackWindow);
  if (!sums.ok() && sums.status().code() == StatusCode::kInterrupted) {
    return Status(StatusCode::kInterrupted, Printable(out) + ": stopped; nothing was written");
  }
  if (!sums.ok()) return sums.status();
  if (after) TALLY_RETURN_IF_ERROR(after());
  header.sums = std::move(sums).value();
  TALLY_ASSIGN_OR_RETURN(const std::string written, EncodePackedHeader(source, header));
  if (written.size() != planned.size())
    return BadInput(source.path + ": files beside the weights have changed while it was packed");
  TALLY_RETURN_IF_ERROR(file.WriteAt(0, {reinterpret_cast<const uint8_t*>(written.data()), written.size()}));
  TALLY_RETURN_IF_ERROR(file.Commit());

  PackReport report = {.weights = header.weights.size(), .bytes = total};
  for (const ExpertRecords& record : layout.records()) report.experts += static_cast<uint64_t>(record.experts);
  for (const InventoryFile& f : source.files) report.source_bytes += f.size;
  return report;
}

Result<PackReport> PackShard(const std::string& path, const std::string& out, const PackOptions& options, const Shard& shard) {
  TALLY_ASSIGN_OR_RETURN(const Inventory source, ReadCheckpoint(path));
  if (source.packed != nullptr) return BadInput(Printable(path) + ": is packed already");
  TALLY_ASSIGN_OR_RETURN(const PackPlan plan, PlanPack(source, shard));
  std::vector<FileReader> files;
  for (const InventoryFile& f : source.files) {
    std::error_code error;
    if (std::filesystem::equivalent(f.path, out, error))
      return BadInput(Printable(out) + ": is read from: it would be overwritten");
    TALLY_ASSIGN_OR_RETURN(FileReader file, FileReader::Open(f.path));
    TALLY_RETURN_IF_ERROR(file.CheckUnchanged(f));
    files.push_back(std::move(file));
  }
  const FileTensors reader(files, plan.weights, /*forget=*/true);
  return WritePackedFile(source, plan, reader, out, options, [&]() -> Status {
    for (size_t i = 0; i < files.size(); ++i) TALLY_RETURN_IF_ERROR(files[i].CheckUnchanged(source.files[i]));
    return {};
  });
}

Result<PackReport> PackModel(const std::string& path, const std::string& out, const PackOptions& options) {
  return PackShard(path, out, options, {});
}

}  // namespace tally
