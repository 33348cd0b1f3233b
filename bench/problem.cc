/* bench/problem.cc - problems, and the buffers that they share. */
#include "bench.h"
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

int64_t Problem::elements() const { return rows() * n(); }
int64_t Problem::n() const { return axis < 0 ? shape.back() : shape[axis]; }
int64_t Problem::rows() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count / n();
}
smx_dtype Problem::type() const {
  return dtype == "f32" ? SMX_F32 : dtype == "f64" ? SMX_F64 : dtype == "bf16" ? SMX_BF16 : SMX_F16;
}
const smx_op *Problem::op() const {
  const size_t colon = verb.find(':');
  return colon == std::string::npos ? nullptr : smx_op_find(verb.c_str() + colon + 1);
}
std::vector<int64_t> Problem::shape_of_rows() const {
  std::vector<int64_t> rest = shape;
  rest.erase(axis < 0 ? rest.end() - 1 : rest.begin() + axis);
  return rest;
}

namespace {

/* Grows, never shrinks; whole pages, and some bytes more because XNNPACK reads past the end. */
struct Buffer {
  char *data = nullptr;
  size_t bytes = 0;

  bool grow(size_t wanted) {
    if (wanted <= bytes) return false;
    free(data);
    bytes = (wanted + 2 * 4096) / 4096 * 4096;
    data = static_cast<char *>(aligned_alloc(4096, bytes));
    if (!data) abort();
    memset(data, 0, bytes);
    return true;
  }
};

uint16_t to_half(float f, bool bfloat) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (bfloat) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000;
  const int exponent = static_cast<int>(bits >> 23 & 255) -
                       112; /* the values are neither large nor subnormal, save those near 0 */
  return static_cast<uint16_t>(exponent <= 0 ? sign : sign | exponent << 10 | (bits >> 13 & 0x3ff));
}

void store(char *at, const std::string &dtype, double value) {
  const float f = static_cast<float>(value);
  const uint16_t h = to_half(f, dtype == "bf16");
  if (dtype == "f64") memcpy(at, &value, 8);
  else if (dtype == "f32") memcpy(at, &f, 4);
  else memcpy(at, &h, 2);
}

/* One block of normal * 5, again and again: quick, and longer than a predictor remembers. */
void fill(Buffer &b, const Problem &p, int seed) {
  const size_t size = p.type().bits / 8, count = (1 << 18) + 5;
  std::vector<char> block(count * size);
  std::mt19937_64 random(seed + 1);
  std::normal_distribution<double> normal(0, 5);
  for (size_t i = 0; i < count; i++) store(&block[i * size], p.dtype, normal(random));
  for (size_t at = 0; at < b.bytes; at += block.size())
    memcpy(b.data + at, block.data(), std::min(block.size(), b.bytes - at));
}

} // namespace

void *input(const Problem &p, int which) {
  static std::map<std::string, Buffer> buffers;
  Buffer &b = buffers[p.dtype + std::to_string(which)];
  if (b.grow(p.bytes())) fill(b, p, which);
  return b.data;
}

void *output(size_t bytes) {
  static Buffer b;
  b.grow(bytes);
  return b.data;
}
