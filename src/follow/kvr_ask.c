
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


void
kvr_ask_key(kvr_ask_t *ask, const char *name, const char *worker, size_t len)
{
    char    *key;
    size_t   n;

    key = ask->bytes + ask->used;
    n = kvr_key(key, name, worker, len);

    ask->used += n + 1;

    kvr_ask_bytes(ask, key, n);
}


void
kvr_ask_part(kvr_ask_t *ask, const char *worker, size_t len, uint64_t epoch,
    uint64_t seq, uint32_t part)
{
    char    *key;
    size_t   n;

    key = ask->bytes + ask->used;
    n = kvr_key_part(key, worker, len, epoch, seq, false, part);

    ask->used += n + 1;

    kvr_ask_bytes(ask, key, n);
}


void
kvr_ask_printf(kvr_ask_t *ask, const char *fmt, ...)
{
    char     *text;
    size_t    n;
    va_list   args;

    text = ask->bytes + ask->used;

    va_start(args, fmt);
    n = vsnprintf(text, KVR_ASK_PRINTED, fmt, args);
    va_end(args);

    ask->used += n + 1;

    kvr_ask_bytes(ask, text, n);
}
