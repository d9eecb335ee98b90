/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What becomes of a member, for kvr_roll.c alone.
 */


#ifndef KVR_ROLL_MEMBER_H_INCLUDED
#define KVR_ROLL_MEMBER_H_INCLUDED


#include "kvr_roll.h"


/*
 * Redis has the worker, with asked->hash and ttl, milliseconds to live or one
 * of PTTL's codes.  KVR_LOST: the lease is another process's.
 */
kvr_rc_t kvr_roll_found(kvr_roll_t *m, kvr_roll_asked_t *asked, int64_t ttl,
    uint64_t now_ms);

/* The worker is no longer in Redis.  KVR_LOST as above. */
kvr_rc_t kvr_roll_gone(kvr_roll_t *m, uint32_t worker);

/* Was Redis connected long enough to know that a worker is absent? */
bool kvr_roll_sure(const kvr_roll_t *m, uint64_t now_ms);

/* NULL: not a worker of the zone. */
kvr_roll_member_t *kvr_roll_member(kvr_roll_t *m, const char *id, size_t len);

/*
 * The poll failed: it can't find absent workers.  Logs the cause, once.  key:
 * of what was asked; reply NULL: there are too many.
 */
void kvr_roll_fail(kvr_roll_t *m, const char *key, const kvr_reply_t *reply);

/*
 * Logs a warning about an id once; what NULL: the cause has gone.  more:
 * what follows the text, or NULL.
 */
void kvr_roll_warn(kvr_roll_t *m, const char *id, size_t len,
    const char *what, const char *text, const char *more);


#endif /* KVR_ROLL_MEMBER_H_INCLUDED */
