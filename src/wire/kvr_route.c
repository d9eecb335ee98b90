/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_route.h"


/* The first ending that fits counts; the last one fits all. */

static const struct {
    const char  *ending;
    const char  *names[2];          /* by a tokenizer; ids in the body */
} kvr_route_forms[] = {
    { "/chat/completions",      { "chat", "chat_ids" } },
    { "/completions",           { "completions", "completions_ids" } },
    { "/messages",              { "messages", "messages_ids" } },
    { "/responses",             { "responses", "responses_ids" } },
    { "/inference/v1/generate", { "generate", "generate_ids" } },
    { "/generate",              { "sglang_generate", "sglang_generate_ids" } },
    { "",                       { "unknown", "unknown_ids" } }
};

_Static_assert(sizeof(kvr_route_forms) / sizeof(kvr_route_forms[0]) * 2
               == KVR_ROUTES, "two routes for each form");


uint32_t
kvr_route(const char *path, size_t len, bool ids)
{
    size_t    n;
    uint32_t  i;

    for (i = 0; /* void */ ; i++) {
        n = strlen(kvr_route_forms[i].ending);

        if (n <= len
            && memcmp(path + len - n, kvr_route_forms[i].ending, n) == 0)
        {
            return i * 2 + ids;
        }
    }
}


const char *
kvr_route_name(uint32_t route)
{
    return kvr_route_forms[route / 2].names[route % 2];
}
