/* The recorder: calls of the device API become bytes, which the process that holds the device runs as commands.
 *
 * Frames to that process: kind (1 byte), size (4 bytes), payload. Frames from it: size (4 bytes), payload.
 */
#define _GNU_SOURCE
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tpu_kernel.h"
#undef tpu_initialize
#undef tpu_poll
#undef tpu_hau_poll
#undef tpu_parallel_start
#undef tpu_parallel_end
#undef tpu_gdma_get_filter_num
#undef tpu_gdma_mask_select_S2S_with_ret
#undef tpu_cast
#undef tpu_fp_cast
#undef tpu_fp_to_int_cast
#undef tpu_int_to_fp_cast
#undef tpu_int_cast
#undef tpu_global_mem_addr
#undef tpu_local_mem_addr
#undef tpu_local_mem_addr_unified
#undef tpu_l2_sram_addr

enum { NAMES = 'N', RECORDS = 'R', QUERY = 'Q', DONE = 'E', FAILED = 'F', DIED = 'X' };
/* Records that are not calls of the tables. */
enum { SOURCE = 0xFFFF, INITIALIZE = 0xFFFE, POLL = 0xFFFD, START = 0xFFFC, END = 0xFFFB, HERE = 0xFFFA };
enum { FILTER_NUM, CAST, ADDRESS, WAIT };
enum { MAX_KERNELS = 1024, MAX_SOURCES = 1024, MAX_MAPPED = 1024, HEAD = 8 };

const char *tw_file = "";
int tw_line = 0;

static struct { uint32_t lanes, banks, bank_bytes, eu_bytes, l2_bytes, local_base, l2_base, calls; } machine;
static struct { const char *name; void (*function)(void); bool returns_status; } kernels[MAX_KERNELS];
static unsigned kernel_count;
static const char *sources[MAX_SOURCES];
static unsigned source_count, calls;
static unsigned char *buffer;
static size_t used, room;
static int input = -1, output = -1;
static bool parallel;
static size_t incomplete = SIZE_MAX; /* where a record begins that has no arguments yet */

void tw_register(const char *name, void (*function)(void), bool returns_status) {
    if (kernel_count < MAX_KERNELS) {
        kernels[kernel_count].name = name;
        kernels[kernel_count].function = function;
        kernels[kernel_count++].returns_status = returns_status;
    }
}

static void put(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size) {
        ssize_t done = write(output, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) _exit(3); /* the process of the device is gone */
        at += done;
        size -= (size_t)done;
    }
}

static void get(void *bytes, size_t size) {
    char *at = bytes;
    while (size) {
        ssize_t done = read(input, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) _exit(0);
        at += done;
        size -= (size_t)done;
    }
}

static void frame(unsigned char kind, const void *bytes, size_t size) {
    uint32_t length = (uint32_t)size;
    put(&kind, 1);
    put(&length, sizeof length);
    put(bytes, size);
}

static void flush(void) {
    if (used) frame(RECORDS, buffer, used);
    used = 0;
}

static void fail(unsigned char kind, const char *text) {
    flush();
    fflush(stdout);
    frame(kind, text, strlen(text));
    _exit(4);
}

void tw_failed(const char *function, const char *reason) {
    static char text[1024];
    snprintf(text, sizeof text, "%s:%d: the assertion of %s failed: %s", tw_file, tw_line, function, reason);
    fail(FAILED, text);
    _exit(4);
}

/* A signal: report it with the last call. The handler has its own stack, because the kernel's may be used up. */
static void died(int number, siginfo_t *info, void *context) {
    static char text[512];
    (void)context;
    const char *what = number == SIGSEGV || number == SIGBUS ? "it used memory that is not its own, at address" : "signal at";
    if (number == SIGFPE) what = "a division by zero, or another arithmetic error, at";
    if (number == SIGABRT) snprintf(text, sizeof text, "it called abort");
    else if (number == SIGALRM) snprintf(text, sizeof text, "it does not end within its time limit"); /* the time limit of the device's process */
    else snprintf(text, sizeof text, "%s %p", what, info->si_addr);
    size_t length = strlen(text);
    if (incomplete < used) used = incomplete; /* a pointer given to a call was bad */
    if (tw_line) snprintf(text + length, sizeof text - length, " (its last call of the device API: %s:%d)", tw_file, tw_line);
    flush();
    frame(DIED, text, strlen(text));
    _exit(5);
}

static void *space(size_t size) {
    if (used + size > room) {
        room = 2 * room + size + 65536;
        buffer = realloc(buffer, room);
        if (!buffer) fail(FAILED, "the recorder has no memory left");
    }
    void *at = buffer + used;
    used += size;
    return at;
}

static unsigned source_of(const char *file) {
    static const char *last;
    static unsigned found;
    if (file == last) return found;
    for (found = 0; found < source_count && strcmp(sources[found], file); found++) {}
    if (found == source_count) {
        if (source_count == MAX_SOURCES) fail(FAILED, "the firmware has too many source files");
        size_t length = strlen(file);
        unsigned char *at = space(HEAD + length);
        uint16_t head[2] = {SOURCE, (uint16_t)found};
        uint32_t size = (uint32_t)length;
        memcpy(at, head, sizeof head);
        memcpy(at + 4, &size, sizeof size);
        memcpy(at + HEAD, file, length);
        sources[source_count++] = file;
    }
    last = file;
    return found;
}

unsigned char *tw_record(unsigned number, unsigned size) {
    if (++calls > machine.calls) {
        static char text[512];
        snprintf(text, sizeof text, "%s:%d: it makes more than %u calls of the device API", tw_file, tw_line, machine.calls);
        used = 0; /* they are not run */
        fail(FAILED, text);
    }
    uint16_t head[2] = {(uint16_t)number, (uint16_t)source_of(tw_file)};
    int32_t line = tw_line;
    incomplete = used;
    unsigned char *at = space(HEAD + size);
    memcpy(at, head, sizeof head);
    memcpy(at + 4, &line, sizeof line);
    return at + HEAD;
}

void tw_recorded(void) { incomplete = SIZE_MAX; }

static void note(unsigned number) {
    tw_record(number, 0);
    tw_recorded();
}

static uint32_t ask(const uint32_t *words, size_t count) {
    uint32_t answer[2];
    note(HERE);
    flush();
    frame(QUERY, words, count * sizeof *words);
    get(answer, sizeof answer);
    return answer[1];
}

/* Pointers into device memory. While there are any, tpu_poll waits until the commands have run. */
static struct { uint64_t base, size; char *bytes; } mapped[MAX_MAPPED];
static unsigned mapped_count;

static void *pointer(uint64_t address) {
    for (unsigned i = 0; i < mapped_count; i++)
        if (address - mapped[i].base < mapped[i].size) return mapped[i].bytes + (address - mapped[i].base);
    if (mapped_count == MAX_MAPPED) fail(FAILED, "pointers to more than 1024 memories");
    uint32_t words[] = {ADDRESS, (uint32_t)address, (uint32_t)(address >> 32)}, size;
    struct { uint64_t base, size; char path[256]; } found = {0};
    note(HERE);
    flush();
    frame(QUERY, words, sizeof words);
    get(&size, sizeof size);
    if (size >= sizeof found) fail(FAILED, "the path of a memory is too long");
    get(&found, size);
    int file = open(found.path, O_RDWR | O_CLOEXEC);
    char *bytes = file < 0 ? MAP_FAILED : mmap(NULL, found.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) fail(FAILED, "a memory of the device cannot be mapped");
    close(file);
    mapped[mapped_count].base = found.base;
    mapped[mapped_count].size = found.size;
    mapped[mapped_count++].bytes = bytes;
    return bytes + (address - found.base);
}

static void unmap(void) {
    while (mapped_count) {
        mapped_count--;
        munmap(mapped[mapped_count].bytes, mapped[mapped_count].size);
    }
}

static void poll(void) {
    note(POLL);
    if (mapped_count) ask((uint32_t[]){WAIT}, 1);
}

void *tpu_global_mem_addr(global_addr_t addr) { return pointer(addr); }
void *tpu_l2_sram_addr(l2_sram_addr_t addr) { return pointer(addr); }
void *tpu_local_mem_addr_unified(local_addr_t addr) { return pointer(machine.local_base + (uint64_t)addr); }
void *tpu_local_mem_addr(int lane, local_addr_t addr) {
    return pointer(machine.local_base + (uint64_t)lane * machine.banks * machine.bank_bytes + addr);
}

void tpu_initialize(void) { note(INITIALIZE); }
void tpu_poll(void) { poll(); }
void tpu_hau_poll(void) { poll(); }
void tpu_parallel_start(void) { note(START); parallel = true; }
void tpu_parallel_end(void) { note(END); parallel = false; }
bool tpu_is_parallel_state(void) { return parallel; }
unsigned int tpu_gdma_get_filter_num(void) { return ask((uint32_t[]){FILTER_NUM}, 1); }
unsigned int tpu_gdma_mask_select_S2S_with_ret(
    system_addr_t dst, system_addr_t src, addr_t mask, int mask_is_local, const dim4 *shape, data_type_t dtype,
    data_type_t mask_dtype) {
    (tpu_gdma_mask_select_S2S)(dst, src, mask, mask_is_local, shape, dtype, mask_dtype);
    return tpu_gdma_get_filter_num();
}
int tpu_gdma_shape_limit(int axis) {
    (void)axis;
    return tw_largest;
}
int tpu_gdma_move_max_wstride_byte_len(void) { return tw_widest; }

scalar_t tpu_cast(scalar_t src, data_type_t dst_dtype, data_type_t src_dtype, rounding_mode_t mode) {
    uint32_t words[] = {CAST, src.u32, dst_dtype, src_dtype, mode};
    return (scalar_t){.u32 = ask(words, 5)};
}
scalar_t tpu_fp_cast(scalar_t src, data_type_t dst, data_type_t from, rounding_mode_t mode) {
    return tpu_cast(src, dst, from, mode);
}
scalar_t tpu_fp_to_int_cast(scalar_t src, data_type_t dst, data_type_t from, rounding_mode_t mode) {
    return tpu_cast(src, dst, from, mode);
}
scalar_t tpu_int_to_fp_cast(scalar_t src, data_type_t dst, data_type_t from, rounding_mode_t mode) {
    return tpu_cast(src, dst, from, mode);
}
scalar_t tpu_int_cast(scalar_t src, data_type_t dst, data_type_t from) {
    return tpu_cast(src, dst, from, RM_HALF_TO_EVEN);
}

int tpu_npu_num(void) { return (int)machine.lanes; }
int tpu_bank_num(void) { return (int)machine.banks; }
int tpu_local_mem_size_per_npu(void) { return (int)(machine.banks * machine.bank_bytes); }
unsigned int tpu_local_mem_get_start_addr(void) { return machine.local_base; }
int tpu_l2_sram_size(void) { return (int)machine.l2_bytes; }
unsigned long long tpu_l2_sram_get_start_addr(void) { return machine.l2_base; }

int tpu_data_type_size(data_type_t dtype) {
    static const unsigned char sizes[] = {1, 2, 4, 2, 4, 2}; /* by precision: 8 bits, f16, f32, 16 bits, 32 bits, bf16 */
    unsigned precision = (unsigned)dtype >> 1;
    if (precision >= sizeof sizes) tw_failed("tpu_data_type_size", "this is no data_type_t");
    return sizes[precision];
}
bool tpu_is_data_type_fp(data_type_t dtype) { return dtype == DT_FP32 || dtype == DT_FP16 || dtype == DT_BFP16; }
bool tpu_is_data_type_signed(data_type_t dtype) { return dtype & 1; }
bool tpu_is_data_type_int(data_type_t dtype) { return !tpu_is_data_type_fp(dtype); }
bool tpu_is_data_type_signed_int(data_type_t dtype) { return tpu_is_data_type_int(dtype) && (dtype & 1); }
bool tpu_is_data_type_unsigned_int(data_type_t dtype) { return tpu_is_data_type_int(dtype) && !(dtype & 1); }
int tpu_eu_num(data_type_t dtype) { return (int)machine.eu_bytes / tpu_data_type_size(dtype); }

int tpu_npu_index(local_addr_t addr) { return (int)(addr / (machine.banks * machine.bank_bytes)); }
int tpu_bank_index(local_addr_t addr) {
    return (int)(addr % (machine.banks * machine.bank_bytes) / machine.bank_bytes);
}
range_t tpu_bank_range(local_addr_t addr, int size) {
    range_t range = {tpu_bank_index(addr), tpu_bank_index(addr + (local_addr_t)MAX(size, 1) - 1)};
    return range;
}
bool tpu_range_overlapped(const range_t *one, const range_t *other) {
    return one->start <= other->end && other->start <= one->end;
}
bool tpu_any_range_overlapped(const range_t *ranges, int count) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (tpu_range_overlapped(&ranges[i], &ranges[j])) return true;
    return false;
}

/* Layouts: the rules of layouts/layout.py, which a test compares with these. */
static int rounded(int count, data_type_t dtype) { return ALIGN(count, tpu_eu_num(dtype)); }
int tpu_channle_num_per_npu(int start, int channels) { return DIV_UP(start + channels, (int)machine.lanes); }
int tpu_aligned_feature_size(int h, int w, data_type_t dtype) {
    return rounded(h * w, dtype) * tpu_data_type_size(dtype);
}
static void strides(dim4 *stride, int start, const dim4 *shape, int h, int c) {
    dim4 made = {c * tpu_channle_num_per_npu(start, shape->c), c, h, 1};
    *stride = made;
}
void tpu_aligned_stride(dim4 *stride, int start, const dim4 *shape, data_type_t dtype) {
    strides(stride, start, shape, shape->w, rounded(shape->h * shape->w, dtype));
}
void tpu_line_aligned_stride(dim4 *stride, int start, const dim4 *shape, data_type_t dtype) {
    int row = rounded(shape->w, dtype);
    strides(stride, start, shape, row, shape->h * row);
}
void tpu_compact_stride(dim4 *stride, int start, const dim4 *shape) {
    strides(stride, start, shape, shape->w, shape->h * shape->w);
}
void tpu_continuous_stride(dim4 *stride, const dim4 *shape) {
    dim4 made = {shape->c * shape->h * shape->w, shape->h * shape->w, shape->w, 1};
    *stride = made;
}

static void watch(void) {
    static char stack[1 << 16];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = died, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}

static void launch(const char *name, const void *argument) {
    for (unsigned i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i].name, name)) continue;
        int32_t status = 0;
        calls = 0;
        unmap(); /* the host may have freed memory since the last launch */
        parallel = false;
        tw_file = "";
        tw_line = 0;
        if (kernels[i].returns_status) status = ((int (*)(const void *))kernels[i].function)(argument);
        else ((void (*)(const void *))kernels[i].function)(argument);
        fflush(stdout);
        flush();
        frame(DONE, &status, sizeof status);
        return;
    }
    fail(FAILED, "the firmware has no function of this name");
}

/* Serve launches until the input ends. A launch is the machine (struct), then a name and an argument with their sizes. */
void tw_serve(int from, int to) {
    input = from;
    output = to;
    watch();
    for (unsigned i = 0; i < kernel_count; i++) frame(NAMES, kernels[i].name, strlen(kernels[i].name));
    frame(DONE, NULL, 0);
    for (;;) {
        uint32_t sizes[2];
        get(&machine, sizeof machine);
        get(sizes, sizeof sizes);
        char *name = malloc(sizes[0] + 1);
        void *argument = malloc(sizes[1] + 1); /* its own block: a checker of memory finds accesses beyond its end */
        if (!name || !argument) fail(FAILED, "the argument does not fit into memory");
        get(name, sizes[0]);
        name[sizes[0]] = 0;
        get(argument, sizes[1]);
        launch(name, argument);
        free(name);
        free(argument);
    }
}
