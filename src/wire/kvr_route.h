/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Routes: in which ways a prompt becomes token ids.  The form of the request
 * is one half of a route, and where its ids came from is the other half: the
 * body, or a tokenizer.  Whether the ids are those of the engine is known for
 * each route by itself (kvr_trust.h).
 */


#ifndef KVR_ROUTE_H_INCLUDED
#define KVR_ROUTE_H_INCLUDED


#include "kvr_forms.h"


/* Routes are 0..KVR_ROUTES - 1: two for each form that has a prompt. */
#define KVR_ROUTES   (2 * KVR_FORM_NO_PROMPT)


/*
 * The route of a request of this form; one that has no prompt counts as
 * unknown.  ids: the token ids are the body's own.
 */
uint32_t kvr_route(kvr_form_t form, bool ids);

/* "chat", "chat_ids", …; "unknown", "unknown_ids" */
const char *kvr_route_name(uint32_t route);


#endif /* KVR_ROUTE_H_INCLUDED */
