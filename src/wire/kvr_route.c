/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_route.h"


/* As kvr_form_name(), in the order of the forms. */

static const char *const  kvr_route_names[] = {
    "unknown", "unknown_ids", "unknown_local",
    "completions", "completions_ids", "completions_local",
    "chat", "chat_ids", "chat_local",
    "messages", "messages_ids", "messages_local",
    "responses", "responses_ids", "responses_local",
    "generate", "generate_ids", "generate_local",
    "sglang_generate", "sglang_generate_ids", "sglang_generate_local",
    "cached"
};

_Static_assert(sizeof(kvr_route_names) / sizeof(kvr_route_names[0])
               == KVR_ROUTES, "three routes for each form, and one");


uint32_t
kvr_route(kvr_form_t form, kvr_from_t from)
{
    return (form < KVR_FORM_NO_PROMPT ? form : KVR_FORM_UNKNOWN) * KVR_FROM
           + from;
}


const char *
kvr_route_name(uint32_t route)
{
    return kvr_route_names[route];
}
