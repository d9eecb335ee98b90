/*
 * Copyright (C) the nginx-kv-router authors
 *
 * INFO of Redis: whether the router and kv-relay can work with a server.
 */


#ifndef KVR_REDIS_INFO_H_INCLUDED
#define KVR_REDIS_INFO_H_INCLUDED


#include "../kvr.h"


/*
 * NULL, or why the server that answered INFO with this text is refused: a
 * sentence about "it", that lives forever.  master: a Sentinel named
 * the server as a master.
 */
const char *kvr_redis_info_refused(const char *info, bool master);

/* Is it a replica?  What is published there stays there. */
bool kvr_redis_info_replica(const char *info);

/* As above, of an error that a server answered a command with. */
const char *kvr_redis_error_refused(const char *error);


#endif /* KVR_REDIS_INFO_H_INCLUDED */
