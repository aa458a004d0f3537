// Padded loads on VTA's runtime: rectangles of an image with rows and columns of zeros around them, as in upstream's
// test of padded loads; then sums over 3 x 3 neighbourhoods, whose borders are the padding.
//
//     c++ padding.cc $(tilewright config --vta --cflags --libs) -o padding && ./padding

#include <vta/hw_spec.h>
#include <vta/runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

const int kHeight = 12, kWidth = 20;  // of the image, in tiles
const int kLanes = VTA_BATCH * VTA_BLOCK_OUT;
enum Stage { kLoad = 1, kCompute = 2, kStore = 3 };

struct Rectangle {
  int top, left, rows, columns;
};
struct Pads {
  int above, below, left, right;
};

std::vector<int32_t> image(kHeight* kWidth* kLanes);

int32_t Pixel(int y, int x, int lane) {
  return y < 0 || x < 0 || y >= kHeight || x >= kWidth ? 0 : image[(y * kWidth + x) * kLanes + lane];
}

// Store `tiles` consecutive tiles from an index on, and run what is recorded; returns their bytes.
std::vector<int8_t> Results(VTACommandHandle cmd, int index, int tiles) {
  void* out = VTABufferAlloc(tiles * VTA_OUT_ELEM_BYTES);
  std::vector<int8_t> found(tiles * kLanes);
  VTADepPush(cmd, kCompute, kStore);
  VTADepPop(cmd, kCompute, kStore);
  VTAStoreBuffer2D(cmd, index, VTA_MEM_ID_OUT, out, 0, tiles, 1, tiles);
  VTASynchronize(cmd, 1u << 31);
  VTABufferCopy(out, 0, found.data(), 0, found.size(), VTA_MEMCPY_D2H);
  VTABufferFree(out);
  return found;
}

void LoadImage(VTACommandHandle cmd, void* buffer, Rectangle part, Pads pads) {
  VTALoadBuffer2D(cmd, buffer, part.top * kWidth + part.left, part.columns, part.rows, kWidth, pads.left, pads.above,
                  pads.right, pads.below, 0, VTA_MEM_ID_ACC);
}

std::vector<int> kept;  // tiles of each case, whose number is the signature of its kernel

// Add 0 to tiles: what the ALU writes can be stored, what a LOAD writes cannot.
int Keep(void* number) {
  VTAUopLoopBegin(kept[*static_cast<int*>(number)], 1, 1, 0);
  VTAUopPush(1, 0, 0, 0, 0, VTA_ALU_OPCODE_ADD, 1, 0);
  VTAUopLoopEnd();
  return 0;
}

int Padded(VTACommandHandle cmd, void* buffer, Rectangle part, Pads pads) {
  static void* keep = nullptr;
  const int height = pads.above + part.rows + pads.below, width = pads.left + part.columns + pads.right;
  const int tiles = height * width;
  int number = static_cast<int>(kept.size());
  kept.push_back(tiles);
  LoadImage(cmd, buffer, part, pads);
  VTAPushALUOp(&keep, Keep, &number, sizeof(number));
  const std::vector<int8_t> found = Results(cmd, 0, tiles);
  int errors = 0;
  for (int i = 0; i < tiles * kLanes; ++i) {
    const int y = i / kLanes / width - pads.above, x = i / kLanes % width - pads.left;
    const bool inside = y >= 0 && y < part.rows && x >= 0 && x < part.columns;
    const int32_t expected = inside ? Pixel(part.top + y, part.left + x, i % kLanes) : 0;
    errors += found[i] != static_cast<int8_t>(expected);
  }
  std::printf("%d x %d tiles, pads %d %d %d %d: %d errors\n", part.rows, part.columns, pads.above, pads.below,
              pads.left, pads.right, errors);
  return errors;
}

const int kPadded = kWidth + 2;                   // tiles of a row on chip
const int kSums = (kHeight + 2) * kPadded;        // the first tile of the sums

int Clear(void*) {
  VTAUopLoopBegin(kHeight * kWidth, 1, 0, 0);
  VTAUopPush(0, 1, kSums, 0, 0, 0, 0, 0);
  VTAUopLoopEnd();
  return 0;
}

// sums[y][x] += image[y + dy][x + dx]
int AddNeighbour(void* signature) {
  VTAUopLoopBegin(kHeight, kWidth, kPadded, 0);
  VTAUopLoopBegin(kWidth, 1, 1, 0);
  VTAUopPush(1, 0, kSums, *static_cast<int*>(signature), 0, VTA_ALU_OPCODE_ADD, 0, 0);
  VTAUopLoopEnd();
  VTAUopLoopEnd();
  return 0;
}

int Neighbourhoods(VTACommandHandle cmd, void* buffer) {
  static void *clear = nullptr, *add = nullptr;
  LoadImage(cmd, buffer, {0, 0, kHeight, kWidth}, {1, 1, 1, 1});
  VTAPushGEMMOp(&clear, Clear, nullptr, 0);
  for (int offset = 0; offset < 9; ++offset) {
    int first = offset / 3 * kPadded + offset % 3;
    VTAPushALUOp(&add, AddNeighbour, &first, sizeof(first));
  }
  const std::vector<int8_t> found = Results(cmd, kSums, kHeight * kWidth);
  int errors = 0;
  for (int i = 0; i < kHeight * kWidth * kLanes; ++i) {
    int32_t sum = 0;
    for (int offset = 0; offset < 9; ++offset)
      sum += Pixel(i / kLanes / kWidth + offset / 3 - 1, i / kLanes % kWidth + offset % 3 - 1, i % kLanes);
    errors += found[i] != static_cast<int8_t>(sum);
  }
  std::printf("sums of 3 x 3 tiles: %d errors\n", errors);
  return errors;
}

}  // namespace

int main() {
  uint32_t state = 3;
  for (auto& value : image) value = static_cast<int32_t>(state = state * 1664525u + 1013904223u) >> 24;
  VTACommandHandle cmd = VTATLSCommandHandle();
  void* buffer = VTABufferAlloc(image.size() * sizeof(int32_t));
  VTABufferCopy(image.data(), 0, buffer, 0, image.size() * sizeof(int32_t), VTA_MEMCPY_H2D);
  int errors = Padded(cmd, buffer, {0, 0, kHeight, kWidth}, {0, 0, 0, 0});
  errors += Padded(cmd, buffer, {2, 3, 5, 8}, {2, 0, 0, 0});
  errors += Padded(cmd, buffer, {0, 1, 7, 4}, {0, 3, 1, 0});
  errors += Padded(cmd, buffer, {1, 0, 6, 9}, {1, 2, 3, 4});
  errors += Neighbourhoods(cmd, buffer);
  VTABufferFree(buffer);
  VTARuntimeShutdown();
  return errors != 0;
}
