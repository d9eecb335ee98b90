/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The first commands of a connection to Redis: AUTH, INFO, SELECT, PING; of
 * one to a Sentinel AUTH and the question for the master.
 */


#ifndef KVR_RELAY_GREET_H_INCLUDED
#define KVR_RELAY_GREET_H_INCLUDED


#include "kvr_relay_redis.h"


/*
 * Sends the first commands.  Their replies bring the connection up or break
 * it.  After the reply of a Sentinel the next connection goes to the master.
 */
void kvr_relay_greet(kvr_relay_t *r);


#endif /* KVR_RELAY_GREET_H_INCLUDED */
