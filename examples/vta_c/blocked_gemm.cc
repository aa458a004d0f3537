// A blocked GEMM on VTA's runtime: 256 x 256 x 256 int8, 64 x 64 x 64 on chip at a time. blocked_gemm.py, one folder
// up, is the same program in Python; both make the same instructions.
//
//     c++ blocked_gemm.cc $(tilewright config --vta --cflags --libs) -o blocked_gemm && ./blocked_gemm
//
// out = x * transpose(w) + bias: each block of outputs starts as its bias, four products are added to it, its low bytes
// are stored. With two virtual threads the halves of each memory take turns, so that one block is loaded while the
// other is multiplied.

#include <vta/hw_spec.h>
#include <vta/runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

const int kSize = 256, kBlock = 64;
const int kTile = VTA_BLOCK_OUT;
const int kParts = kSize / kBlock;   // blocks along each side
const int kAcross = kSize / kTile;   // tiles along a row of a matrix
const int kWide = kBlock / kTile;    // tiles along a row of a block
const int kInputs = kBlock * kWide;  // tiles of a block: inputs and sums
const int kWeights = kWide * kWide;  // tiles of a block: weights
enum Stage { kLoad = 1, kCompute = 2, kStore = 3 };

// Numbers that any language can repeat.
class Numbers {
 public:
  int32_t Next(int bits) {  // in -(1 << (bits - 1)) .. (1 << (bits - 1)) - 1
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<int32_t>(state_) >> (32 - bits);
  }

 private:
  uint32_t state_ = 1;
};

// A matrix of kSize rows and columns as a buffer of tiles of `rows` x kTile.
template <typename T>
void* ToDevice(const std::vector<T>& matrix, int rows) {
  std::vector<T> tiles;
  tiles.reserve(matrix.size());
  for (int y = 0; y < kSize; y += rows)
    for (int x = 0; x < kSize; x += kTile)
      for (int row = y; row < y + rows; ++row)
        tiles.insert(tiles.end(), &matrix[row * kSize + x], &matrix[row * kSize + x] + kTile);
  void* buffer = VTABufferAlloc(tiles.size() * sizeof(T));
  VTABufferCopy(tiles.data(), 0, buffer, 0, tiles.size() * sizeof(T), VTA_MEMCPY_H2D);
  return buffer;
}

// One block of inputs by one of weights: 16 micro-ops for each of 64 rows.
int Product(void* signature) {
  const int thread = *static_cast<int*>(signature);
  const int inp = thread * kInputs, wgt = thread * kWeights;
  VTAUopLoopBegin(kBlock, kWide, kWide, 0);
  for (int k = 0; k < kWide; ++k)
    for (int n = 0; n < kWide; ++n) VTAUopPush(0, 0, inp + n, inp + k, wgt + n * kWide + k, 0, 0, 0);
  VTAUopLoopEnd();
  return 0;
}

void BlockedGemm(void* inputs, void* weights, void* biases, void* out, int threads) {
  static void* products = nullptr;
  VTACommandHandle cmd = VTATLSCommandHandle();
  for (int thread = 0; thread < threads; ++thread) {  // both halves of each memory are free at first
    VTADepPush(cmd, kCompute, kLoad);
    VTADepPush(cmd, kStore, kCompute);
  }
  for (int first = 0; first < kParts * kParts; first += threads) {
    for (int thread = 0; thread < threads; ++thread) {
      const int m = (first + thread) / kParts, n = (first + thread) % kParts;
      VTADepPop(cmd, kStore, kCompute);
      VTALoadBuffer2D(cmd, biases, m * kBlock * kAcross + n * kWide, kWide, kBlock, kAcross, 0, 0, 0, 0,
                      thread * kInputs, VTA_MEM_ID_ACC);
    }
    for (int k = 0; k < kParts; ++k) {
      for (int thread = 0; thread < threads; ++thread) {
        const int m = (first + thread) / kParts, n = (first + thread) % kParts;
        VTADepPop(cmd, kCompute, kLoad);
        VTALoadBuffer2D(cmd, inputs, m * kBlock * kAcross + k * kWide, kWide, kBlock, kAcross, 0, 0, 0, 0,
                        thread * kInputs, VTA_MEM_ID_INP);
        VTALoadBuffer2D(cmd, weights, n * kWide * kAcross + k * kWide, kWide, kWide, kAcross, 0, 0, 0, 0,
                        thread * kWeights, VTA_MEM_ID_WGT);
        VTADepPush(cmd, kLoad, kCompute);
        VTADepPop(cmd, kLoad, kCompute);
        VTAPushGEMMOp(&products, Product, &thread, sizeof(thread));
        VTADepPush(cmd, kCompute, kLoad);
        if (k == kParts - 1) VTADepPush(cmd, kCompute, kStore);
      }
    }
    for (int thread = 0; thread < threads; ++thread) {
      const int m = (first + thread) / kParts, n = (first + thread) % kParts;
      VTADepPop(cmd, kCompute, kStore);
      VTAStoreBuffer2D(cmd, thread * kInputs, VTA_MEM_ID_OUT, out, m * kBlock * kAcross + n * kWide, kWide, kBlock,
                       kAcross);
      VTADepPush(cmd, kStore, kCompute);
    }
  }
  for (int thread = 0; thread < threads; ++thread) {
    VTADepPop(cmd, kCompute, kLoad);
    VTADepPop(cmd, kStore, kCompute);
  }
  VTASynchronize(cmd, 1u << 31);
}

}  // namespace

int main() {
  static_assert(VTA_BATCH == 1 && VTA_BLOCK_IN == kTile, "the tiles of this program are 1 x 16 and 16 x 16");
  Numbers numbers;
  std::vector<int8_t> x(kSize * kSize), w(x.size()), golden(x.size()), found(x.size());
  std::vector<int32_t> bias(x.size());
  for (auto& value : x) value = static_cast<int8_t>(numbers.Next(8));
  for (auto& value : w) value = static_cast<int8_t>(numbers.Next(8));
  for (auto& value : bias) value = numbers.Next(21);
  for (int m = 0; m < kSize; ++m) {
    for (int n = 0; n < kSize; ++n) {
      int32_t sum = bias[m * kSize + n];
      for (int k = 0; k < kSize; ++k) sum += x[m * kSize + k] * w[n * kSize + k];
      golden[m * kSize + n] = static_cast<int8_t>(sum);
    }
  }
  int errors = 0;
  for (int threads = 1; threads <= 2; ++threads) {
    const unsigned long long before = tilewright_vta_cycles();
    void* buffers[] = {ToDevice(x, VTA_BATCH), ToDevice(w, kTile), ToDevice(bias, VTA_BATCH),
                       VTABufferAlloc(found.size())};
    BlockedGemm(buffers[0], buffers[1], buffers[2], buffers[3], threads);
    // Tiles of one row of 16 outputs, row by row: the matrix itself.
    VTABufferCopy(buffers[3], 0, found.data(), 0, found.size(), VTA_MEMCPY_D2H);
    for (void* buffer : buffers) VTABufferFree(buffer);
    for (size_t i = 0; i < found.size(); ++i) errors += found[i] != golden[i];
    std::printf("%d virtual thread(s): %d errors in %zu outputs, %llu cycles\n", threads, errors, found.size(),
                tilewright_vta_cycles() - before);
  }
  VTARuntimeShutdown();
  return errors != 0;
}
