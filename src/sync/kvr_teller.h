/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The teller: makes the messages that the process with the lease tells of
 * its router: rows that changed or were not told for KVR_TELLER_AGAIN_MS, and
 * each second what is of the router itself.  Adds and ends are told by each
 * process (ngx_module/sync).
 *
 * A pure machine: the caller passes the time and sends the bytes.
 */


#ifndef KVR_TELLER_H_INCLUDED
#define KVR_TELLER_H_INCLUDED


#include "kvr_group.h"


#define KVR_TELLER_ROWS_MS   20         /* between two looks at the rows */
#define KVR_TELLER_ALIVE_MS  50         /* a router with load tells so often */
#define KVR_TELLER_AGAIN_MS  500        /* a row is told so often */
#define KVR_TELLER_ABOUT_MS  1000

typedef struct kvr_teller_s  kvr_teller_t;

/*
 * g: must outlive the teller, which tells the fleet that the group knows.
 * name: of this router, for people.  NULL: out of memory.
 */
kvr_teller_t *kvr_teller_create(kvr_group_t *g, const char *name,
    const char *version);
void kvr_teller_destroy(kvr_teller_t *t);

/* Sends a message, whose bytes it must copy; false: it can't be sent now. */
typedef bool (*kvr_teller_send_pt)(void *data, const char *bytes, size_t len);

/*
 * To be called each KVR_TELLER_ROWS_MS, with the time of the call: rows are
 * stamped with it, and whoever reads them takes the newest.  Calls send() for
 * each message that is due.  One that can't be sent is lost, as one may be
 * behind us.  Without a peer no rows are told.  leaving: this router takes no
 * new requests.
 */
void kvr_teller_tell(kvr_teller_t *t, uint64_t now_us, bool leaving,
    kvr_teller_send_pt send, void *data);

/*
 * The router's own tokens that were not cached, of the last 30 s.  The window
 * is in the zone, so that the next process with the lease goes on with it.
 */
uint64_t kvr_teller_uncached(const kvr_teller_t *t);


#endif /* KVR_TELLER_H_INCLUDED */
