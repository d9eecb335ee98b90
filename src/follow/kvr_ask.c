
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_ask.h"

#include <stdarg.h>
#include <stdio.h>


#define KVR_ASK_PRINTED  48


void
kvr_ask_begin(kvr_ask_t *ask, const char *command)
{
    ask->argc = 0;
    ask->used = 0;

    kvr_ask_text(ask, command);
}


void
kvr_ask_text(kvr_ask_t *ask, const char *text)
{
    kvr_ask_bytes(ask, text, strlen(text));
}


void
kvr_ask_bytes(kvr_ask_t *ask, const char *text, size_t len)
{
    ask->argv[ask->argc] = text;
    ask->len[ask->argc++] = len;
}


/* Adds the n bytes that were written behind the last, and a null byte. */

static void
kvr_ask_made(kvr_ask_t *ask, size_t n)
{
    kvr_ask_bytes(ask, ask->bytes + ask->used, n);
    ask->used += n + 1;
}


void
kvr_ask_key(kvr_ask_t *ask, const char *name, const char *worker, size_t len)
{
    kvr_ask_made(ask, kvr_key(ask->bytes + ask->used, name, worker, len));
}


void
kvr_ask_part(kvr_ask_t *ask, const char *worker, size_t len, uint64_t epoch,
    uint64_t seq, uint32_t part)
{
    kvr_ask_made(ask, kvr_key_part(ask->bytes + ask->used, worker, len, epoch,
                                   seq, false, part));
}


void
kvr_ask_printf(kvr_ask_t *ask, const char *fmt, ...)
{
    size_t    n;
    va_list   args;

    va_start(args, fmt);
    n = vsnprintf(ask->bytes + ask->used, KVR_ASK_PRINTED, fmt, args);
    va_end(args);

    kvr_ask_made(ask, n);
}
