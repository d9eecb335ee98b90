/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Routes: in which ways a prompt becomes token ids.  The form of the request
 * is one half of a route, and where its ids came from is the other half: an
 * engine's tokenizer, the body, or the zone's model.  Whether the ids are
 * those of the engine is known for each route by itself (kvr_trust.h).
 */


#ifndef KVR_ROUTE_H_INCLUDED
#define KVR_ROUTE_H_INCLUDED


#include "kvr_forms.h"


typedef enum {
    KVR_IDS_OF_ENGINE = 0,          /* or of Lua code */
    KVR_IDS_OF_BODY,
    KVR_IDS_OF_MODEL,
    KVR_IDS_SOURCES
} kvr_ids_t;


/* Routes are 0..KVR_ROUTES - 1: three for each form that has a prompt. */
#define KVR_ROUTES   (KVR_IDS_SOURCES * KVR_FORM_NO_PROMPT)


/*
 * The route of a request of this form; one that has no prompt counts as
 * unknown.
 */
uint32_t kvr_route(kvr_form_t form, kvr_ids_t ids);

/* "chat", "chat_ids", "chat_local", …; "unknown", … */
const char *kvr_route_name(uint32_t route);


#endif /* KVR_ROUTE_H_INCLUDED */
