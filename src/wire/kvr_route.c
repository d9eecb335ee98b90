/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_route.h"


/* As kvr_form_name(), in the order of the forms. */

static const char *const  kvr_route_names[] = {
    "unknown", "unknown_ids", "completions", "completions_ids", "chat",
    "chat_ids", "messages", "messages_ids", "responses", "responses_ids",
    "generate", "generate_ids", "sglang_generate", "sglang_generate_ids"
};

_Static_assert(sizeof(kvr_route_names) / sizeof(kvr_route_names[0])
               == KVR_ROUTES, "two routes for each form");


uint32_t
kvr_route(kvr_form_t form, bool ids)
{
    return (form < KVR_FORM_NO_PROMPT ? form : KVR_FORM_UNKNOWN) * 2 + ids;
}


const char *
kvr_route_name(uint32_t route)
{
    return kvr_route_names[route];
}
