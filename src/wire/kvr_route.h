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


#include "../kvr.h"


#define KVR_ROUTES   14             /* routes are 0..KVR_ROUTES - 1 */


/*
 * The route of a request to this path, of which only the last segments count:
 * "/v1/chat/completions".  ids: the token ids are the body's own.
 */
uint32_t kvr_route(const char *path, size_t len, bool ids);

/* "chat", "chat_ids", …; "unknown" if the path has no form of its own. */
const char *kvr_route_name(uint32_t route);


#endif /* KVR_ROUTE_H_INCLUDED */
