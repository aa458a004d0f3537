/* The library for hosts: commands are recorded, and sent at a fence to the process that holds the machine. At a fence
 * the process names the ranges of memory that it needs; their bytes are sent, and its results are fetched. */
#define _GNU_SOURCE
#include "tilewright/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "connection.h"
#include "requests.h"

enum { FULL = 1 << 16, MAX_SOURCES = 4096, FENCE = 127 };

typedef struct { uint64_t rs1, rs2; uint32_t funct, source, line, unused; } record;
typedef struct { uint64_t address, size; } range;

static struct tw_connection device;
static record records[FULL];
static size_t used;
static const char *sources[MAX_SOURCES];
static uint32_t source_count;
static struct { const char *file; int line, depth; } call;
static int started, ending, unseen; /* unseen: there are commands that were not run */

static void stop(void) {
    ending = 1;
    fflush(stdout);
    exit(1);
}

static void ask(
    uint32_t kind, const void *first, size_t size, const void *second, size_t more, void *answer, size_t room) {
    if (tw_ask(&device, kind, first, size, second, more, answer, room)) stop();
}

static void send_records(void) {
    if (used) ask(RECORD, records, used * sizeof *records, NULL, 0, NULL, 0);
    used = 0;
}

/* At the end, the process prints its report. */
static void end(void) {
    if (!started) return;
    fflush(stdout);
    if (!ending) {
        ending = 1;
        if (used) tw_ask(&device, RECORD, records, used * sizeof *records, NULL, 0, NULL, 0);
    }
    started = 0;
    if (tw_leave(&device)) _exit(1);
}

static void start(void) {
    if (started) return;
    if (!tw_start(&device, -1)) stop();
    started = 1;
    atexit(end);
}

static uint32_t source_of(const char *file) {
    static uint32_t last;
    if (last < source_count && (sources[last] == file || !strcmp(sources[last], file))) return last;
    for (last = 0; last < source_count && strcmp(sources[last], file); last++) {}
    if (last == source_count) {
        if (source_count == MAX_SOURCES) return last = 0;
        ask(SOURCE, file, strlen(file), NULL, 0, NULL, 0);
        sources[source_count++] = file;
    }
    return last;
}

void tw_gemmini_enter(const char *file, int line) {
    if (call.depth++ == 0) call.file = file, call.line = line;
}

void tw_gemmini_refuse(const char *file, int line, const char *reason) {
    char text[512];
    snprintf(text, sizeof text, "%s:%d: %s", file, line, reason);
    tw_failed(text);
    stop();
    _exit(1);
}

void tw_gemmini_command(unsigned funct, uint64_t rs1, uint64_t rs2, const char *file, int line) {
    start();
    if (call.depth) file = call.file, line = call.line;
    record made = {rs1, rs2, funct, source_of(file), (uint32_t)line, 0};
    records[used++] = made;
    unseen = 1;
    if (used == FULL) send_records();
}

/* Whether memory is there. A command with a wild pointer must not end the host without a message. */
static int is_mapped(range it) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = it.address & -page;
    return !msync((void *)(uintptr_t)first, it.address + it.size - first, MS_ASYNC);
}

static range *ranges(uint32_t kind, uint64_t count) {
    range *found = malloc((count + 1) * sizeof *found);
    if (!found) tw_gemmini_refuse("gemmini", 0, "there is no memory left");
    if (count) ask(kind, NULL, 0, NULL, 0, found, count * sizeof *found);
    return found;
}

/* Run what is recorded, and let the results appear in memory. */
static void run(void) {
    uint64_t count;
    send_records();
    ask(NEEDED, NULL, 0, NULL, 0, &count, sizeof count);
    range *each = ranges(NEEDED_RANGES, count);
    for (uint64_t i = 0; i < count; i++) {
        int known = is_mapped(each[i]);
        ask(CONTENT, (void *)(uintptr_t)each[i].address, known ? each[i].size : 0, NULL, 0, NULL, 0);
    }
    free(each);
    ask(RUN, NULL, 0, NULL, 0, &count, sizeof count);
    each = ranges(STORED_RANGES, count);
    for (uint64_t i = 0; i < count; i++)
        ask(TAKE, &i, sizeof i, NULL, 0, (void *)(uintptr_t)each[i].address, each[i].size);
    free(each);
    unseen = 0;
}

void tw_gemmini_fence(const char *file, int line) {
    tw_gemmini_command(FENCE, 0, 0, file, line);
    run();
}

/* Programs rely on the results of functions that end without a fence (tiled_conv). The report says that none follows. */
void tw_gemmini_leave(void) {
    if (--call.depth == 0 && unseen) run();
}

uint64_t tw_gemmini_cycles(void) {
    uint64_t cycles = 0;
    start();
    send_records();
    ask(CYCLES, NULL, 0, NULL, 0, &cycles, sizeof cycles);
    return cycles;
}
