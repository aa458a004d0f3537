/* Memory that the host shares with the process of the simulator (serve.py), and the requests to this process.
 *
 * All memory of the machine is one sparse file, which both processes map or read. So a run only sends the list of the
 * allocations. Untouched pages are holes of the file: these tell the simulator which memory is uninitialised.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vta/hw_spec.h>

#include "connection.h"
#include "requests.h"

/* Addresses, as in the runtime in Python (runtime/memory.py): micro-ops on the first page, buffers after them. */
#define END (1ull << 32)
#define FIRST (VTA_PAGE_BYTES + (uint64_t)VTA_MAX_XFER)
#define LAST (END - VTA_MAX_XFER)
#define MOST ((1ull << 30) - VTA_MAX_XFER) /* bytes of all allocations */

struct run {
    uint64_t insns, uops; /* address; bytes */
    uint32_t count, debug;
};
struct result { /* of the last run; a failed run has 0 and 1 */
    uint64_t cycles, findings;
};
struct device {
    struct device *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all variables below */
static int file = -1;
static uint8_t *dram;
static struct tw_region *regions; /* by address */
static size_t count, room;
static int64_t numbered;
static struct device *devices;
static struct tw_connection process;
static int started;
static pid_t owner; /* the process that started the simulator */
static struct result total;
static unsigned long long runs;

void tw_refuse(const char *call, const char *reason, ...) {
    va_list arguments;
    char text[512];
    va_start(arguments, reason);
    vsnprintf(text, sizeof text, reason, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "tilewright: %s: %s\n", call, text);
    exit(EXIT_FAILURE);
}

static void leave(void) {
    if (getpid() != owner) return; /* a fork of the host */
    if (runs) {
        fflush(stdout);
        fprintf(
            stderr, "tilewright: %s: %llu cycles in %llu run%s, %llu finding%s\n", VTA_BITSTREAM,
            (unsigned long long)total.cycles, runs, runs == 1 ? "" : "s", (unsigned long long)total.findings,
            total.findings == 1 ? "" : "s");
    } else {
        kill(process.process, SIGKILL); /* the process may not be ready yet */
    }
    tw_leave(&process);
}

/* Make the memory and start the process, once. The process starts up while the host continues. */
static void start(const char *call) {
    if (!dram) {
#ifdef __linux__
        file = memfd_create("vta", MFD_CLOEXEC);
#else
        char path[] = "/tmp/tilewright-vta-XXXXXX";
        file = mkstemp(path);
        unlink(path);
#endif
        if (file < 0 || ftruncate(file, (off_t)END)) tw_refuse(call, "no memory for the machine: %s", strerror(errno));
        void *made = mmap(NULL, END, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
        if (made == MAP_FAILED) tw_refuse(call, "the 4 GiB of the machine do not fit: %s", strerror(errno));
        dram = made;
    }
    if (!started) {
        if (!tw_start(&process, file)) exit(EXIT_FAILURE);
        started = 1;
        owner = getpid();
        atexit(leave);
    }
}

static size_t first_after(uint64_t address) {
    size_t at = 0;
    while (at < count && regions[at].address <= address) at++;
    return at;
}

void *tw_allocate(const char *call, size_t size, int kind) {
    uint64_t address = kind == TW_UOPS ? VTA_PAGE_BYTES : kind == TW_INSNS ? LAST : FIRST, used = 0;
    pthread_mutex_lock(&lock);
    start(call);
    for (size_t at = 0; kind == TW_NUMBERED && at < count; at++) {
        if (regions[at].number < 0) continue;
        uint64_t end = regions[at].address + regions[at].size;
        used += regions[at].size;
        if (regions[at].address - address < size)
            address = (end + VTA_PAGE_BYTES - 1) / VTA_PAGE_BYTES * VTA_PAGE_BYTES;
    }
    if (!size || (kind == TW_NUMBERED && (size > MOST - used || address > LAST || size > LAST - address))) {
        pthread_mutex_unlock(&lock);
        fprintf(
            stderr, "tilewright: %s: %zu bytes do not fit beside the %llu bytes in use; at most %llu do\n", call, size,
            (unsigned long long)used, MOST);
        return NULL;
    }
    if (count == room) {
        regions = realloc(regions, (room = 2 * room + 16) * sizeof *regions);
        if (!regions) tw_refuse(call, "the host has no memory left");
    }
    size_t at = first_after(address);
    memmove(regions + at + 1, regions + at, (count++ - at) * sizeof *regions);
    regions[at] = (struct tw_region){address, size, kind == TW_NUMBERED ? numbered++ : kind};
    pthread_mutex_unlock(&lock);
    return dram + address;
}

struct tw_region tw_region_of(const char *call, const void *at, size_t size) {
    uint64_t address = (uint64_t)((const uint8_t *)at - dram);
    pthread_mutex_lock(&lock);
    size_t after = dram && at && address < END ? first_after(address) : 0;
    struct tw_region found = after ? regions[after - 1] : (struct tw_region){0, 0, 0};
    pthread_mutex_unlock(&lock);
    uint64_t offset = address - found.address;
    if (!after || offset >= found.size)
        tw_refuse(call, "%p is in no memory of VTAMemAlloc (or it is freed)", (void *)(uintptr_t)at);
    if (size > found.size - offset)
        tw_refuse(
            call, "%zu bytes from byte %llu on do not fit an allocation of %llu bytes", size,
            (unsigned long long)offset, (unsigned long long)found.size);
    return found;
}

void *VTAMemAlloc(size_t size, int cached) {
    (void)cached;
    return tw_allocate("VTAMemAlloc", size, TW_NUMBERED);
}

void VTAMemFree(void *buf) {
    if (!buf) return;
    struct tw_region old = tw_region_of("VTAMemFree", buf, 0);
    if ((uint8_t *)buf != dram + old.address) tw_refuse("VTAMemFree", "%p is not the start of its allocation", buf);
#ifdef __linux__
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)old.address, (off_t)old.size);
#else
    memset(buf, 0, old.size);
#endif
    pthread_mutex_lock(&lock);
    size_t at = first_after(old.address);
    memmove(regions + at - 1, regions + at, (count-- - at) * sizeof *regions);
    pthread_mutex_unlock(&lock);
}

vta_phy_addr_t VTAMemGetPhyAddr(void *buf) {
    tw_region_of("VTAMemGetPhyAddr", buf, 0);
    return (vta_phy_addr_t)((uint8_t *)buf - dram);
}

void VTAMemCopyFromHost(void *dst, const void *src, size_t size) {
    tw_region_of("VTAMemCopyFromHost", dst, size);
    memmove(dst, src, size);
}

void VTAMemCopyToHost(void *dst, const void *src, size_t size) {
    tw_region_of("VTAMemCopyToHost", src, size);
    memmove(dst, src, size);
}

void VTAFlushCache(void *vir_addr, vta_phy_addr_t phy_addr, int size) { (void)vir_addr, (void)phy_addr, (void)size; }
void VTAInvalidateCache(void *vir_addr, vta_phy_addr_t phy_addr, int size) {
    (void)vir_addr, (void)phy_addr, (void)size;
}
void VTAProgram(const char *bitstream) { (void)bitstream; }

VTADeviceHandle VTADeviceAlloc(void) {
    struct device *made = malloc(sizeof *made);
    if (!made) tw_refuse("VTADeviceAlloc", "the host has no memory left");
    pthread_mutex_lock(&lock);
    start("VTADeviceAlloc");
    made->next = devices;
    devices = made;
    pthread_mutex_unlock(&lock);
    return made;
}

/* The link to a device. The caller holds the lock. */
static struct device **link_to(const char *call, VTADeviceHandle handle) {
    struct device **at = &devices;
    while (*at && *at != handle) at = &(*at)->next;
    if (!*at) tw_refuse(call, "%p is no device; call VTADeviceAlloc", handle);
    return at;
}

void VTADeviceFree(VTADeviceHandle handle) {
    if (!handle) return;
    pthread_mutex_lock(&lock);
    struct device **at = link_to("VTADeviceFree", handle), *old = *at;
    *at = old->next;
    pthread_mutex_unlock(&lock);
    free(old);
}

int tw_run(VTADeviceHandle device, uint64_t insns, uint32_t insn_count, uint32_t wait, int debug, size_t uops) {
    struct run request = {insns, uops, insn_count, (uint32_t)debug};
    struct result done = {0, 1};
    fflush(stdout); /* the process may print there */
    pthread_mutex_lock(&lock);
    link_to("VTADeviceRun", device);
    int status = tw_ask(&process, RUN, &request, sizeof request, regions, count * sizeof *regions, NULL, 0);
    if (!status) status = tw_ask(&process, RESULT, NULL, 0, NULL, 0, &done, sizeof done);
    runs++;
    total.cycles += done.cycles;
    total.findings += done.findings;
    pthread_mutex_unlock(&lock);
    if (status || done.cycles <= wait) return status != 0;
    fprintf(
        stderr, "tilewright: VTADeviceRun: it needs %llu cycles, more than wait_cycles %u\n",
        (unsigned long long)done.cycles, wait);
    return 1;
}

int VTADeviceRun(VTADeviceHandle device, vta_phy_addr_t insn_phy_addr, uint32_t insn_count, uint32_t wait_cycles) {
    return tw_run(device, insn_phy_addr, insn_count, wait_cycles, 0, 0);
}

void tw_print_uops(const void *uops, size_t size) {
    fflush(stdout);
    pthread_mutex_lock(&lock);
    tw_ask(&process, UOPS, uops, size, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
}

unsigned long long tilewright_vta_cycles(void) { return total.cycles; }
unsigned long long tilewright_vta_findings(void) { return total.findings; }
