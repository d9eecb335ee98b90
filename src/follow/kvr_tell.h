/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where the machines of this room log and count: their owner has the log and
 * the counters.
 */


#ifndef KVR_TELL_H_INCLUDED
#define KVR_TELL_H_INCLUDED


#include "../kvr.h"


/* bytes of a message, with the null byte; longer ones are cut */
#define KVR_TELL_MAX  1024


typedef enum {
    KVR_LOG_ALERT = 0,
    KVR_LOG_ERROR,
    KVR_LOG_WARN,
    KVR_LOG_NOTICE,
    KVR_LOG_INFO,
    KVR_LOG_DEBUG
} kvr_level_t;


typedef enum {
    KVR_COUNT_MESSAGES_REFUSED = 0,
    KVR_COUNT_MESSAGES_DROPPED,
    KVR_COUNT_REPAIRS_STARTED,
    KVR_COUNT_REPAIRS_DONE,
    KVR_COUNT_REPAIRS_FAILED,
    KVR_COUNT_SNAPSHOTS_LOADED,
    KVR_COUNT_SNAPSHOTS_REFUSED,
    KVR_COUNT_SNAPSHOTS_ASKED,
    KVR_COUNTS
} kvr_count_t;


typedef struct {
    void  *data;
    void (*log)(void *data, kvr_level_t level, const char *text);
    void (*count)(void *data, kvr_count_t what);
    bool   debug;                   /* messages of KVR_LOG_DEBUG are wanted */
} kvr_tell_t;


void kvr_tell(const kvr_tell_t *t, kvr_level_t level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As kvr_tell(), of KVR_LOG_DEBUG: the arguments are only read if wanted. */
#define kvr_tell_debug(t, ...)                                                \
    do {                                                                      \
        if ((t)->debug) {                                                     \
            kvr_tell(t, KVR_LOG_DEBUG, __VA_ARGS__);                          \
        }                                                                     \
    } while (0)

/*
 * Counts a message of which all is refused, and logs why: as an error when
 * *logged, the reason of the last one, is another sentence.
 */
void kvr_tell_refused(const kvr_tell_t *t, const char **logged,
    const char *worker, size_t len, const char *detail);


#endif /* KVR_TELL_H_INCLUDED */
