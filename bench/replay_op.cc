#include "bench/replay_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/embed.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"
#include "engine/machine/machine.h"
#include "engine/weights/weights.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// What is wrong with a line; caught in BuildReplay.
struct Unusable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Kind, class Names>
Kind Named(const Names& names, const std::string& name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Kind>(i);
  }
  throw Unusable("unknown word " + Quote(name));
}

DType TypeNamed(const std::string& name) {
  for (const DType t : kWeightTypes) {
    if (DTypeName(t) == name) return t;
  }
  throw Unusable("weights of type " + Quote(name));
}

int64_t Checked(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) throw Unusable("a shape that is negative or too large");
  return product;
}

int32_t Index(int64_t n) {
  if (n < 0 || n >= std::numeric_limits<int32_t>::max()) throw Unusable("an index that is negative or too large");
  return static_cast<int32_t>(n);
}

// Random rows of a stored matrix.
std::vector<uint8_t> StoredRows(DType type, int64_t rows, int64_t cols, std::mt19937& random) {
  const std::optional<uint64_t> row_bytes = StoredBytes(type, static_cast<uint64_t>(cols));
  if (!row_bytes) throw Unusable(std::to_string(cols) + " columns of " + std::string(DTypeName(type)));
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * *row_bytes);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(GetDTypeInfo(type).block_size);
  for (uint8_t* at = bytes.data(); at < bytes.data() + bytes.size(); at += GetDTypeInfo(type).block_bytes) {
    for (float& v : x) v = uniform(random);
    FormatOf(type).encode(x.data(), 1, at);
  }
  return bytes;
}

// The operands of one line: looked up, allocated and filled.
class Operands {
 public:
  Operands(const Json& line, size_t weight_bytes) : line_(line), random_(17) {
    for (const Json& o : line.at("operands")) operands_[o.at("name").get<std::string>()] = &o;
    // As many copies as there is room for, of the parts of the weights that are read.
    size_t once = 0;
    for (const Json& o : line.at("operands")) {
      if (o.at("role") == "weight") once += ReadBytes(o);
    }
    copies_ = once == 0 ? 1 : std::clamp<size_t>(weight_bytes / once, 1, 64);
  }

  size_t copies() const { return copies_; }
  bool Has(const std::string& name) const { return operands_.contains(name); }
  std::vector<int64_t> Shape(const std::string& name) const { return Find(name).at("shape").get<std::vector<int64_t>>(); }
  std::string Type(const std::string& name) const { return Find(name).at("type").get<std::string>(); }
  bool InOut(const std::string& name) const { return Find(name).at("role") == "in-out"; }
  template <class T>
  T Setting(const char* name) const {
    return line_.at("settings").at(name).get<T>();
  }
  bool HasSetting(const char* name) const { return line_.at("settings").contains(name); }

  uint8_t* Bytes(int64_t n, bool huge_pages = false) {
    CheckRoom(static_cast<size_t>(n));
    auto memory = AnonymousMemory::Allocate(static_cast<size_t>(std::max<int64_t>(n, 1)), huge_pages);
    if (!memory.ok()) throw Unusable(memory.status().message());
    memory_.push_back(std::move(memory).value());
    return memory_.back().data();
  }
  Mat<float> Matrix(int64_t rows, int64_t cols) {
    const int64_t n = Checked(rows, cols);
    float* const data = reinterpret_cast<float*>(Bytes(Checked(n, 4)));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < n; ++i) data[i] = uniform(random_);
    return {data, rows, cols};
  }
  Mat<float> Matrix(const std::string& name) {
    const std::vector<int64_t> shape = Shape(name);
    if (shape.size() != 2) throw Unusable("operand " + Quote(name) + " is no matrix");
    return Matrix(shape[0], shape[1]);
  }
  std::span<int32_t> Integers(const std::vector<int64_t>& values) {
    int32_t* const data = reinterpret_cast<int32_t*>(Bytes(Checked(static_cast<int64_t>(values.size()), 4)));
    for (size_t i = 0; i < values.size(); ++i) data[i] = Index(values[i]);
    return {data, values.size()};
  }
  // The groups of a pack and the slices that they use.
  std::span<const RowGroup> Groups() {
    const auto list = Setting<std::vector<int64_t>>("groups");
    groups_.clear();
    int64_t at = 0;
    for (size_t i = 0; i + 1 < list.size(); i += 2) {
      groups_.push_back({at, list[i + 1], list[i]});
      at += list[i + 1];
    }
    return groups_;
  }

  // A weight, or an empty view where the op has none of that name. `rows`: which rows of it are read, where not all are.
  WeightView Weight(const std::string& name, bool row_major = false, std::span<const int32_t> rows = {}) {
    WeightView w;
    if (!Has(name)) return w;
    const std::vector<int64_t> shape = Shape(name);
    const bool vector = shape.size() == 2;
    if (!vector && shape.size() != 3) throw Unusable("weight " + Quote(name) + " is neither vector nor matrix");
    w.dtype = TypeNamed(Type(name));
    w.layout = vector ? WeightLayout::kVector : row_major ? WeightLayout::kRowMajor : WeightLayout::kPanel16;
    w.slices = shape[0];
    w.rows = vector ? 1 : shape[1];
    w.cols = shape.back();
    w.stored_row_bytes = Find(name).at("stored_row_bytes").get<uint64_t>();
    if (vector && w.dtype != DType::kF32) throw Unusable("vector " + Quote(name) + " is not F32");
    const int64_t pieces = w.layout == WeightLayout::kPanel16 ? w.panels() : w.rows;
    w.panel_stride = w.layout == WeightLayout::kPanel16 ? PanelBytes(w.dtype, w.cols)
                                                        : StoredBytes(w.dtype, static_cast<uint64_t>(w.cols)).value_or(0);
    w.slice_stride = static_cast<size_t>(Checked(pieces, static_cast<int64_t>(w.panel_stride)) + 4095) / 4096 * 4096;
    uint8_t* const data = Bytes(Checked(static_cast<int64_t>(w.slice_stride), w.slices), true);  // as the engine's weights
    w.data = data;
    // One panel (or row) of random values, everywhere that is read: what differs between panels changes no timing.
    const int64_t piece_rows = w.layout == WeightLayout::kPanel16 ? kPanelRows : 1;
    const std::vector<uint8_t> stored = StoredRows(w.dtype, piece_rows, w.cols, random_);
    std::vector<uint8_t> piece(w.panel_stride);
    if (w.layout == WeightLayout::kPanel16) {
      PackRows(w.dtype, w.layout, piece_rows, w.cols, 0, piece_rows, stored.data(), piece.data());
    } else {
      piece = stored;
    }
    const auto fill = [&](int64_t slice, int64_t i) {
      if (slice < 0 || slice >= w.slices || i < 0 || i >= pieces) throw Unusable("a row beyond weight " + Quote(name));
      std::memcpy(data + static_cast<size_t>(slice) * w.slice_stride + static_cast<size_t>(i) * w.panel_stride, piece.data(),
                  piece.size());
    };
    if (!rows.empty()) {
      for (const int32_t r : rows) fill(0, r / piece_rows);
    } else {
      for (const int64_t slice : Slices()) {
        for (int64_t i = 0; i < pieces; ++i) fill(slice, i);
      }
    }
    return w;
  }

  // x as the matrix kernels take it, for a weight of type `type`; rows and columns from operand `name`.
  ActPack Pack(const std::string& name, DType type) {
    const std::vector<int64_t> shape = Shape(name);
    if (shape.size() != 2) throw Unusable("operand " + Quote(name) + " is no matrix");
    ActPack pack;
    pack.format = ActFormatFor(type, Named<ActKind>(kActKindNames, Type(name)));
    pack.rows = shape[0];
    pack.cols = shape[1];
    pack.data = Bytes(Checked(pack.rows, static_cast<int64_t>(pack.row_bytes())) + 64);
    pack.groups = Groups();
    return pack;
  }

  struct Cache {
    std::span<const KvRow> rows;
    std::span<const KvTable> tables;
    int64_t kv_heads = 0, head_dim = 0;
    KvType type = KvType::kF32;
    std::span<uint8_t> bytes;
  };
  Cache KeysAndValues() {
    Cache cache;
    const std::vector<int64_t> shape = Shape("cache");
    if (shape.size() != 3) throw Unusable("a cache that is not [2, kv_heads, head_dim]");
    cache.kv_heads = shape[1];
    cache.head_dim = shape[2];
    cache.type = Named<KvType>(kKvTypeNames, Type("cache"));
    const auto list = Setting<std::vector<int64_t>>("rows");
    int64_t tables = 0, last = 0;
    for (size_t i = 0; i + 1 < list.size(); i += 2) {
      rows_.push_back({Index(list[i]), Index(list[i + 1])});
      tables = std::max(tables, list[i] + 1);
      last = std::max(last, list[i + 1]);
    }
    const int64_t blocks = last / kKvBlock + 1;
    const int64_t block_bytes = static_cast<int64_t>(KvBlockBytes(cache.type, cache.kv_heads, cache.head_dim));
    const int64_t all = Checked(Checked(tables, blocks), block_bytes);
    uint8_t* const data = Bytes(all);
    std::uniform_real_distribution<float> uniform(-1, 1);
    if (cache.type == KvType::kF32) {
      for (int64_t i = 0; i < all / 4; ++i) reinterpret_cast<float*>(data)[i] = uniform(random_);
    } else {
      for (int64_t i = 0; i < all / 2; ++i) reinterpret_cast<uint16_t*>(data)[i] = F32ToF16(uniform(random_));
    }
    for (int64_t i = 0; i < tables * blocks; ++i) blocks_.push_back(data + i * block_bytes);
    for (int64_t t = 0; t < tables; ++t) tables_.push_back({blocks_.data() + t * blocks, blocks});
    cache.rows = rows_;
    cache.tables = tables_;
    cache.bytes = {data, static_cast<size_t>(all)};
    return cache;
  }

 private:
  const Json& Find(const std::string& name) const {
    const auto at = operands_.find(name);
    if (at == operands_.end()) throw Unusable("no operand " + Quote(name));
    return *at->second;
  }
  // Slices of the weights that are used: the groups', or the only one.
  std::vector<int64_t> Slices() const {
    if (!HasSetting("groups") || line_.at("settings").at("groups").is_number()) return {0};
    const auto list = Setting<std::vector<int64_t>>("groups");
    std::vector<int64_t> slices;
    for (size_t i = 0; i + 1 < list.size(); i += 2) {
      if (list[i + 1] > 0) slices.push_back(list[i]);
    }
    return slices;
  }
  size_t ReadBytes(const Json& operand) const {
    const auto shape = operand.at("shape").get<std::vector<int64_t>>();
    if (shape.size() != 3 || HasSetting("ids")) return 0;
    return static_cast<size_t>(Checked(shape[1], operand.at("stored_row_bytes").get<int64_t>())) * Slices().size();
  }
  void CheckRoom(size_t bytes) {
    planned_ += bytes;
    if (planned_ > (uint64_t{1} << 40)) throw Unusable("operands of more than a terabyte");
  }

  const Json& line_;
  std::mt19937 random_;
  std::map<std::string, const Json*> operands_;
  size_t copies_ = 1, planned_ = 0;
  std::vector<AnonymousMemory> memory_;
  std::vector<RowGroup> groups_;
  std::vector<KvRow> rows_;
  std::vector<uint8_t*> blocks_;
  std::vector<KvTable> tables_;
};

using Outputs = std::vector<std::span<uint8_t>>;

template <class Op>
class Replay final : public ReplayOp {
 public:
  Replay(std::unique_ptr<Operands> operands, std::vector<Op> copies, Outputs values, const Outputs& exact = {})
      : operands_(std::move(operands)), copies_(std::move(copies)), outputs_(std::move(values)), n_values_(outputs_.size()) {
    outputs_.insert(outputs_.end(), exact.begin(), exact.end());
    for (const std::span<uint8_t> out : outputs_) before_.emplace_back(out.begin(), out.end());
  }
  Status Run(Executor& executor) override { return executor.Run(Site{}, copies_[next_++ % copies_.size()]); }
  Made Output() const override {
    Made made;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::span<uint8_t> out = outputs_[i];
      if (i >= n_values_) {
        made.exact.insert(made.exact.end(), out.begin(), out.end());
      } else {
        const size_t n = made.values.size();
        made.values.resize(n + out.size() / 4);
        std::memcpy(made.values.data() + n, out.data(), out.size());
      }
    }
    return made;
  }
  void Reset() override {
    for (size_t i = 0; i < outputs_.size(); ++i) std::copy(before_[i].begin(), before_[i].end(), outputs_[i].begin());
    next_ = 0;
  }

 private:
  std::unique_ptr<Operands> operands_;
  std::vector<Op> copies_;
  Outputs outputs_;  // f32 values first
  size_t n_values_;
  std::vector<std::vector<uint8_t>> before_;
  size_t next_ = 0;
};

template <class T>
std::span<uint8_t> BytesOf(const Mat<T>& m) {
  return {reinterpret_cast<uint8_t*>(m.data), static_cast<size_t>(m.rows * m.stride) * sizeof(T)};
}

std::unique_ptr<ReplayOp> BuildEmbed(std::unique_ptr<Operands> o) {
  EmbedOp op;
  op.ids = o->Integers(o->Setting<std::vector<int64_t>>("ids"));
  op.table = o->Weight("table", o->Setting<std::string>("layout") == "row_major", op.ids);
  op.add_to_out = o->InOut("out");
  op.out = o->Matrix("out");
  const auto out = BytesOf(op.out);
  return std::make_unique<Replay<EmbedOp>>(std::move(o), std::vector{op}, Outputs{out});
}

std::unique_ptr<ReplayOp> BuildNorm(std::unique_ptr<Operands> o) {
  NormOp op;
  op.kind = Named<NormKind>(kNormKindNames, o->Setting<std::string>("kind"));
  op.groups = o->Setting<int64_t>("groups");
  op.eps = o->Setting<float>("eps");
  op.x = o->Matrix("x");
  op.weight = o->Weight("weight");
  op.bias = o->Weight("bias");
  op.out = o->Matrix("out");
  const auto out = BytesOf(op.out);
  return std::make_unique<Replay<NormOp>>(std::move(o), std::vector{op}, Outputs{out});
}

std::unique_ptr<ReplayOp> BuildPack(std::unique_ptr<Operands> o) {
  PackActOp op;
  op.x = o->Matrix("x");
  op.pack = o->Pack("pack", DType::kF32);
  op.pack.format = {op.pack.format.kind, o->Setting<int32_t>("offset"), o->Setting<float>("scale_mul")};
  if (o->HasSetting("row_index")) op.row_index = o->Integers(o->Setting<std::vector<int64_t>>("row_index"));
  const std::span<uint8_t> out(op.pack.data, static_cast<size_t>(op.pack.rows) * op.pack.row_bytes());
  return std::make_unique<Replay<PackActOp>>(std::move(o), std::vector{op}, Outputs{}, Outputs{out});
}

// Fills a pack with random activations, as the engine would.
void FillPack(Operands& o, const ActPack& pack, Team& team) {
  Executor executor(team, nullptr);
  PackActOp fill;
  fill.x = o.Matrix(pack.rows, pack.cols);
  fill.pack = pack;
  const Status status = executor.Run(Site{}, fill);
  if (!status.ok()) throw Unusable(status.message());
}

std::unique_ptr<ReplayOp> BuildMatMul(std::unique_ptr<Operands> o, Team& team) {
  std::vector<MatMulOp> copies;
  for (size_t i = 0; i < o->copies(); ++i) {
    MatMulOp op;
    if (i > 0) op = copies[0];
    op.w = o->Weight("w");
    if (i == 0) {
      op.x = o->Pack("x", op.w.dtype);
      FillPack(*o, op.x, team);
      op.bias = o->Weight("bias");
      op.activation = Named<ActivationKind>(kActivationKindNames, o->Setting<std::string>("activation"));
      op.work_class = Named<WorkClass>(kWorkClassNames, o->Setting<std::string>("work_class"));
      op.add_to_out = o->InOut("out");
      int64_t rows = op.x.rows;
      if (o->HasSetting("out_row")) {
        op.out_row = o->Integers(o->Setting<std::vector<int64_t>>("out_row"));
        for (const int32_t r : op.out_row) rows = std::max<int64_t>(rows, int64_t{r} + 1);
      }
      op.out = o->Matrix(rows, op.w.rows);
    }
    copies.push_back(op);
  }
  const auto out = BytesOf(copies[0].out);
  return std::make_unique<Replay<MatMulOp>>(std::move(o), std::move(copies), Outputs{out});
}

std::unique_ptr<ReplayOp> BuildGatedMatMul(std::unique_ptr<Operands> o, Team& team) {
  std::vector<GatedMatMulOp> copies;
  for (size_t i = 0; i < o->copies(); ++i) {
    GatedMatMulOp op;
    if (i > 0) op = copies[0];
    op.gate = o->Weight("gate");
    op.up = o->Weight("up");
    if (i == 0) {
      op.x = o->Pack("x", op.gate.dtype);
      FillPack(*o, op.x, team);
      op.gate_bias = o->Weight("gate_bias");
      op.up_bias = o->Weight("up_bias");
      op.activation = Named<ActivationKind>(kActivationKindNames, o->Setting<std::string>("activation"));
      op.swiglu_alpha = o->Setting<float>("swiglu_alpha");
      op.swiglu_limit = o->Setting<float>("swiglu_limit");
      op.out = o->Matrix(op.x.rows, op.gate.rows);
    }
    copies.push_back(op);
  }
  const auto out = BytesOf(copies[0].out);
  return std::make_unique<Replay<GatedMatMulOp>>(std::move(o), std::move(copies), Outputs{out});
}

std::unique_ptr<ReplayOp> BuildRopeTable(std::unique_ptr<Operands> o) {
  RopeTableOp op;
  op.positions = o->Integers(o->Setting<std::vector<int64_t>>("positions"));
  const std::vector<int64_t> shape = o->Shape("inv_freq");
  const Mat<float> frequencies = o->Matrix(1, shape.at(0));
  op.inv_freq = {frequencies.data, static_cast<size_t>(frequencies.cols)};
  op.magnitude = o->Setting<float>("magnitude");
  op.cos = o->Matrix("cos");
  op.sin = o->Matrix("sin");
  const std::vector outs{BytesOf(op.cos), BytesOf(op.sin)};
  return std::make_unique<Replay<RopeTableOp>>(std::move(o), std::vector{op}, outs);
}

std::unique_ptr<ReplayOp> BuildRope(std::unique_ptr<Operands> o) {
  RopeOp op;
  op.style = Named<RopeStyle>(kRopeStyleNames, o->Setting<std::string>("style"));
  op.heads = o->Setting<int64_t>("heads");
  op.head_dim = o->Setting<int64_t>("head_dim");
  op.dim = o->Setting<int64_t>("dim");
  op.x = o->Matrix("x");
  op.cos = o->Matrix("cos");
  op.sin = o->Matrix("sin");
  const auto out = BytesOf(op.x);
  return std::make_unique<Replay<RopeOp>>(std::move(o), std::vector{op}, Outputs{out});
}

std::unique_ptr<ReplayOp> BuildKvStore(std::unique_ptr<Operands> o) {
  KvStoreOp op;
  const Operands::Cache cache = o->KeysAndValues();
  op.k = o->Matrix("k");
  op.v = o->Matrix("v");
  op.kv_heads = cache.kv_heads;
  op.head_dim = cache.head_dim;
  op.type = cache.type;
  op.rows = cache.rows;
  op.tables = cache.tables;
  return std::make_unique<Replay<KvStoreOp>>(std::move(o), std::vector{op}, Outputs{}, Outputs{cache.bytes});
}

std::unique_ptr<ReplayOp> BuildAttention(std::unique_ptr<Operands> o) {
  AttentionOp op;
  const Operands::Cache cache = o->KeysAndValues();
  op.q = o->Matrix("q");
  op.out = o->Matrix("out");
  op.heads = o->Setting<int64_t>("heads");
  op.kv_heads = cache.kv_heads;
  op.head_dim = cache.head_dim;
  op.scale = o->Setting<float>("scale");
  op.window = o->Setting<int64_t>("window");
  op.sinks = o->Weight("sinks");
  op.type = cache.type;
  op.rows = cache.rows;
  op.tables = cache.tables;
  const auto out = BytesOf(op.out);
  return std::make_unique<Replay<AttentionOp>>(std::move(o), std::vector{op}, Outputs{out});
}

std::unique_ptr<ReplayOp> BuildRoute(std::unique_ptr<Operands> o) {
  RouteOp op;
  op.logits = o->Matrix("logits");
  op.rule = Named<RoutingRule>(kRoutingRuleNames, o->Setting<std::string>("rule"));
  op.weights = o->Matrix("weights");
  op.top_k = op.weights.cols;
  op.experts = {reinterpret_cast<int32_t*>(o->Bytes(4 * op.weights.rows * op.top_k)), op.weights.rows, op.top_k};
  const auto out = BytesOf(op.weights);
  return std::make_unique<Replay<RouteOp>>(std::move(o), std::vector{op}, Outputs{out}, Outputs{BytesOf(op.experts)});
}

std::unique_ptr<ReplayOp> BuildMoeCombine(std::unique_ptr<Operands> o) {
  MoeCombineOp op;
  op.y = o->Matrix("y");
  op.weights = o->Matrix("weights");
  op.out = o->Matrix("out");
  const auto out = BytesOf(op.out);
  return std::make_unique<Replay<MoeCombineOp>>(std::move(o), std::vector{op}, Outputs{out});
}

std::unique_ptr<ReplayOp> Build(const std::string& name, std::unique_ptr<Operands> o, Team& team) {
  if (name == EmbedOp::kName) return BuildEmbed(std::move(o));
  if (name == NormOp::kName) return BuildNorm(std::move(o));
  if (name == PackActOp::kName) return BuildPack(std::move(o));
  if (name == MatMulOp::kName) return BuildMatMul(std::move(o), team);
  if (name == GatedMatMulOp::kName) return BuildGatedMatMul(std::move(o), team);
  if (name == RopeTableOp::kName) return BuildRopeTable(std::move(o));
  if (name == RopeOp::kName) return BuildRope(std::move(o));
  if (name == KvStoreOp::kName) return BuildKvStore(std::move(o));
  if (name == AttentionOp::kName) return BuildAttention(std::move(o));
  if (name == RouteOp::kName) return BuildRoute(std::move(o));
  if (name == MoeCombineOp::kName) return BuildMoeCombine(std::move(o));
  throw Unusable("unknown op " + Quote(name));
}

}  // namespace

Result<std::unique_ptr<ReplayOp>> BuildReplay(const Json& line, Team& team, size_t weight_bytes) {
  try {
    return Build(line.at("op").get<std::string>(), std::make_unique<Operands>(line, weight_bytes), team);
  } catch (const Unusable& e) {
    return BadInput(e.what());
  } catch (const Json::exception& e) {
    return BadInput(std::string("not a line of a ledger: ") + e.what());
  } catch (const std::bad_alloc&) {
    return BadInput("no memory for its operands");
  }
}

double DifferenceOf(const ReplayOp::Made& got, const ReplayOp::Made& want) {
  if (got.values.size() != want.values.size() || got.exact != want.exact) return INFINITY;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < got.values.size(); ++i) {
    const double a = static_cast<double>(got.values[i]), b = static_cast<double>(want.values[i]);
    if (std::isnan(a) != std::isnan(b)) return INFINITY;
    largest = std::max(largest, std::fabs(b));
    difference = std::max(difference, std::fabs(a - b));
  }
  return largest > 0 ? difference / largest : difference;
}

std::string CostDifference(const Cost& useful, const Json& line) {
  const Json &flops = line.at("useful").at("flops"), &special = line.at("useful").at("special"), &bytes = line.at("bytes");
  const auto logged = [](const Json& object, std::string_view name) { return object.value(std::string(name), uint64_t{0}); };
  std::string text;
  const auto compare = [&](const std::string& what, uint64_t charged, uint64_t said) {
    if (charged == said || !text.empty()) return;
    text = what + ": charged " + std::to_string(charged) + ", logged " + std::to_string(said);
  };
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass work_class = static_cast<WorkClass>(c);
    const std::string name(kWorkClassNames[static_cast<size_t>(c)]);
    const Json by_type = flops.value(name, Json::object());
    for (int a = 0; a < kAriths; ++a) {
      const std::string_view type = kArithNames[static_cast<size_t>(a)];
      compare(name + " " + std::string(type), useful.Flops(work_class, static_cast<Arith>(a)), logged(by_type, type));
    }
    compare(name + " special", useful.Special(work_class), logged(special, name));
  }
  for (int k = 0; k < kByteKinds; ++k) {
    const std::string_view name = kByteKindNames[static_cast<size_t>(k)];
    compare("bytes, " + std::string(name), useful.Bytes(static_cast<ByteKind>(k)), logged(bytes, name));
  }
  return text;
}

}  // namespace tally
