/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>


#define KVR_RELAY_LINE  2048


static kvr_relay_level_t  kvr_relay_log_level = KVR_RELAY_INFO;
static const char        *kvr_relay_log_worker;

static const char *const  kvr_relay_levels[KVR_RELAY_LEVELS] = {
    "error", "warn", "info", "debug"
};


void
kvr_relay_log_init(kvr_relay_level_t level, const char *worker)
{
    kvr_relay_log_level = level;
    kvr_relay_log_worker = worker;
}


const char *
kvr_relay_level_name(kvr_relay_level_t level)
{
    return kvr_relay_levels[level];
}


void
kvr_relay_log(kvr_relay_level_t level, const char *msg, const char *fmt, ...)
{
    int              n;
    char             line[KVR_RELAY_LINE];
    size_t           len;
    va_list          args;
    struct tm        tm;
    struct timespec  ts;

    if (level > kvr_relay_log_level) {
        return;
    }

    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);

    len = strftime(line, sizeof(line), "time=%Y-%m-%dT%H:%M:%S", &tm);

    n = snprintf(line + len, sizeof(line) - len, ".%03ldZ level=%s%s%s msg=\""
                 "%s\"", ts.tv_nsec / 1000000, kvr_relay_levels[level],
                 kvr_relay_log_worker ? " worker=" : "",
                 kvr_relay_log_worker ? kvr_relay_log_worker : "", msg);
    len += (size_t) n;

    if (fmt != NULL && len < sizeof(line) - 2) {
        line[len++] = ' ';

        va_start(args, fmt);
        n = vsnprintf(line + len, sizeof(line) - len, fmt, args);
        va_end(args);

        len += (size_t) n;
    }

    if (len > sizeof(line) - 2) {
        len = sizeof(line) - 2;
    }

    line[len++] = '\n';

    /* a log that can't be written must not stop the relay */

    (void) !write(STDERR_FILENO, line, len);
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
