// SPDX-License-Identifier: Apache-2.0
// int8 products by Arm's dot products (CurrentByteDot()). The weights are signed where that costs nothing: the bits are those of every
// target with a fused multiply-add. Included by int8-inl.h only.
//   SDOT   4 rows of weights times one of activations, 4 k. For few rows, and where there is no SMMLA
//   SMMLA  2 rows of weights times 2 of activations, 8 k. For many rows, whose activations are in runs of 8 bytes (act_pack.h)
HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// A panel as packed has u8 = q + offset. Wide ones have an offset of 128 and become signed by flipping a bit; narrow ones are below 128,
// and the sum starts at the activations' correction. Decoded ones are q.
enum class ArmWeights { kWide, kNarrow, kDecoded };
template <class F>
inline constexpr ArmWeights kArmPacked = F::kWide ? ArmWeights::kWide : ArmWeights::kNarrow;
template <class F>
inline constexpr int kArmOffset = F::kWide ? 128 : F::kInt8.offset;

// Vectors of a panel that T rows are multiplied by at once, so that 32 registers hold their sums: V * T * (1 + sums) and the operands.
template <class F, int T>
inline constexpr int kArmVecs = kParts<F> == 1 ? (T <= 2 ? 4 : 2)
                                               : (T == 1   ? 4
                                                  : T <= 4 ? 2
                                                           : 1);

// Sums below 2^22, those of blocks with one scale, start at the bits of 1.5 * 2^23: the sum's bits are then those of 1.5 * 2^23 plus the
// integer, and a subtraction converts it, of which a processor does two to four times as many as of SCVTF. The start is loaded each time:
// a copy between registers would take the place of a product.
template <class F>
inline constexpr bool kArmFloatSums = kParts<F> == 1;
inline constexpr float kArmSumStart = 0x1.8p23f;
alignas(16) inline constexpr float kArmSumStarts[4] = {kArmSumStart, kArmSumStart, kArmSumStart, kArmSumStart};

template <class F>
HWY_INLINE VI ArmSum() {
  if constexpr (!kArmFloatSums<F>) return hn::Zero(DI());
  VI v = hn::Undefined(DI());
  asm volatile("ldr %q0, %1" : "=w"(v.raw) : "m"(kArmSumStarts));
  return v;
}
template <class F>
HWY_INLINE VI ArmSumFrom(const uint8_t* correction) {
  const VI c = Broadcast4(correction);
  return kArmFloatSums<F> ? hn::Add(c, hn::BitCast(DI(), hn::Set(DF(), kArmSumStart))) : c;
}
template <class F>
HWY_INLINE VF ArmSumToFloat(VI sum) {
  const DF df;
  if constexpr (kArmFloatSums<F>) return hn::Sub(hn::BitCast(df, sum), hn::Set(df, kArmSumStart));
  return hn::ConvertTo(df, sum);
}

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")

// Vectors v0 to v0 + V - 1 of a panel times a whole tile of T rows. acc: [T][32]; 4 V columns are written.
template <class F, ArmWeights kWeights, class Src, int T, int V>
HWY_NOINLINE void SdotMicro(Src src, int v0, const uint8_t* HWY_RESTRICT a, int64_t blocks, float* HWY_RESTRICT acc) {
  const DF df;
  const DI di;
  constexpr size_t kStep = 4 * T;
  constexpr bool kPaired = kWeights != ArmWeights::kDecoded && !F::kByteSteps;  // steps c and c + 4 are read from the same bytes
  constexpr bool kStart = kWeights == ArmWeights::kNarrow && F::kInt8.offset != 0;
  static_assert(!F::kWide || F::kInt8.offset == 128);
  VF f[T][V];
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) HWY_UNROLL(4) for (int i = 0; i < V; ++i) f[j][i] = hn::Zero(df);
  for (int64_t b = 0; b < blocks; ++b, a += kBlockWords<F> * kStep) {
    if (v0 == 0) src.template Begin<(T > 4)>();
    if (v0 != 0) src.Again();
    VI d[T][V], e[T][V];
    HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
      HWY_UNROLL(4) for (int i = 0; i < V; ++i) {
        d[j][i] = kStart ? ArmSumFrom<F>(a + kCorrectionsAt * kStep + 4 * j) : ArmSum<F>();
        if constexpr (kParts<F> == 2) e[j][i] = kStart ? ArmSumFrom<F>(a + (kCorrectionsAt + 1) * kStep + 4 * j) : ArmSum<F>();
      }
    }
    // Words of activations, [8][T], are read in vectors of 4; the compiler loads each once.
    const auto signed_of = [](VU8 w) HWY_ATTR {
      return hn::BitCast(DI(), kWeights == ArmWeights::kWide ? hn::Xor(w, hn::Set(DU8(), 0x80)) : w);
    };
    const int32_t* const words = reinterpret_cast<const int32_t*>(a);
    if constexpr (kPaired) {
      HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
        VI lo[V], hi[V];
        HWY_UNROLL(4) for (int i = 0; i < V; ++i) {
          VU8 first, second;
          src.Steps(c, v0 + i, first, second);
          lo[i] = signed_of(first);
          hi[i] = signed_of(second);
        }
        HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
          const int word = c * T + j;
          const VI x_lo = hn::LoadU(di, words + word / 4 * 4), x_hi = hn::LoadU(di, words + word / 4 * 4 + 4 * T);
          HWY_UNROLL(4) for (int i = 0; i < V; ++i) {
            d[j][i] = SdotLane(d[j][i], lo[i], x_lo, word % 4);
            VI& sum = kParts<F> == 2 ? e[j][i] : d[j][i];
            sum = SdotLane(sum, hi[i], x_hi, word % 4);
          }
        }
      }
    } else {
      HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
        VI w[V];
        HWY_UNROLL(4) for (int i = 0; i < V; ++i) w[i] = signed_of(src.Step(k, v0 + i));
        HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
          const int word = k * T + j;
          const VI x = hn::LoadU(di, words + word / 4 * 4);
          HWY_UNROLL(4) for (int i = 0; i < V; ++i) {
            VI& sum = kParts<F> == 2 && k >= 4 ? e[j][i] : d[j][i];
            sum = SdotLane(sum, w[i], x, word % 4);
          }
        }
      }
    }
    BlockScales<F> w[V];
    HWY_UNROLL(4) for (int i = 0; i < V; ++i) w[i].Read(src, v0 + i);
    const float* const factors = reinterpret_cast<const float*>(a) + kScalesAt * T;  // [1 + minima][T]
    HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
      HWY_UNROLL(4) for (int i = 0; i < V; ++i) {
        VI sum = d[j][i];
        if constexpr (kParts<F> == 2) sum = hn::Add(hn::Mul(sum, w[i].part[0]), hn::Mul(e[j][i], w[i].part[1]));
        const VF xs = Lane(hn::LoadU(df, factors + j / 4 * 4), j % 4);
        f[j][i] = hn::MulAdd(ArmSumToFloat<F>(sum), hn::Mul(w[i].scale, xs), f[j][i]);
        HWY_UNROLL(2) for (int m = 0; m < kMinima<F>; ++m) {
          const int word = (1 + m) * T + j;
          f[j][i] = hn::MulAdd(w[i].minimum[m], Lane(hn::LoadU(df, factors + word / 4 * 4), word % 4), f[j][i]);
        }
      }
    }
    src.Next();
  }
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(4) for (int i = 0; i < V; ++i) hn::StoreU(f[j][i], df, acc + 32 * j + kLanes * (v0 + i));
  }
}

#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")

// P pairs of a panel's rows from pair p0 on times a tile of `rows` rows, R pairs. q, s: a panel decoded by DecodePairs. acc: [2 R][32]; 2 P
// columns are written, those of a row beyond the last too.
template <class F, int R, int P>
HWY_NOINLINE void SmmlaMicro(const uint8_t* HWY_RESTRICT q, const float* HWY_RESTRICT s, int p0, const uint8_t* HWY_RESTRICT a,
                             int rows, int64_t blocks, float* HWY_RESTRICT acc) {
  const DF df;
  const DI di;
  const size_t step = 4 * static_cast<size_t>(rows);
  q += 16 * p0;
  s += 4 * p0;
  VF f[R][P];
  HWY_UNROLL(3) for (int r = 0; r < R; ++r) HWY_UNROLL(4) for (int p = 0; p < P; ++p) f[r][p] = hn::Zero(df);
  for (int64_t b = 0; b < blocks; ++b, q += 512, s += 2 * kPanelRows * F::kScaleWords, a += kBlockWords<F> * step) {
    VI d[R][P], e[R][P];
    HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
      HWY_UNROLL(4) for (int p = 0; p < P; ++p) {
        d[r][p] = ArmSum<F>();
        if constexpr (kParts<F> == 2) e[r][p] = hn::Zero(di);
      }
    }
    const uint8_t* run = a;
    HWY_UNROLL(4) for (int o = 0; o < 4; ++o, run += 2 * step) {
      VI x[R];
      HWY_UNROLL(3) for (int r = 0; r < R; ++r) x[r] = hn::LoadU(di, reinterpret_cast<const int32_t*>(run + 16 * r));
      HWY_UNROLL(4) for (int p = 0; p < P; ++p) {
        const VI w = hn::LoadU(di, reinterpret_cast<const int32_t*>(q + 128 * o + 16 * p));
        HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
          VI& sum = kParts<F> == 2 && o >= 2 ? e[r][p] : d[r][p];
          sum = Smmla(sum, x[r], w);
        }
      }
    }
    // The rows' factor i as the sums lie: x0 x0 x1 x1.
    const auto factor = [&](size_t i, int r) HWY_ATTR {
      const VF both = hn::LoadU(df, reinterpret_cast<const float*>(a + (kScalesAt + i) * step) + 2 * r);
      return hn::InterleaveLower(df, both, both);
    };
    HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
      const VF xs = factor(0, r);
      HWY_UNROLL(4) for (int p = 0; p < P; ++p) {
        const auto word = [&](int i) HWY_ATTR { return hn::Load(df, s + 2 * kPanelRows * i + 4 * p); };
        VI sum = d[r][p];
        if constexpr (kParts<F> == 2) {
          sum = hn::Add(hn::Mul(sum, hn::BitCast(di, word(1))), hn::Mul(e[r][p], hn::BitCast(di, word(2))));
        }
        f[r][p] = hn::MulAdd(ArmSumToFloat<F>(sum), hn::Mul(word(0), xs), f[r][p]);
        HWY_UNROLL(2) for (int m = 0; m < kMinima<F>; ++m) {
          f[r][p] = hn::MulAdd(word(kMinimumWord<F> + m), factor(1 + static_cast<size_t>(m), r), f[r][p]);
        }
      }
    }
  }
  HWY_UNROLL(3) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(4) for (int p = 0; p < P; p += 2) {
      float* const to = acc + 64 * r + 2 * (p0 + p);
      hn::StoreU(hn::ConcatLowerLower(df, f[r][p + 1], f[r][p]), df, to);
      hn::StoreU(hn::ConcatUpperUpper(df, f[r][p + 1], f[r][p]), df, to + 32);
    }
  }
}

#pragma GCC pop_options

// Decodes all blocks of a panel to [8][64] i8 and [kScaleWords][16] words; with kPairs for SmmlaMicro, to [4][8 pairs of rows][2][8] i8 and
// [kScaleWords][8 pairs][2][2] words.
template <class F, bool kPairs>
void DecodeSigned(const uint8_t* panel, int64_t blocks, uint8_t* HWY_RESTRICT q, float* HWY_RESTRICT s) {
  const DF df;
  const DI di;
  const DU8 d8;
  PackedSource<F> src{F::At(panel, 0)};
  const auto signed_of = [&](VU8 w) HWY_ATTR { return hn::BitCast(di, hn::Sub(w, hn::Set(d8, kArmOffset<F>))); };
  for (int64_t b = 0; b < blocks; ++b, src.Next(), q += 512, s += (kPairs ? 2 : 1) * kPanelRows * F::kScaleWords) {
    src.Begin();
    for (int v = 0; v < kPanelVecs; ++v) {
      HWY_UNROLL(4) for (int i = 0; i < F::kScaleWords; ++i) {
        const VF w = src.Word(i, v);
        if constexpr (kPairs) {
          float* const to = s + 2 * kPanelRows * i + 8 * v;
          hn::Store(hn::ConcatLowerLower(df, w, w), df, to);
          hn::Store(hn::ConcatUpperUpper(df, w, w), df, to + 4);
        } else {
          hn::Store(w, df, s + kPanelRows * i + kLanes * v);
        }
      }
      int32_t* const to = reinterpret_cast<int32_t*>(q);
      HWY_UNROLL(4) for (int o = 0; o < 4; ++o) {
        const VI first = signed_of(src.Step(2 * o, v)), second = signed_of(src.Step(2 * o + 1, v));
        if constexpr (kPairs) {
          hn::Store(hn::InterleaveLower(di, first, second), di, to + 32 * o + 8 * v);
          hn::Store(hn::InterleaveUpper(di, first, second), di, to + 32 * o + 8 * v + 4);
        } else {
          hn::Store(first, di, to + 32 * o + 4 * v);
          hn::Store(second, di, to + 32 * o + 16 + 4 * v);
        }
      }
    }
  }
}

// One panel times a whole tile of `tile` rows (<= 6). acc: [tile][32].
template <class F, ArmWeights kWeights, class Src>
HWY_INLINE void SdotTile(const Src& src, const uint8_t* a, int tile, int64_t blocks, float* acc) {
  WithSubTile<6>(tile, [&]<int T>() {
    constexpr int V = kArmVecs<F, T>;
    for (int v = 0; v < kPanelVecs; v += V) SdotMicro<F, kWeights, Src, T, V>(src, v, a, blocks, acc);
  });
}

template <class F>
HWY_INLINE void SmmlaTile(const uint8_t* q, const float* s, const uint8_t* a, int tile, int64_t blocks, float* acc) {
  constexpr int P = kParts<F> == 1 ? 4 : 2;
  WithSubTile<3>((tile + 1) / 2, [&]<int R>() {
    for (int p = 0; p < kPanelRows / 2; p += P) SmmlaMicro<F, R, P>(q, s, p, a, tile, blocks, acc);
  });
}

// Few rows: one panel as packed, times `rows` rows whose tiles follow each other from a on. acc: [rows][32].
template <class F>
void StreamSdotPanel(const uint8_t* panel, const uint8_t* a, size_t row_bytes, int64_t rows, int64_t blocks, float* acc) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  for (int64_t r = 0; r < rows; r += kTile) {  // a panel stays in the second-level cache from tile to tile
    SdotTile<F, kArmPacked<F>>(PackedSource<F>{F::At(panel, 0)}, a + static_cast<size_t>(r) * row_bytes,
                               static_cast<int>(std::min<int64_t>(kTile, rows - r)), blocks, acc + 32 * r);
  }
}

// Many rows: two panels, decoded once.
template <class F, bool kPairs>
void RunArmInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  const Epilogue epilogue(job, group.slice);
  const int64_t blocks = job.w.cols / kInt8Block;
  const size_t row_bytes = job.x.row_bytes();
  alignas(64) float acc[kTile * 32];
  uint8_t* const q[] = {scratch.data(), scratch.data() + blocks * 512};
  float* const s0 = reinterpret_cast<float*>(q[1] + blocks * 512);
  float* const s[] = {s0, s0 + blocks * (kPairs ? 2 : 1) * kPanelRows * F::kScaleWords};
  for (int64_t pair = first; pair < last; ++pair) {
    const PanelPair panels(job, group.slice, pair);
    DecodeSigned<F, kPairs>(panels.p0, blocks, q[0], s[0]);
    DecodeSigned<F, kPairs>(panels.p1, blocks, q[1], s[1]);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const uint8_t* const a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
      for (int p = 0; p < 2; ++p) {
        if constexpr (kPairs) {
          SmmlaTile<F>(q[p], s[p], a, tile, blocks, acc + kPanelRows * p);
        } else {
          SdotTile<F, ArmWeights::kDecoded>(DecodedSource<F>{q[p], s[p]}, a, tile, blocks, acc + kPanelRows * p);
        }
      }
      for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
    }
  }
}

// Whether it did the product.
template <class F>
bool RunArmInt8(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch) {
  if (CurrentByteDot() == ByteDot::kNone) return false;
  if (group.rows <= StreamRows(ActKind::kInt8)) {
    const size_t row_bytes = job.x.row_bytes();
    const uint8_t* const a = job.x.data + static_cast<size_t>(group.row_begin) * row_bytes;
    StreamPanels<StreamRows(ActKind::kInt8)>(job, group, first, last, [&](const uint8_t* panel, float* acc) {
      StreamSdotPanel<F>(panel, a, row_bytes, group.rows, job.w.cols / kInt8Block, acc);
    });
  } else if (TilingOf(job.x.format, group.rows).run == 8) {
    RunArmInt8Group<F, true>(job, group, first, last, scratch);
  } else {
    RunArmInt8Group<F, false>(job, group, first, last, scratch);
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
