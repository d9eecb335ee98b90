/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Commands to Redis and their answers, as far as no connection is needed.
 */


#include "kvr_relay.h"

#include <stdarg.h>


#define KVR_RELAY_ARGS        16


void
kvr_relay_redis_bytes(kvr_relay_t *r, kvr_relay_reply_pt *reply, void *data,
    const char *bytes, size_t bytes_len, ...)
{
    int          n;
    size_t       len[KVR_RELAY_ARGS];
    va_list      args;
    const char  *argv[KVR_RELAY_ARGS];

    va_start(args, bytes_len);

    for (n = 0; n < KVR_RELAY_ARGS; n++) {
        argv[n] = va_arg(args, const char *);

        if (argv[n] == NULL) {
            break;
        }

        len[n] = argv[n] == bytes ? bytes_len : strlen(argv[n]);
    }

    va_end(args);

    kvr_relay_redis_argv(r, reply, data, n, argv, len);
}


void
kvr_relay_redis_spared(const char *command, const char *lack, bool *said,
    const redisReply *reply)
{
    char  quoted[KVR_RELAY_QUOTED];

    if (reply == NULL) {
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR && !*said) {
        kvr_relay_log(KVR_RELAY_WARN, "redis refuses", "command=%s why=%s "
                      "lack=\"%s\"", command,
                      kvr_relay_quote(quoted, reply->str, reply->len), lack);
    }

    *said = reply->type == REDIS_REPLY_ERROR;
}
