// int8 dot products of block-quantised weights with int8 activations.
//
// Per block of 32 k: d = sum q_w q_x exactly, in int32; then acc = fma(float(d), w_scale * x_scale, acc), blocks in order. The
// integers are exact whatever the instructions, so every target with a fused multiply-add gives the same bits.
//   targets with a u8 x s8 dot product (VNNI): weights as u8 = q + offset, d starts at the activations' correction
//   others, by maddubs and sums in 16 bits, widened once a block: 4-bit types as u8 = q + offset, the sums starting at the
//   activations' pair correction: they may wrap on the way, and end at sum(q_w q_x), which fits (12 * 127 * 16 < 2^15). Q8_0 as
//   maddubs(|w|, sign(x, w)) (128 * 127 * 2 < 2^15), widened at every step
#include "engine/kernels/matmul/tile-inl.h"

#if defined(TALLY_MATMUL_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_INT8_INL_H_
#undef TALLY_MATMUL_INT8_INL_H_
#else
#define TALLY_MATMUL_INT8_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
inline constexpr bool kHasDot = true;
#else
inline constexpr bool kHasDot = false;
#endif
// Tokens per microkernel call: as many sums as there are registers for.
template <class F>
inline constexpr int kInt8SubTile = kHasDot        ? 6
                                    : kLanes >= 16 ? 4
                                    : F::kWide     ? 3
                                                   : 6;

// A block's eight steps of k, four bytes for each of 16 rows, are taken in pairs: those that a nibble format has in the same bytes, and
// neighbours where each byte is one weight, so that a block is read from front to back. StepOf(c, h): half h of pair c.
template <class F>
constexpr size_t StepOf(int c, int h) {
  return static_cast<size_t>(F::kWide ? 2 * c + h : c + 4 * h);
}

struct FormatQ8_0 {
  static constexpr int kScaleBytes = 32, kQuantBytes = 512, kBlockBytes = 544;
  static constexpr bool kWide = true;  // too wide for sums in 16 bits
  static HWY_INLINE VF Scale(const uint8_t* s) {
    const hn::Rebind<uint16_t, DF> d16;
    return WidenF16(DF(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(s)));
  }
  static HWY_INLINE const uint8_t* ScaleOf(const uint8_t* s, int v) { return s + 2 * kLanes * v; }
  // Pair c of a block's steps, vector v.
  static HWY_INLINE void Steps(const uint8_t* q, int c, int v, VU8& lo, VU8& hi) {
    const DU8 du8;
    lo = hn::LoadU(du8, q + 128 * c + kVecBytes * v);
    hi = hn::LoadU(du8, q + 128 * c + 64 + kVecBytes * v);
  }
};

struct NibbleFormat {
  static constexpr int kQuantBytes = 256;
  static constexpr bool kWide = false;
  static HWY_INLINE void Nibbles(const uint8_t* q, int c, int v, VU8& lo, VU8& hi) {
    const DU8 du8;
    const hn::Repartition<uint16_t, DU8> du16;
    const VU8 mask = hn::Set(du8, 15);
    const VU8 x = hn::LoadU(du8, q + 64 * c + kVecBytes * v);
    lo = hn::And(x, mask);
    hi = hn::And(hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, x))), mask);
  }
};

struct FormatQ4_0 : NibbleFormat {
  static constexpr int kScaleBytes = 32, kBlockBytes = 288;
  static HWY_INLINE VF Scale(const uint8_t* s) { return FormatQ8_0::Scale(s); }
  static HWY_INLINE const uint8_t* ScaleOf(const uint8_t* s, int v) { return s + 2 * kLanes * v; }
  static HWY_INLINE void Steps(const uint8_t* q, int c, int v, VU8& lo, VU8& hi) { Nibbles(q, c, v, lo, hi); }
};

struct FormatMXFP4 : NibbleFormat {
  static constexpr int kScaleBytes = 16, kBlockBytes = 272;
  static HWY_INLINE VF Scale(const uint8_t* s) {  // 2^(e - 127); e = 0: 2^-127; 255: NaN
    const DF df;
    const DI di;
    const hn::Rebind<uint8_t, DF> du8;
    const VI e = hn::PromoteTo(di, hn::LoadU(du8, s));
    VI bits = hn::ShiftLeft<23>(e);
    bits = hn::IfThenElse(hn::Eq(e, hn::Zero(di)), hn::Set(di, 0x00400000), bits);
    bits = hn::IfThenElse(hn::Eq(e, hn::Set(di, 255)), hn::Set(di, 0x7fc00000), bits);
    return hn::BitCast(df, bits);
  }
  static HWY_INLINE const uint8_t* ScaleOf(const uint8_t* s, int v) { return s + kLanes * v; }
  static HWY_INLINE void Steps(const uint8_t* q, int c, int v, VU8& lo, VU8& hi) {
    alignas(16) static constexpr uint8_t kTwiceE2M1Plus12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    const VU8 table = hn::LoadDup128(DU8(), kTwiceE2M1Plus12);
    Nibbles(q, c, v, lo, hi);
    lo = hn::TableLookupBytes(table, lo);
    hi = hn::TableLookupBytes(table, hi);
  }
};

// Where a microkernel takes a panel's blocks from: as packed, or decoded into scratch ([8][64] bytes and 16 f32 scales a block).
template <class F>
struct PackedSource {
  const uint8_t* p;
  HWY_INLINE VF Scale(int v) const { return F::Scale(F::ScaleOf(p, v)); }
  HWY_INLINE void Steps(int c, int v, VU8& lo, VU8& hi) const { F::Steps(p + F::kScaleBytes, c, v, lo, hi); }
  HWY_INLINE VU8 Step(int k, int v) const {
    VU8 lo, hi;
    Steps(F::kWide ? k / 2 : k % 4, v, lo, hi);
    return (F::kWide ? k % 2 : k / 4) == 0 ? lo : hi;  // the other one is not computed: k is a constant once unrolled
  }
  HWY_INLINE void Signed(int k, int v, VU8& magnitude, hn::Vec<DI8>& w) const {
    w = hn::BitCast(DI8(), hn::Xor(Step(k, v), hn::Set(DU8(), 0x80)));
    magnitude = hn::BitCast(DU8(), hn::Abs(w));  // |-128| = 128 as unsigned
  }
  HWY_INLINE void Prefetch() const { HWY_UNROLL(9) for (int i = 0; i < F::kBlockBytes; i += 64) PrefetchStream(p + i); }
  HWY_INLINE void Next() { p += F::kBlockBytes; }
};

// Q8_0 without a dot product is decoded to |w| and w.
template <class F>
inline constexpr bool kDecodedSigned = F::kWide && !kHasDot;
// Bytes of a decoded block: [8][64] u8, and where signed [8][64] i8 more.
template <class F>
inline constexpr int kDecodedBytes = kDecodedSigned<F> ? 1024 : 512;

template <class F>
struct DecodedSource {
  const uint8_t* q;
  const float* s;
  HWY_INLINE VF Scale(int v) const { return hn::Load(DF(), s + kLanes * v); }
  HWY_INLINE void Steps(int c, int v, VU8& lo, VU8& hi) const {
    lo = hn::Load(DU8(), q + 64 * StepOf<F>(c, 0) + kVecBytes * v);
    hi = hn::Load(DU8(), q + 64 * StepOf<F>(c, 1) + kVecBytes * v);
  }
  HWY_INLINE VU8 Step(int k, int v) const { return hn::Load(DU8(), q + 64 * k + kVecBytes * v); }
  HWY_INLINE void Signed(int k, int v, VU8& magnitude, hn::Vec<DI8>& w) const {
    magnitude = Step(k, v);
    w = hn::BitCast(DI8(), hn::Load(DU8(), q + 512 + 64 * k + kVecBytes * v));
  }
  HWY_INLINE void Prefetch() const {}
  HWY_INLINE void Next() {
    q += kDecodedBytes<F>;
    s += kPanelRows;
  }
};

template <class F>
void DecodePanel(const uint8_t* panel, int64_t blocks, uint8_t* HWY_RESTRICT q, float* HWY_RESTRICT s) {
  const DU8 du8;
  PackedSource<F> src{panel};
  for (int64_t b = 0; b < blocks; ++b, src.Next(), q += kDecodedBytes<F>, s += kPanelRows) {
    src.Prefetch();
    for (int v = 0; v < kPanelVecs; ++v) {
      hn::Store(src.Scale(v), DF(), s + kLanes * v);
      HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
        const VU8 w = src.Step(k, v);
        uint8_t* to = q + 64 * k + kVecBytes * v;
        if constexpr (kDecodedSigned<F>) {
          const auto q8 = hn::BitCast(DI8(), hn::Xor(w, hn::Set(du8, 0x80)));
          hn::Store(hn::BitCast(du8, hn::Abs(q8)), du8, to);  // |-128| = 128 as unsigned
          hn::Store(hn::BitCast(du8, q8), du8, to + 512);
        } else {
          hn::Store(w, du8, to);
        }
      }
    }
  }
}

HWY_INLINE VI Broadcast4(const uint8_t* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof(v));
  return hn::Set(DI(), v);
}

// P panels times a tile of T rows. acc: [T][32] f32, of which panel p's 16 columns begin at 16 p.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
template <class F, class Src, int P, int T>
HWY_NOINLINE void Int8Micro(const Src* sources, const uint8_t* HWY_RESTRICT a, int64_t blocks, float* HWY_RESTRICT acc,
                            const uint8_t* far) {
  static_assert(kPanelVecs == 1);
  const DF df;
  const DI di;
  Src src[P];
  VF f[P][T];
  HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
    src[p] = sources[p];
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) f[p][j] = hn::Zero(df);
  }
  constexpr size_t step = 4 * T;
  constexpr bool kTwoChains = P * T <= 2;  // so few sums that dot products would wait for one another
  for (int64_t b = 0; b < blocks; ++b, a += kInt8BlockBytes / 4 * step) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Prefetch();
    if (far != nullptr) PrefetchFar(far + 64 * b);
    VI d[P][T], e[P][T];
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        d[p][j] = Broadcast4(a + 9 * step + 4 * j);
        e[p][j] = hn::Zero(di);
      }
    }
    HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
      VU8 lo[P], hi[P];
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Steps(c, 0, lo[p], hi[p]);
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a + StepOf<F>(c, 0) * step + 4 * j));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) d[p][j] = hn::SumOfMulQuadAccumulate(di, lo[p], x, d[p][j]);
      }
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a + StepOf<F>(c, 1) * step + 4 * j));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
          VI& sum = kTwoChains ? e[p][j] : d[p][j];
          sum = hn::SumOfMulQuadAccumulate(di, hi[p], x, sum);
        }
      }
    }
    VF w[P];
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) w[p] = src[p].Scale(0);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const VF xs = hn::BitCast(df, Broadcast4(a + 8 * step + 4 * j));
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
        const VI sum = kTwoChains ? hn::Add(d[p][j], e[p][j]) : d[p][j];
        f[p][j] = hn::MulAdd(hn::ConvertTo(df, sum), hn::Mul(w[p], xs), f[p][j]);
      }
    }
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Next();
  }
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) hn::StoreU(f[p][j], df, acc + 32 * j + kPanelRows * p);
  }
}
// A whole tile of `tile` rows (<= 6). acc: [tile][32], of which the panels' columns are written.
template <class F, int P, class Src>
HWY_INLINE void Int8Tile(const Src (&sources)[P], const uint8_t* a, int tile, int64_t blocks, float* acc, const uint8_t* far) {
  WithSubTile<kInt8SubTile<F>>(tile, [&]<int T>() HWY_ATTR { Int8Micro<F, Src, P, T>(sources, a, blocks, acc, far); });
}

// Few rows: one panel as packed. acc: [rows][32].
template <class F>
HWY_INLINE void StreamInt8Panel(const uint8_t* panel, const uint8_t* a, int rows, int64_t blocks, float* acc) {
  const PackedSource<F> one[] = {{panel}};
  Int8Tile<F>(one, a, rows, blocks, acc, nullptr);
}

// Many rows: two panels, decoded once.
template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                  std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  const int64_t blocks = job.w.cols / 32;
  const size_t row_bytes = job.x.row_bytes();
  alignas(64) float acc[kTile * 32];
  uint8_t* q0 = scratch.data();
  uint8_t* q1 = q0 + blocks * 512;
  float* s0 = reinterpret_cast<float*>(q1 + blocks * 512);
  float* s1 = s0 + blocks * kPanelRows;
  DecodePanel<F>(panels.p0, blocks, q0, s0);
  DecodePanel<F>(panels.p1, blocks, q1, s1);
  const DecodedSource<F> both[] = {{q0, s0}, {q1, s1}};
  for (int64_t r = 0; r < group.rows; r += kTile) {
    const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
    const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
    // While this pair is multiplied, the next one is fetched, a line a block.
    const size_t fetched = static_cast<size_t>(r / kTile) * static_cast<size_t>(blocks) * 64;
    Int8Tile<F>(both, a, tile, blocks, acc, panels.NextAt(job, fetched));
    for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
  }
}
#else
// What was stored is stored: keeps GCC from carrying sums over a loop in registers it does not have.
HWY_INLINE void KeepInMemory() {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" ::: "memory");
#endif
}

// Vectors of rows that share each broadcast activation.
inline constexpr int kDotVecs = kPanelVecs >= 2 ? 2 : 1;

// Adds the products of u8 weights and a block's activations (at x, of T tokens) into 16-bit sums of pairs. weights(k, i): step k of
// vector i. 16 + 16 products meet in a lane's two sums.
template <int T, class WeightFn>
HWY_INLINE void NarrowDot(const WeightFn& weights, const uint8_t* HWY_RESTRICT x, size_t step,
                          hn::Vec<DI16> (&sum)[T][kDotVecs]) {
  HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
    VU8 w[kDotVecs];
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) w[i] = weights(k, i);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const auto a = hn::BitCast(DI8(), Broadcast4(x + static_cast<size_t>(k) * step + 4 * j));
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
        sum[j][i] = hn::Add(sum[j][i], hn::SatWidenMulPairwiseAdd(DI16(), w[i], a));
        Pin(sum[j][i]);
      }
    }
  }
}

// d += sum of q_w q_x over a block, for weights of 8 bits: |w| as u8 times the activations with w's sign.
// weights(k, i, magnitude, w): step k of vector i.
template <int T, class WeightFn>
HWY_INLINE void SignedDot(const WeightFn& weights, const uint8_t* HWY_RESTRICT x, size_t step, VI (&d)[T][kDotVecs]) {
  const DI di;
  const DI8 di8;
  const DI16 di16;
  const auto ones = hn::Set(di16, 1);
  HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
    hn::Vec<DI8> w[kDotVecs];
    VU8 magnitude[kDotVecs];
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) weights(k, i, magnitude[i], w[i]);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const auto a = hn::BitCast(di8, Broadcast4(x + static_cast<size_t>(k) * step + 4 * j));
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
        const auto signed_a = hn::IfNegativeThenNegOrUndefIfZero(w[i], a);  // where w = 0 the magnitude is 0
        d[j][i] = hn::Add(d[j][i], hn::WidenMulPairwiseAdd(di, hn::SatWidenMulPairwiseAdd(di16, magnitude[i], signed_a), ones));
        Pin(d[j][i]);
      }
    }
  }
}

// d = sum of q_w q_x over a block of kDotVecs vectors, from vector v, and T tokens.
template <class F, class Src, int T>
HWY_INLINE void BlockDot(const Src& src, int v, const uint8_t* HWY_RESTRICT x, size_t step, VI (&d)[T][kDotVecs]) {
  if constexpr (F::kWide) {
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) d[j][i] = hn::Zero(DI());
    SignedDot<T>([&](int k, int i, VU8& magnitude, hn::Vec<DI8>& w) HWY_ATTR { src.Signed(k, v + i, magnitude, w); }, x, step, d);
  } else {
    hn::Vec<DI16> sum[T][kDotVecs];
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      sum[j][0] = hn::BitCast(DI16(), Broadcast4(x + 10 * step + 4 * j));
      if constexpr (kDotVecs == 2) sum[j][1] = sum[j][0];
    }
    NarrowDot<T>([&](int k, int i) HWY_ATTR { return src.Step(k, v + i); }, x, step, sum);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) d[j][i] = hn::WidenMulPairwiseAdd(DI(), sum[j][i], hn::Set(DI16(), 1));
    }
  }
}

// One panel times T rows of a tile over `blocks` blocks; acc [T][32], of which the panel's 16 columns are continued. They stay in
// memory (the first-level cache) while the integer sums have the registers.
template <class F, class Src, int T>
HWY_NOINLINE void Int8MicroPanel(Src src, const uint8_t* HWY_RESTRICT a, int tile, int64_t blocks, float* HWY_RESTRICT acc) {
  const DF df;
  const size_t step = static_cast<size_t>(tile) * 4;
  for (int64_t b = 0; b < blocks; ++b, a += kInt8BlockBytes / 4 * step) {
    src.Prefetch();
    HWY_UNROLL(8) for (int v = 0; v < kPanelVecs; v += kDotVecs) {
      VI d[T][kDotVecs];
      BlockDot<F, Src, T>(src, v, a, step, d);
      VF w[kDotVecs];
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) w[i] = src.Scale(v + i);
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const VF xs = hn::BitCast(df, Broadcast4(a + 8 * step + 4 * j));
        HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
          float* to = acc + 32 * j + (v + i) * kLanes;
          hn::StoreU(hn::MulAdd(hn::ConvertTo(df, d[j][i]), hn::Mul(w[i], xs), hn::LoadU(df, to)), df, to);
        }
      }
    }
    KeepInMemory();
    src.Next();
  }
}

// One panel times a whole tile, in sub-tiles that the registers can hold.
template <class F, class Src>
HWY_INLINE void Int8TilePanel(const Src& src, const uint8_t* a, int tile, int64_t blocks, float* acc) {
  for (int j = 0; j < tile;) {
    j += WithSubTile<kInt8SubTile<F>>(
        tile - j, [&]<int T>() HWY_ATTR { Int8MicroPanel<F, Src, T>(src, a + 4 * j, tile, blocks, acc + 32 * j); });
  }
}

template <class F>
HWY_INLINE void StreamInt8Panel(const uint8_t* panel, const uint8_t* a, int rows, int64_t blocks, float* acc) {
  Int8TilePanel<F>(PackedSource<F>{panel}, a, rows, blocks, acc);
}

template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                  std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  const int64_t blocks = job.w.cols / 32;
  const size_t row_bytes = job.x.row_bytes();
  // K in pieces whose decoded panel stays in the first-level cache while every tile of the group meets it. The sums go on where
  // they were: the order is the same.
  constexpr int64_t kPiece = kInt8PieceBytes / kDecodedBytes<F>;
  uint8_t* q = scratch.data();
  float* s = reinterpret_cast<float*>(q + kInt8PieceBytes);
  float* acc = s + (kInt8PieceBytes / 512) * kPanelRows;
  std::memset(acc, 0, static_cast<size_t>(group.rows) * 32 * sizeof(float));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* panel = half == 0 ? panels.p0 : panels.p1;
    for (int64_t b = 0; b < blocks; b += kPiece) {
      const int64_t n = std::min(kPiece, blocks - b);
      DecodePanel<F>(panel + static_cast<size_t>(b) * F::kBlockBytes, n, q, s);
      for (int64_t r = 0; r < group.rows; r += kTile) {
        const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
        const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes +
                           static_cast<size_t>(b) * kInt8BlockBytes * static_cast<size_t>(tile);
        Int8TilePanel<F>(DecodedSource<F>{q, s}, a, tile, n, acc + 32 * r + kPanelRows * half);
      }
    }
  }
  for (int64_t r = 0; r < group.rows; ++r) epilogue.Row(acc + 32 * r, group.row_begin + r, panels.col, panels.n);
}
#endif

template <class F>
void RunInt8(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    if (group.rows <= StreamRows(ActKind::kInt8)) {
      const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin) * job.x.row_bytes();
      StreamPanels<StreamRows(ActKind::kInt8)>(job, group, first, last, [&](const uint8_t* panel, float* acc) HWY_ATTR {
        StreamInt8Panel<F>(panel, a, static_cast<int>(group.rows), job.w.cols / 32, acc);
      });
      return;
    }
    const Epilogue epilogue(job, group.slice);
    for (int64_t pair = first; pair < last; ++pair) {
      RunInt8Group<F>(job, group, PanelPair(job, group.slice, pair), epilogue, scratch);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
