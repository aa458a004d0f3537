/* The connection of a host to the process that holds its device.
 *
 * A request is its kind and size (4 bytes each) and a payload; the answer is a status, a size and a payload. The status
 * 0 is a success.
 */
#ifndef TILEWRIGHT_CONNECTION_H
#define TILEWRIGHT_CONNECTION_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#pragma GCC visibility push(hidden) /* a host may have several libraries with these functions */

/* The status of a request to a process that has ended. */
enum { TW_ENDED = 1 };

struct tw_connection {
    int socket;
    pid_t process;
    pthread_mutex_t lock;
};

/* Keep the reason of this thread's last failure, and print it on stderr. */
void tw_failed(const char *reason);
const char *tw_last_error(void);

/* Start the process: the function main of the module TW_SERVER, with the number of its connection, and with the path of
 * the machine if there is TW_MACHINE. `shared`, if not negative, is a file that it gets as number 4. Returns 0 if it does
 * not start. */
int tw_start(struct tw_connection *made, int shared);

/* Send a request of two parts. The answer's payload goes to `answer` if it has exactly `room` bytes; other payloads of
 * a success are findings, those of a failure are its reason. Both are printed. Returns the status. */
int tw_ask(
    struct tw_connection *to, uint32_t kind, const void *first, size_t size, const void *second, size_t more,
    void *answer, size_t room);

/* Close the connection, upon which the process ends, and wait for its end. Returns 0 if it ended without an error. */
int tw_leave(struct tw_connection *it);

#pragma GCC visibility pop

#endif
