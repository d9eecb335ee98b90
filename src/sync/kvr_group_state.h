/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The state of a group, for its own files: kvr_group.c hears and ticks,
 * kvr_group_fleet.c has what is of holders: sums, and homes.  kvr_teller.c
 * reads the fleet.
 */


#ifndef KVR_GROUP_STATE_H_INCLUDED
#define KVR_GROUP_STATE_H_INCLUDED


#include "kvr_group.h"
#include "kvr_adds.h"
#include "kvr_news.h"


#define KVR_GROUP_MAKE_US  100000       /* between two looks at the fleet, and
                                           two makings of the homes */
#define KVR_GROUP_ROW_US   1500000      /* see NOTHING IS REPAIRED */


/* A holder as a peer told it; all zero: nothing is in flight. */
typedef struct {
    uint64_t            clock_us;       /* of the peer */
    kvr_load_row_t      load;           /* by our clock */
} kvr_group_row_t;

typedef struct {
    uint64_t            row;
    uint64_t            home;           /* the row of the worker's rank 0 */
    uint32_t            holder;
    uint32_t            generation;
} kvr_group_holder_t;

typedef struct {
    kvr_peer_t            record;
    kvr_news_t            news;
    uint64_t              clock_us;     /* the newest of its messages */
    int64_t               active;
    bool                  counts;
    bool                  leaving;
    kvr_group_row_t       rows[];       /* by holder */
} kvr_group_peer_t;

struct kvr_group_s {
    kvr_router_t         *k;
    kvr_group_conf_t      conf;
    kvr_group_counts_t    counts;
    uint64_t              own;          /* this router's id */
    uint32_t              max_holders;
    kvr_adds_t           *adds;
    kvr_sync_message_t   *message;      /* the one that was read last */
    kvr_group_peer_t     *peers[KVR_PEERS_MAX];
    uint32_t              npeers;

    uint64_t              heard_us;     /* anything; 0: no time is known yet */
    uint64_t              back_us;      /* Redis is there, since */
    kvr_news_least_t      echo;
    uint64_t              way_us;       /* half of it */

    kvr_group_holder_t   *fleet;        /* by row */
    uint64_t             *rows;         /* by holder, as in the fleet before */
    uint32_t              nfleet;
    uint32_t              version;
    uint64_t              looked_us;    /* 0: never */

    uint32_t              share;
    uint64_t              shared_us;
    uint64_t              made_us;      /* the homes */
    bool                  changed;      /* shares or the fleet, since */
    uint8_t              *foreign;
};


/* Reads the holders anew, when the membership has changed. */
void kvr_group_fleet(kvr_group_t *g, uint64_t now_us);

/* The holder of a row; NULL: its worker is not known. */
const kvr_group_holder_t *kvr_group_holder(const kvr_group_t *g, uint64_t row);

/* Writes the sums of one holder, and of all, to the zone. */
void kvr_group_sum(kvr_group_t *g, const kvr_group_holder_t *h);
void kvr_group_sums(kvr_group_t *g);

/* Zeroes the rows of a peer that were not told for KVR_GROUP_ROW_US, of
 * workers that are deleted here, too. */
void kvr_group_expire(kvr_group_t *g, kvr_group_peer_t *p);

/* Writes this router's place, and who is home. */
void kvr_group_homes(kvr_group_t *g);


#endif /* KVR_GROUP_STATE_H_INCLUDED */
