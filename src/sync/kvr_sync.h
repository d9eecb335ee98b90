/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The messages that routers of a group send one another over Redis' PUBLISH:
 * MessagePack, a map with one-letter keys; unknown keys are skipped.
 *
 *     "v" version   "r" router, 64 bits   "p" process   "n" number, from 1, of
 *     the process's messages   "c" clock of the sender, microseconds
 *     "l" load:  [ [row, active, prefills, prefill_tokens, age_ms,
 *                   decode_blocks], … ]            absolute; zeros are told
 *     "a" adds:  [ [id, row, chains: bin of 6 bytes each, the low byte
 *                   first], … ]
 *     "e" ends:  [ id, … ]
 *     "f" full:  [epoch, part, parts, share, uncached, leaving, name, version]
 *     "g" again: router whose numbers had a gap
 *     "b" bye:   true
 *
 * row is kvr_sync_row() of (worker's id, rank).  id is of the process:
 * (router, process, id) names a flight.  A full message has rows of all
 * holders that have load or had it, in parts under one epoch: a row that no
 * part names is 0.
 *
 * Elements after these are a later version's, and ignored.  A message that
 * has nothing but "v" to "c" says that its sender is alive.
 *
 * Everything comes from the network: the reader is bounded, refuses what is
 * broken as a whole, and clamps what is counted to 0..KVR_SYNC_MOST.  Numbers
 * and clocks are below 2^62, so that differences of them have signs.
 */


#ifndef KVR_SYNC_H_INCLUDED
#define KVR_SYNC_H_INCLUDED


#include "../wire/kvr_msgpack.h"
#include "../zone/kvr_router.h"       /* kvr_params_t */
#include "../traffic/kvr_flights.h"
#include "../traffic/kvr_peers.h"


#define KVR_SYNC_VERSION   1
#define KVR_SYNC_MAX       8192         /* bytes of a message */
#define KVR_SYNC_MOST      (INT64_C(1) << 40)


typedef enum {
    KVR_SYNC_ROWS = 0,
    KVR_SYNC_ADDS,
    KVR_SYNC_ENDS,
    KVR_SYNC_LISTS
} kvr_sync_list_t;

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
    uint64_t    router;
    uint32_t    process;
    uint64_t    number;
    uint64_t    clock_us;

    bool        full;
    uint64_t    epoch;
    uint32_t    part;                   /* from 0 */
    uint32_t    parts;                  /* 1 to 1024 */
    uint32_t    share;
    uint64_t    uncached;               /* tokens of the last 30 s */
    bool        leaving;
    char        name[KVR_PEERS_NAME_MAX + 1];   /* printable ASCII only */
    char        version[16];

    uint64_t    again;                  /* 0: nobody's */
    bool        bye;

    bool        alive;                  /* of the writer: it is a message, if
                                           nothing else is in it, too */

    /* of the reader: see kvr_sync_row_next() and so on */
    kvr_msgpack_t  lists[KVR_SYNC_LISTS];
    uint32_t       left[KVR_SYNC_LISTS];
} kvr_sync_message_t;


/* KVR_INVALID: it is no such message, or any part of it is broken. */
kvr_rc_t kvr_sync_read(const char *bytes, size_t len, kvr_sync_message_t *m);

/* The next of a message that was read; false: there is none any more. */
bool kvr_sync_row_next(kvr_sync_message_t *m, kvr_sync_row_t *row);
bool kvr_sync_add_next(kvr_sync_message_t *m, kvr_sync_add_t *add);
bool kvr_sync_end_next(kvr_sync_message_t *m, uint32_t *id);


/*
 * Writes a message into a buffer of KVR_SYNC_MAX bytes: begin, then rows,
 * adds and ends in this order, each kind together, then finish.  A function
 * that returns false has written nothing: no room; finish, and begin another
 * one.  finish returns the length, 0 if nothing but the header would be in it
 * and it is neither full, again, bye nor alive.  Names in the header must be
 * printable.
 */
typedef struct {
    char        bytes[KVR_SYNC_MAX];
    size_t      len;
    uint32_t    counts[KVR_SYNC_LISTS];
    size_t      places[KVR_SYNC_LISTS];     /* of the counts */
    uint32_t    fields;                 /* of the map */
    bool        empty;
} kvr_sync_writer_t;

void kvr_sync_begin(kvr_sync_writer_t *w, const kvr_sync_message_t *header);
bool kvr_sync_put_row(kvr_sync_writer_t *w, const kvr_sync_row_t *row);

/* The same of a holder's load, which was read at now_ms. */
bool kvr_sync_put_load(kvr_sync_writer_t *w, uint64_t row,
    const kvr_load_row_t *load, uint64_t now_ms);

bool kvr_sync_put_add(kvr_sync_writer_t *w, const kvr_sync_add_t *add);
bool kvr_sync_put_end(kvr_sync_writer_t *w, uint32_t id);
size_t kvr_sync_finish(kvr_sync_writer_t *w);

/* The row of a rank of a worker; never 0. */
uint64_t kvr_sync_row(const char *worker, size_t len, uint32_t rank);

/*
 * The hash at the end of the channel's name, 16 hex digits: of the
 * parameters that must agree (model, block size, eagle, KVR_SYNC_VERSION),
 * and of key, any bytes, or NULL.  One way, an HMAC: who sees the channel can
 * only try keys.  KVR_ERROR: the library has no SHA-256.
 */
kvr_rc_t kvr_sync_channel_hash(const kvr_params_t *params, const char *key,
    size_t len, char out[17]);


#endif /* KVR_SYNC_H_INCLUDED */
