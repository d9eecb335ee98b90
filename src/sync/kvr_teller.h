/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The teller: makes the messages that the process with the lease tells of
 * its router's load: rows that changed, and, each second or when asked, full
 * ones. Adds and ends are told by each process itself (ngx_module/sync).
 *
 * A pure machine: the caller passes the time and sends the bytes.
 */


#ifndef KVR_TELLER_H_INCLUDED
#define KVR_TELLER_H_INCLUDED


#include "kvr_group.h"


#define KVR_TELLER_ROWS_MS    20        /* between two looks at the rows */
#define KVR_TELLER_ALIVE_MS   50       /* a router with load speaks so often */
#define KVR_TELLER_FULL_MS    1000
#define KVR_TELLER_AGAIN_MS   100       /* between two full ones, when asked */

typedef struct kvr_teller_s  kvr_teller_t;

/*
 * g: must outlive the teller, which tells the fleet that the group knows.
 * name: of this router, for people.  NULL: out of memory.
 */
kvr_teller_t *kvr_teller_create(kvr_group_t *g, const char *name,
    const char *version);
void kvr_teller_destroy(kvr_teller_t *t);

/*
 * A peer missed a message: the next full one is due KVR_TELLER_AGAIN_MS after
 * the last one.
 */
void kvr_teller_again(kvr_teller_t *t);

/*
 * To be called each KVR_TELLER_ROWS_MS, with the time of the call: rows are
 * stamped with it, and whoever reads them takes the newest.  Calls send() for
 * each message that is due, which must copy the bytes; send() answers false if
 * they can't be sent: the rows are then told by the next call, and *number
 * stays.  heard: there is a peer; without one only full messages are told, for
 * others to find this router.  share: of this router, see kvr_group_share().
 * leaving: this router takes no new requests.  process and *number: the
 * sender's own process's, as for all messages of this process.
 */
void kvr_teller_tell(kvr_teller_t *t, uint64_t now_us, bool heard,
    uint32_t share, bool leaving, uint32_t process, uint64_t *number,
    bool (*send)(void *data, const char *bytes, size_t len), void *data);

/*
 * The router's own tokens that were not cached, of the last 30 s.  The window
 * is in the zone, so that the next process with the lease goes on with it.
 */
uint64_t kvr_teller_uncached(const kvr_teller_t *t);


#endif /* KVR_TELLER_H_INCLUDED */
