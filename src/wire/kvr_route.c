/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_route.h"


#define routes(id, name, ...)  name, name "_ids", name "_local",

static const char *const  kvr_route_names[] = { KVR_FORM_ROWS(routes) };

#undef routes


uint32_t
kvr_route(kvr_form_t form, kvr_from_t from)
{
    return (form < KVR_FORM_NO_PROMPT ? form : KVR_FORM_UNKNOWN) * KVR_FROM
           + from;
}


const char *
kvr_route_name(uint32_t route)
{
    return route == KVR_ROUTE_CACHED ? "cached" : kvr_route_names[route];
}
