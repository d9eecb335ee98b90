/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Routes: in which ways a prompt becomes token ids.  The form of the request
 * is one half of a route, and where its ids came from is the other half: an
 * engine, the body, or the zone's model.  Whether the ids are those of the
 * engine is known for each route by itself (kvr_trust.h).  One route more
 * stands for what engines say of themselves that they had cached.
 */


#ifndef KVR_ROUTE_H_INCLUDED
#define KVR_ROUTE_H_INCLUDED


#include "kvr_forms.h"


/* Where the token ids of a prompt came from. */
typedef enum {
    KVR_FROM_ENGINE = 0,
    KVR_FROM_BODY,
    KVR_FROM_MODEL,
    KVR_FROM                    /* the number of those above */
} kvr_from_t;


/* Routes are 0..KVR_ROUTES - 1: three for each form that has a prompt. */
#define KVR_ROUTE_CACHED   (KVR_FROM * KVR_FORM_NO_PROMPT)
#define KVR_ROUTES         (KVR_ROUTE_CACHED + 1)


/*
 * The route of a request of this form; one that has no prompt counts as
 * unknown.
 */
uint32_t kvr_route(kvr_form_t form, kvr_from_t from);

/* "chat", "chat_ids", "chat_local", …; "unknown", …; "cached" */
const char *kvr_route_name(uint32_t route);


#endif /* KVR_ROUTE_H_INCLUDED */
