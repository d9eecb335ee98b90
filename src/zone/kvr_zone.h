/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How a zone lies in memory; for kvr_zone.c, kvr_router.c and the tests.
 *
 *     kvr_zone_t    what the zone was made with; the load's header; peers
 *     health        a record for each worker
 *     peers         a row and a home for each holder
 *     selected      a row for each holder, of the load of selections
 *     flights       what is in flight, at which holder
 *     frequency     how often blocks are asked for, with frequency= alone
 *     shard 0       to the end of its part
 *     shard 1
 *     …
 *
 * The first part begins with the zone itself: the load tables are written
 * under the lock of shard 0 and through its undo log, which reaches what lies
 * behind its base.  The others begin with their shards.  All shards have room
 * for the same.
 *
 * Everything is at offsets: processes may map the zone where they like.
 *
 * WHO MAY WRITE.  The header: nobody, once the zone is made.  The load's
 * header: the owner of shard 0's lock; its rows: see kvr_load.h.  Peers: see
 * kvr_peers.h.  Selections: see kvr_selections.h.  Shards: see kvr_shard.h.
 */


#ifndef KVR_ZONE_H_INCLUDED
#define KVR_ZONE_H_INCLUDED


#include "kvr_selections.h"
#include "kvr_shard.h"


#define KVR_ZONE_MAGIC       UINT64_C(0x6b76722d7a6f6e65)     /* "kvr-zone" */
#define KVR_ZONE_VERSION     30         /* of the layout; any change counts */
#define KVR_FREQUENCY_PART   8          /* 1/8 of the zone, with frequency= */
#define KVR_FLIGHTS_PART     64         /* 1/64 of the zone, but at most */
#define KVR_FLIGHTS_BYTES    (16u << 20)


struct kvr_zone_s {
    uint64_t          magic;
    uint32_t          layout;           /* KVR_ZONE_VERSION */
    uint32_t          pad;
    uint64_t          size;
    kvr_params_t      params;
    kvr_load_zone_t   load;
    kvr_peers_zone_t  peers;

    kvr_flights_zone_t    flights;
    kvr_frequency_zone_t  frequency;
    kvr_selections_zone_t selections;
};


#endif /* KVR_ZONE_H_INCLUDED */
