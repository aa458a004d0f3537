#define _GNU_SOURCE
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

#ifndef TW_MACHINE
#define TW_MACHINE NULL
#endif
/* What the process runs. The connection is its file 3. */
#define START "import sys; sys.path.insert(0, sys.argv[1])\nfrom " TW_SERVER " import main\nmain(3, *sys.argv[2:])\n"

extern char **environ;
/* Numbers of files in the process, and the first number that it does not use. */
enum { CONNECTION = 3, SHARED = 4, UNUSED = 5, LARGEST = 1 << 30 };

static __thread char *last_error;

const char *tw_last_error(void) { return last_error ? last_error : ""; }

void tw_failed(const char *reason) {
    free(last_error);
    last_error = strdup(reason);
    fprintf(stderr, "tilewright: %s\n", reason);
}

static int put(int socket, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size) {
        ssize_t done = send(socket, at, size, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        at += done;
        size -= (size_t)done;
    }
    return 1;
}

static int get(int socket, void *bytes, size_t size) {
    char *at = bytes;
    while (size) {
        ssize_t done = recv(socket, at, size, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        at += done;
        size -= (size_t)done;
    }
    return 1;
}

int tw_ask(
    struct tw_connection *to, uint32_t kind, const void *first, size_t size, const void *second, size_t more,
    void *answer, size_t room) {
    if (size + more > LARGEST) return tw_failed("a call with more than 1 GiB of data; divide it"), -1;
    uint32_t head[2] = {kind, (uint32_t)(size + more)};
    int32_t reply[2];
    pthread_mutex_lock(&to->lock);
    int status = TW_ENDED;
    char *text = NULL;
    int sent = put(to->socket, head, sizeof head) && put(to->socket, first, size) && put(to->socket, second, more);
    if (sent && get(to->socket, reply, sizeof reply)) {
        status = reply[0];
        if (status == 0 && room && (size_t)reply[1] == room) {
            if (!get(to->socket, answer, room)) status = TW_ENDED;
        } else if (reply[1] > 0 && (text = calloc(1, (size_t)reply[1] + 1))) {
            if (!get(to->socket, text, (size_t)reply[1])) {
                status = TW_ENDED;
                free(text);
                text = NULL;
            }
        }
    }
    pthread_mutex_unlock(&to->lock);
    if (status == 0 && text) fprintf(stderr, "%s", text);
    if (status != 0) tw_failed(text ? text : "the process of the device has ended");
    free(text);
    return status;
}

/* Return a file by another number, which the process does not get and which is none of its two. */
static int moved(int file) {
    int found = fcntl(file, F_DUPFD_CLOEXEC, UNUSED);
    close(file);
    return found;
}

int tw_start(struct tw_connection *made, int shared) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return tw_failed("no socket is left for the device"), 0;
    made->socket = moved(pair[0]);
    pair[1] = moved(pair[1]);
    const char *python = getenv("TILEWRIGHT_PYTHON");
    char *arguments[] = {(char *)(python ? python : TW_PYTHON), "-P", "-c", START, TW_ROOT, TW_MACHINE, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pair[1], CONNECTION);
    int copy = shared < 0 ? -1 : fcntl(shared, F_DUPFD_CLOEXEC, UNUSED);
    if (copy >= 0) posix_spawn_file_actions_adddup2(&actions, copy, SHARED);
    posix_spawnattr_t attributes; /* Ctrl-C is for the host alone: the process ends with it */
    sigset_t blocked;
    posix_spawnattr_init(&attributes);
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    sigaddset(&blocked, SIGINT);
    posix_spawnattr_setsigmask(&attributes, &blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int error = made->socket < 0 || pair[1] < 0 || (shared >= 0 && copy < 0);
    error = error || posix_spawnp(&made->process, arguments[0], &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (copy >= 0) close(copy);
    close(pair[1]);
    if (error) {
        close(made->socket);
        return tw_failed("Python does not start; set TILEWRIGHT_PYTHON to its path"), 0;
    }
    pthread_mutex_init(&made->lock, NULL);
    return 1;
}

int tw_leave(struct tw_connection *it) {
    int status = 0;
    close(it->socket);
    while (waitpid(it->process, &status, 0) < 0 && errno == EINTR) {}
    pthread_mutex_destroy(&it->lock);
    return status;
}
