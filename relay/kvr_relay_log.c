/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_log.h"

#include "kvr.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>


#define KVR_RELAY_LINE  2048


static void kvr_relay_log_open(void);
static bool kvr_relay_log_line(kvr_relay_level_t level, const char *msg,
    const char *more);


static int                kvr_relay_log_fd = STDERR_FILENO;
static bool               kvr_relay_log_cut;        /* in a line */
static kvr_relay_level_t  kvr_relay_log_level = KVR_RELAY_INFO;
static const char        *kvr_relay_log_worker;
static uint64_t           kvr_relay_log_lost;       /* all since the start, */
static uint64_t           kvr_relay_log_told;       /* those told of */

static const char *const  kvr_relay_levels[KVR_RELAY_LEVELS] = {
    "error", "warn", "info", "debug"
};


void
kvr_relay_log_init(kvr_relay_level_t level, const char *worker)
{
    kvr_relay_log_level = level;
    kvr_relay_log_worker = worker;

    kvr_relay_log_open();
}


/*
 * Opens stderr anew without blocking. poll() says that a terminal can be
 * written to when it has room for one byte, so a long write could block; and
 * the flag O_NONBLOCK of the file as it is would also be set for other
 * processes that have the file open.
 */
static void
kvr_relay_log_open(void)
{
    int          fd;
    struct stat  st;

    if (fstat(STDERR_FILENO, &st) != 0
        || (!S_ISFIFO(st.st_mode) && !isatty(STDERR_FILENO)))
    {
        return;
    }

    fd = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY
              | O_CLOEXEC);

    if (fd >= 0) {
        kvr_relay_log_fd = fd;
    }
}


const char *
kvr_relay_level_name(kvr_relay_level_t level)
{
    return kvr_relay_levels[level];
}


void
kvr_relay_log(kvr_relay_level_t level, const char *msg, const char *fmt, ...)
{
    char     more[KVR_RELAY_LINE];
    va_list  args;

    if (level > kvr_relay_log_level) {
        return;
    }

    kvr_relay_log_tick();

    more[0] = '\0';

    if (fmt != NULL) {
        va_start(args, fmt);
        (void) vsnprintf(more, sizeof(more), fmt, args);
        va_end(args);
    }

    if (!kvr_relay_log_line(level, msg, more)) {
        kvr_relay_log_lost++;
    }
}


void
kvr_relay_log_tick(void)
{
    char  more[32];

    if (kvr_relay_log_lost == kvr_relay_log_told) {
        return;
    }

    snprintf(more, sizeof(more), "n=%llu", (unsigned long long)
             (kvr_relay_log_lost - kvr_relay_log_told));

    if (kvr_relay_log_line(KVR_RELAY_WARN, "lines dropped", more)) {
        kvr_relay_log_told = kvr_relay_log_lost;
    }
}


uint64_t
kvr_relay_log_dropped(void)
{
    return kvr_relay_log_lost;
}


/* Writes a line.  False: stderr does not take it now. */

static bool
kvr_relay_log_line(kvr_relay_level_t level, const char *msg, const char *more)
{
    int              n;
    ssize_t          written;
    char             line[KVR_RELAY_LINE];
    size_t           len;
    struct tm        tm;
    struct pollfd    out;
    struct timespec  ts;

    /*
     * A log that is not read must not stop the relay.  A descriptor that
     * poll() says is ready takes a line at once: a pipe then has room for
     * PIPE_BUF bytes, and a socket for more.
     */

    out.fd = kvr_relay_log_fd;
    out.events = POLLOUT;

    if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT)) {
        return false;
    }

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);

    len = strftime(line, sizeof(line), kvr_relay_log_cut
                   ? "\ntime=%Y-%m-%dT%H:%M:%S" : "time=%Y-%m-%dT%H:%M:%S",
                   &tm);

    n = snprintf(line + len, sizeof(line) - len, ".%03ldZ level=%s%s%s msg=\""
                 "%s\"%s%s", ts.tv_nsec / 1000000, kvr_relay_levels[level],
                 kvr_relay_log_worker ? " worker=" : "",
                 kvr_relay_log_worker ? kvr_relay_log_worker : "", msg,
                 *more ? " " : "", more);

    len = kvr_min(len + (size_t) n, sizeof(line) - 2);
    line[len++] = '\n';

    written = write(kvr_relay_log_fd, line, len);

    if (written > 0) {
        kvr_relay_log_cut = written != (ssize_t) len;
    }

    return written == (ssize_t) len;
}


const char *
kvr_relay_quote(char out[KVR_RELAY_QUOTED], const char *text, size_t len)
{
    char    *p;
    size_t   i;

    p = out;
    *p++ = '"';

    for (i = 0; i < len && p < out + KVR_RELAY_QUOTED - 4; i++) {

        if (text[i] == '"' || text[i] == '\\') {
            *p++ = '\\';
            *p++ = text[i];

        } else if ((unsigned char) text[i] < 0x20 || text[i] == 0x7f) {
            *p++ = ' ';

        } else {
            *p++ = text[i];
        }
    }

    *p++ = '"';
    *p = '\0';

    return out;
}


int
kvr_relay_bad(const char *name, const char *fmt, ...)
{
    va_list  args;

    fprintf(stderr, "kv-relay: %s%s ", strncmp(name, "--", 2) ? "--" : "",
            name);

    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);

    fprintf(stderr, "\n");

    return KVR_RELAY_BAD;
}


const char *
kvr_relay_shown(const char *value)
{
    return strchr(value, '@') ? "…" : value;
}
