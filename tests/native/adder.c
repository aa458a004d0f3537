#include "adder.h"

#include "connection.h"
#include "requests.h"

static struct tw_connection device;

int adder_start(void) { return tw_start(&device, -1) && tw_ask(&device, RESET, 0, 0, 0, 0, 0, 0) == 0; }

int adder_add(uint32_t times, uint64_t number) {
    return tw_ask(&device, ADD, &times, sizeof times, &number, sizeof number, 0, 0);
}

int adder_total(uint64_t *total) { return tw_ask(&device, TOTAL, 0, 0, 0, 0, total, sizeof *total); }
int adder_refuse(uint32_t number) { return tw_ask(&device, REFUSE, &number, sizeof number, 0, 0, 0, 0); }
int adder_end(void) { return tw_leave(&device); }
