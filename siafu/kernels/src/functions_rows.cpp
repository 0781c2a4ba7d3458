// Elementary functions, computed in float64 to about two units in its last place and without fused multiply-add, which not
// every processor has. Float32 logarithms are those rounded; what activations are made of is computed in float32.
#include "functions.hpp"

#include "exp.hpp"
#include "lanes.hpp"

namespace siafu {
namespace {

constexpr int EACH = 8;
typedef double Doubles __attribute__((vector_size(EACH * 8)));
typedef int64_t Longs __attribute__((vector_size(EACH * 8)));
typedef float Singles __attribute__((vector_size(EACH * 4)));
#define SIAFU_INLINE inline __attribute__((always_inline))

constexpr double LN2_HIGH = 6.93147180369123816490e-01;  // 33 bits: times an exponent it is exact
constexpr double LN2_LOW = 1.90821492927058770002e-10;
constexpr double MAGIC = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, which then lies in the low bits

SIAFU_INLINE Doubles all(double x) { return Doubles{} + x; }
SIAFU_INLINE Doubles power_of_two(Longs n) { return (Doubles)((n + 1023) << 52); }

// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite), and e^r - 1 by Taylor's series.
struct Reduced {
  Longs n;
  Doubles less_one;

  SIAFU_INLINE explicit Reduced(Doubles x) {
    const Doubles shifted = x * 1.4426950408889634 + MAGIC, count = shifted - MAGIC;
    const Doubles r = (x - count * LN2_HIGH) - count * LN2_LOW;
    constexpr double INVERSE[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                  1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,
                                  1.0 / 6,          1.0 / 2};
    Doubles series = all(INVERSE[0]);
#pragma GCC unroll 12
    for (int i = 1; i < 12; ++i) series = series * r + INVERSE[i];
    n = (Longs)shifted - (Longs)all(MAGIC);
    less_one = r + r * (r * series);
  }
};

SIAFU_INLINE Doubles exponential(Doubles x) {
  x = x < -750.0 ? all(-750.0) : x;
  x = x > 712.0 ? all(712.0) : x;
  const Reduced e(x);
  const Longs half = e.n >> 1;  // 2^n in two steps: neither leaves the range, where the result is a subnormal
  return (e.less_one + 1.0) * power_of_two(half) * power_of_two(e.n - half);
}

SIAFU_INLINE Doubles less_one_up_to_one(Doubles x) {
  const Reduced e(x < -50.0 ? all(-50.0) : x);  // from there on it is -1
  const Doubles scale = power_of_two(e.n);
  return scale * e.less_one + (scale - 1.0);
}

SIAFU_INLINE Doubles exponential_less_one(Doubles x) {
  const Doubles low = less_one_up_to_one(x > 1.0 ? all(1.0) : x);
  return x > 1.0 ? exponential(x) - 1.0 : low;
}

// x = 2^n m with m in [sqrt(1/2), sqrt(2)), and ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172, by its series.
SIAFU_INLINE Doubles logarithm(Doubles x) {
  const Longs tiny = (Longs)(x < 2.2250738585072014e-308);
  const Longs bits = (Longs)(tiny ? x * 18014398509481984.0 : x);  // 2^54: subnormal numbers become normal
  const Longs n = (bits - 0x3fe6a09e667f3bcd) >> 52;               // of sqrt(1/2)
  const Doubles m = (Doubles)(bits - (n << 52));
  const Doubles s = (m - 1.0) / (m + 1.0), z = s * s;
  constexpr double INVERSE[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  Doubles series = all(INVERSE[0]);
#pragma GCC unroll 11
  for (int i = 1; i < 11; ++i) series = series * z + INVERSE[i];
  const Doubles count = (Doubles)((n + (tiny & -54)) + (Longs)all(MAGIC)) - MAGIC;
  const Doubles found = count * LN2_HIGH + (2.0 * s + (series * z * (2.0 * s) + count * LN2_LOW));
  const Doubles usual = x < __builtin_inf() ? found : x;  // infinity and NaN stay
  return x > 0.0 ? usual : (x == 0.0 ? all(-__builtin_inf()) : all(__builtin_nan("")));
}

SIAFU_INLINE Doubles logarithm_of_one_and(Doubles x) {
  const Doubles whole = x + 1.0, lost = (x - (whole - 1.0)) / whole;
  return logarithm(whole) + (lost == lost ? lost : Doubles{});  // infinity and -1 lose nothing
}

SIAFU_INLINE Doubles tangent(Doubles x) {  // hyperbolic
  const Doubles t = less_one_up_to_one(-2.0 * (x < 0.0 ? -x : x)), y = -t / (t + 2.0);
  return x < 0.0 ? -y : y;
}

template <class T>
struct Wider;
template <>
struct Wider<double> {
  typedef Doubles Loose __attribute__((aligned(8), may_alias));
  static SIAFU_INLINE Doubles load(const double* from) { return *(const Loose*)from; }
  static SIAFU_INLINE void store(double* to, Doubles x) { *(Loose*)to = x; }
};
template <>
struct Wider<float> {
  typedef Singles Loose __attribute__((aligned(4), may_alias));
  static SIAFU_INLINE Doubles load(const float* from) { return __builtin_convertvector(*(const Loose*)from, Doubles); }
  static SIAFU_INLINE void store(float* to, Doubles x) { *(Loose*)to = __builtin_convertvector(x, Singles); }
};

template <class T, class How>
void each(const Elementwise& call, const How& how) {
  const T* x = (const T*)call.x;
  T* y = (T*)call.y;
  int64_t i = 0;
  for (; i + EACH <= call.n; i += EACH) Wider<T>::store(y + i, how(Wider<T>::load(x + i)));
  if (i == call.n) return;
  T part[EACH] = {};
  const int64_t left = call.n - i;
  __builtin_memcpy(part, x + i, left * sizeof(T));
  Wider<T>::store(part, how(Wider<T>::load(part)));
  __builtin_memcpy(y + i, part, left * sizeof(T));
}

template <class T>
void apply_to(const Elementwise& call) {
  switch (call.function) {
    case EXP: return each<T>(call, [](Doubles x) { return exponential(x); });
    case EXPM1: return each<T>(call, [](Doubles x) { return exponential_less_one(x); });
    case LOG: return each<T>(call, [](Doubles x) { return logarithm(x); });
    case LOG1P: return each<T>(call, [](Doubles x) { return logarithm_of_one_and(x); });
    case TANH: return each<T>(call, [](Doubles x) { return tangent(x); });
  }
}

// --- float32 ---------------------------------------------------------------------------------------------------------

// e^x - 1, of e^r - 1 in the exponential's reduction; from -20 on down it is -1.
SIAFU_INLINE Floats less_one(Floats x) {
  const Floats zero = {}, low = x < -20.0f ? zero - 20.0f : (x > 1.0f ? zero + 1.0f : x);
  const Floats magic = zero + 12582912.0f, shifted = fused(low, zero + 1.44269504f, magic), count = shifted - magic;
  const Floats r = fused(count, zero + 2.12194440e-4f, fused(count, zero - 0.693359375f, low));
  Floats p = fused(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f);
  p = fused(p, r, zero + 8.3334519073e-3f);
  p = fused(p, r, zero + 4.1665795894e-2f);
  p = fused(p, r, zero + 1.6666665459e-1f);
  p = fused(p, r, zero + 5.0000001201e-1f);
  p = fused(p, r * r, r);
  const Floats scale = (Floats)((((Ints)shifted - (Ints)magic) + 127) << 23);
  const Floats found = fused(scale, p, scale - 1.0f);
  return x > 1.0f ? exponential<Floats, Ints>(x) - 1.0f : found;
}

// A polynomial below 0.625, 1 - 2 / (e^2x + 1) above (Cephes' tanhf).
SIAFU_INLINE Floats tangent(Floats x) {
  const Floats zero = {}, size = x < 0.0f ? -x : x, z = x * x;
  Floats p = fused(z, zero - 5.70498872745e-3f, zero + 2.06390887954e-2f);
  p = fused(p, z, zero - 5.37397155531e-2f);
  p = fused(p, z, zero + 1.33314422036e-1f);
  p = fused(p, z, zero - 3.33332819422e-1f);
  const Floats high = 1.0f - 2.0f / (exponential<Floats, Ints>(2.0f * size) + 1.0f);
  return size < 0.625f ? fused(p * z, x, x) : (x < 0.0f ? -high : high);
}

template <class How>
void each_single(const Elementwise& call, const How& how) {
  const float* x = (const float*)call.x;
  float* y = (float*)call.y;
  for (int64_t i = 0; i < call.n; i += LANES) store_part(y + i, call.n - i, how(load_part(x + i, call.n - i, 0.0f)));
}

void apply(const Elementwise& call) {
  if (call.is_double) return apply_to<double>(call);
  switch (call.function) {
    case EXP: return each_single(call, [](Floats x) { return exponential<Floats, Ints>(x); });
    case EXPM1: return each_single(call, [](Floats x) { return less_one(x); });
    case TANH: return each_single(call, [](Floats x) { return tangent(x); });
    default: return apply_to<float>(call);
  }
}

// --- sigmoid cross-entropy --------------------------------------------------------------------------------------------

// As siafu/ops.py has it, operation for operation; the loss in EACH sums.
template <class T>
double cross_entropy_of(const BinaryCrossEntropy& call, int64_t first, int64_t end) {
  constexpr int64_t TOGETHER = 256;
  const T *logits = (const T*)call.logits, *labels = (const T*)call.labels, classes = (T)call.classes;
  T* const gradient = (T*)call.gradient;
  double sums[EACH] = {};
  for (; first < end; first += TOGETHER) {
    const int64_t count = end - first < TOGETHER ? end - first : TOGETHER;
    const T *x = logits + first, *y = labels + first;
    T decay[TOGETHER], loss[TOGETHER] = {};
    for (int64_t i = 0; i < count; ++i) decay[i] = x[i] < 0 ? x[i] : -x[i];  // at most 0: nothing overflows
    apply({decay, decay, count, EXP, call.is_double});
    apply({decay, loss, count, LOG1P, call.is_double});
    for (int64_t i = 0; i < count; ++i) {
      loss[i] = (x[i] > 0 ? x[i] : 0) - x[i] * y[i] + loss[i];
      gradient[first + i] = ((x[i] >= 0 ? 1 : decay[i]) / (1 + decay[i]) - y[i]) / classes;
    }
    for (int64_t i = 0; i < TOGETHER; i += EACH)
      for (int k = 0; k < EACH; ++k) sums[k] += (double)loss[i + k];
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

double cross_entropy(const BinaryCrossEntropy& call, int64_t first, int64_t end) {
  return call.is_double ? cross_entropy_of<double>(call, first, end) : cross_entropy_of<float>(call, first, end);
}

}  // namespace

extern const FunctionRows SIAFU_PASTE(functions_rows_, SIAFU_ISA) = {apply, cross_entropy};

}  // namespace siafu
