
/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tell.h"

#include <stdarg.h>
#include <stdio.h>


void
kvr_tell(const kvr_tell_t *t, kvr_level_t level, const char *fmt, ...)
{
    char     text[KVR_TELL_MAX];
    va_list  args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    t->log(t->data, level, text);
}


void
kvr_tell_refused(const kvr_tell_t *t, const char **logged, const char *worker,
    size_t len, const char *detail)
{
    t->count(t->data, KVR_COUNT_MESSAGES_REFUSED);

    kvr_tell(t, *logged == detail ? KVR_LOG_INFO : KVR_LOG_ERROR,
             "message of worker \"%.*s\" refused: %s", (int) len, worker,
             detail);

    *logged = detail;
}
