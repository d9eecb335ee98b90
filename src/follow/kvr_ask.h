/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A command for Redis, with its arguments, which may point into it: it must
 * not be copied.
 */


#ifndef KVR_ASK_H_INCLUDED
#define KVR_ASK_H_INCLUDED


#include "../wire/kvr_keys.h"
#include "../wire/kvr_worker_conf.h"


/* the longest commands: HMGET, a key, and the fields of a hash */
#define KVR_ASK_ARGS   (2 + KVR_MEMBER_ROUTER)

/* bytes of the arguments that are made here: a key, and three of numbers */
#define KVR_ASK_BYTES  (KVR_KEY_MAX + 3 * 48)

_Static_assert((int) KVR_POINTER_ROUTER <= (int) KVR_MEMBER_ROUTER,
               "the longest command is not the one that asks for a member");


typedef struct {
    int          argc;
    const char  *argv[KVR_ASK_ARGS];
    size_t       len[KVR_ASK_ARGS];
    char         bytes[KVR_ASK_BYTES];
    size_t       used;
} kvr_ask_t;


/* Begins with an argument, a text that lives longer than the command. */
void kvr_ask_begin(kvr_ask_t *ask, const char *command);

/* Adds such a text, or bytes of one. */
void kvr_ask_text(kvr_ask_t *ask, const char *text);
void kvr_ask_bytes(kvr_ask_t *ask, const char *text, size_t len);

/* Adds the key of a worker: see kvr_key(). */
void kvr_ask_key(kvr_ask_t *ask, const char *name, const char *worker,
    size_t len);

/* Adds the key of a part of a snapshot, for routers: see kvr_key_part(). */
void kvr_ask_part(kvr_ask_t *ask, const char *worker, size_t len,
    uint64_t epoch, uint64_t seq, uint32_t part);

/* Adds what printf makes of fmt: 47 bytes at most. */
void kvr_ask_printf(kvr_ask_t *ask, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


#endif /* KVR_ASK_H_INCLUDED */
