// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/values.h"

namespace tally {

Value BytesJson(const Cost& cost) {
  Value bytes = Value::Object();
  for (size_t k = 0; k < kByteKindNames.size(); ++k) {
    bytes[kByteKindNames[k]] = cost.Bytes(static_cast<ByteKind>(k));
  }
  return bytes;
}

Value FlopsByClass(const Cost& cost) {
  Value classes = Value::Object();
  for (size_t c = 0; c < kWorkClassNames.size(); ++c) {
    const uint64_t flops = cost.Flops(static_cast<WorkClass>(c));
    if (flops > 0) classes[kWorkClassNames[c]] = flops;
  }
  return classes;
}

Value NotRunJson(const books::NotRun& n) {
  return {{"tensors", n.tensors}, {"parameters", n.parameters}, {"bytes", n.bytes}, {"names", n.names}};
}

Value ParametersJson(const books::RunFigures& f) {
  return {{"total", f.parameters.total},
          {"total_as_stored", f.parameters.total + f.head_copy},
          {"touched", Number(f.touched_per_decode_step)},
          {"touched_in_run", f.touched_in_run},
          {"active", {{"all", f.parameters.active_all}, {"head", f.parameters.active_head}, {"none", f.parameters.active_none}}}};
}

}  // namespace tally
