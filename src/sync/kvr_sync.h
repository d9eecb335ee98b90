/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The messages that routers of a group send one another over Redis' PUBLISH:
 * MessagePack, an array.
 *
 *     0  version
 *     1  router     64 bits, not 0
 *     2  process    of the router: ids are the process's
 *     3  clock      of the sender, microseconds
 *     4  about      [share, uncached, leaving, name, version], or nil
 *     5  load       [ [row, active, prefills, prefill_tokens, age_ms,
 *                      decode_blocks], ... ]        absolute; zeros are told
 *     6  adds       [ [id, row, chains: bin of 6 bytes each, the low byte
 *                      first], ... ]
 *     7  ends       [ id, ... ]
 *
 * row is kvr_sync_row() of (worker's id, rank).  (router, process, id) names a
 * flight.  Elements after these are a later version's, and ignored.  A message
 * with nothing behind the clock says that its sender is alive.
 *
 * Everything comes from the network: the reader is bounded, refuses what is
 * broken as a whole, and clamps what is counted to 0..KVR_SYNC_MOST.  Clocks
 * are below 2^62, so that differences of them have signs.
 */


#ifndef KVR_SYNC_H_INCLUDED
#define KVR_SYNC_H_INCLUDED


#include "../zone/kvr_router.h"       /* kvr_params_t */
#include "../traffic/kvr_flights.h"
#include "../traffic/kvr_peers.h"


#define KVR_SYNC_VERSION   1
#define KVR_SYNC_ROWS      128          /* of a message, at most */
#define KVR_SYNC_ADDS      24
#define KVR_SYNC_ENDS      256
#define KVR_SYNC_MAX       16384        /* bytes: room for all of these */
#define KVR_SYNC_MOST      (INT64_C(1) << 40)


typedef struct {
    uint64_t    row;
    int64_t     active;
    int64_t     prefills;
    int64_t     prefill_tokens;
    int64_t     age_ms;                 /* of the running prefill */
    int64_t     decode_blocks;
} kvr_sync_row_t;

typedef struct {
    uint32_t    id;
    uint64_t    row;
    uint32_t    n;
    uint64_t    chains[KVR_FLIGHT_SAMPLES];
} kvr_sync_add_t;

typedef struct {
    uint64_t        router;
    uint32_t        process;
    uint64_t        clock_us;

    bool            about;              /* the next five are told */
    uint32_t        share;
    uint64_t        uncached;           /* tokens of the last 30 s */
    bool            leaving;
    char            name[KVR_PEERS_NAME_MAX + 1];   /* printable ASCII only */
    char            version[16];

    uint32_t        nrows;
    uint32_t        nadds;
    uint32_t        nends;
    kvr_sync_row_t  rows[KVR_SYNC_ROWS];
    kvr_sync_add_t  adds[KVR_SYNC_ADDS];
    uint32_t        ends[KVR_SYNC_ENDS];
} kvr_sync_message_t;


/*
 * KVR_INVALID: it is no such message, or any part of it is broken; then *m
 * is undefined.
 */
kvr_rc_t kvr_sync_read(const char *bytes, size_t len, kvr_sync_message_t *m);

/*
 * Writes a message into a buffer of KVR_SYNC_MAX bytes, which has room for any
 * one; returns its length.  Numbers of rows below 0 are written as 0.
 */
size_t kvr_sync_write(const kvr_sync_message_t *m, char *out);

/* The row of a rank of a worker; never 0. */
uint64_t kvr_sync_row(const char *worker, size_t len, uint32_t rank);

/* A holder's load as it is told; it was read at now_ms. */
kvr_sync_row_t kvr_sync_load(uint64_t row, const kvr_load_row_t *load,
    uint64_t now_ms);

/*
 * The hash at the end of the channel's name, 16 hex digits: of the
 * parameters that must agree (model, block size, eagle, KVR_SYNC_VERSION),
 * and of key, any bytes, or NULL.  One way, an HMAC: who sees the channel can
 * only try keys.  KVR_ERROR: the library has no SHA-256.
 */
kvr_rc_t kvr_sync_channel_hash(const kvr_params_t *params, const char *key,
    size_t len, char out[17]);


#endif /* KVR_SYNC_H_INCLUDED */
