/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The roll: the workers that are registered in Redis (docs/events.md, "Members
 * in Redis").  Each process that has leases reads the roll, for the workers of
 * its shards.  A state machine without I/O: it names the next question for
 * Redis, and the caller passes the answer to it.
 *
 *     kvr_roll_begin()          at first, and again some time after each end
 *        │
 *        ▼                     for each id: HMGET kv-worker:{id}, PTTL
 *     SSCAN kv-workers ──► page ──► register, or ignore
 *        ▲                  │
 *        └──────────────────┘ until the cursor is 0
 *        │
 *        ▼
 *     workers of Redis that no page had: asked for in the same way
 *        │
 *        ▼
 *     workers that have neither are taken out, after Redis was connected
 *     long enough for their publishers to register
 *
 * A publisher renews its hash each second, and lets it expire when it dies:
 * then the id stays in the set, and the worker in the zone, silent; unless it
 * fails its active checks as well, when it is taken out in the same way.
 *
 * What an answer does, by question:
 *
 *               SSCAN           HMGET                 PTTL
 *     array     ids are asked   fields, with PTTL     the poll fails
 *     integer   fails           fails                 register, ignore, silent
 *     string    fails           fails                 fails
 *     nil       fails           fails                 fails
 *     error     fails           fails; WRONGTYPE:     fails
 *                               refuses the worker
 *     too big,  fails, and logs nothing: the connection's owner does
 *     lost
 *
 * A poll that fails takes no worker out, and the time after which workers are
 * taken out begins again.
 */


#ifndef KVR_ROLL_H_INCLUDED
#define KVR_ROLL_H_INCLUDED


#include "kvr_ask.h"
#include "kvr_reply.h"
#include "kvr_tell.h"
#include "../zone/kvr_router.h"


/* of a registration, milliseconds */
#define KVR_ROLL_TTL        15000

/* workers asked for at a time */
#define KVR_ROLL_ASKED      32

/* the maximum number of warnings that are remembered */
#define KVR_ROLL_WARNINGS   1024


typedef struct kvr_roll_s  kvr_roll_t;


typedef struct {
    kvr_router_t      *router;
    const kvr_tell_t  *tell;
    const char        *only;        /* the id of the only worker that is read;
                                       NULL: all are */
    size_t             only_len;
    const char        *channel;     /* the beginning of channels' names;
                                       NULL: any */
    size_t             channel_len;
    bool               checked;     /* workers have active checks */

    void              *data;        /* of the two functions */
    const char      *(*address_wrong)(void *data, const char *address);
                                    /* NULL, or why, a sentence for good */
    void             (*registered)(void *data, uint32_t worker);
                                    /* for the first time */
} kvr_roll_conf_t;


/* a worker of the zone, by its number */
typedef struct {
    uint32_t           generation;  /* of the worker asked for */
    uint32_t           poll;        /* the last that found it */
    uint32_t           absences;    /* polls since then */
    bool               drains;      /* as its registration said, logged */
} kvr_roll_member_t;


/* a worker that was asked for: two answers are to come */
typedef struct {
    kvr_roll_t        *roll;
    char               id[KVR_WORKER_ID_MAX + 1];
    size_t             len;
    bool               drained;     /* as kvr_registration_t */
    kvr_reply_t        hash;
} kvr_roll_asked_t;


typedef struct {
    uint32_t           id;          /* a hash of it */
    const char        *text;
} kvr_roll_warning_t;


typedef enum {
    KVR_ROLL_IDLE = 0,
    KVR_ROLL_SCAN,                  /* a page is to be asked for, or to come */
    KVR_ROLL_PAGE,                  /* ids of a page are asked for */
    KVR_ROLL_REST                   /* workers that are in no page are */
} kvr_roll_state_t;


struct kvr_roll_s {
    kvr_roll_conf_t      conf;
    kvr_roll_state_t     state;
    bool                 scanning;  /* SSCAN was asked */
    bool                 half;      /* HMGET was asked, PTTL was not yet */
    bool                 failed;    /* this poll */
    bool                 logged;    /* polls fail */
    uint32_t             poll;      /* number of this one */
    uint64_t             begun;     /* this poll, ms */
    uint64_t             since;     /* Redis has been there, ms */
    uint64_t             shards;    /* of this poll, a bit each */
    uint32_t             version;   /* of the zone, looked at */

    kvr_reply_t          page;      /* of SSCAN; kept for its cursor until the
                                       next one is there */
    size_t               next;      /* of it, or of the rest */
    uint32_t             ids;       /* of this poll */
    uint32_t             pages;     /* the same */

    kvr_roll_asked_t     asked[KVR_ROLL_ASKED];     /* a ring */
    uint32_t             first;
    uint32_t             nasked;

    kvr_roll_member_t   *members;
    uint32_t             nmembers;
    kvr_roll_warning_t   warnings[KVR_ROLL_WARNINGS];
};


typedef enum {
    KVR_ROLL_ASK_PAGE,      /* send the command; its reply is for
                               kvr_roll_page(), */
    KVR_ROLL_ASK_HASH,      /* kvr_roll_hash(), */
    KVR_ROLL_ASK_TTL,       /* kvr_roll_ttl(); then call again */
    KVR_ROLL_WAIT,          /* call again after an answer */
    KVR_ROLL_ENDED,         /* begin again, later */
    KVR_ROLL_LOST           /* the lease is another process's */
} kvr_roll_rc_t;


/* conf is copied, but not what it points to.  KVR_FULL: no memory. */
kvr_rc_t kvr_roll_open(kvr_roll_t *m, const kvr_roll_conf_t *conf);
void kvr_roll_close(kvr_roll_t *m);

/* A connection was lost, or is new: forgets the poll and what it asked. */
void kvr_roll_reset(kvr_roll_t *m);

/* A new connection: nothing is known of any worker. */
void kvr_roll_connected(kvr_roll_t *m, uint64_t now_ms);

/* Begins a poll of the workers of these shards, a bit each. */
void kvr_roll_begin(kvr_roll_t *m, uint64_t now_ms, uint64_t shards);

/*
 * True when a poll should begin at once: there are workers, or shards, for
 * which no poll asked yet.  To be called between polls.
 */
bool kvr_roll_due(kvr_roll_t *m, uint64_t now_ms, uint64_t shards);

/* Goes on.  KVR_ROLL_ASK_HASH, _TTL: *asked is the worker asked for. */
kvr_roll_rc_t kvr_roll_step(kvr_roll_t *m, uint64_t now_ms, kvr_ask_t *ask,
    kvr_roll_asked_t **asked);

/*
 * Answers; they own the reply.  Those of one worker must come in the order of
 * the questions.  KVR_LOST: the lease is another process's.
 */
void kvr_roll_page(kvr_roll_t *m, kvr_reply_t *reply);
void kvr_roll_hash(kvr_roll_asked_t *asked, kvr_reply_t *reply);
kvr_rc_t kvr_roll_ttl(kvr_roll_asked_t *asked, uint64_t now_ms,
    kvr_reply_t *reply);


#endif /* KVR_ROLL_H_INCLUDED */
