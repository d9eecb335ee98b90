/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Names: the IP address of a worker whose address has a host name, as nginx's
 * resolver found it last.
 *
 * A worker has one record, beside the fleet, found by the worker's number.  A
 * record is about one text of an address, which its mark stands for: when the
 * worker gets another address, the record says nothing until the new one was
 * resolved.  Any process may call any function; none takes a lock.
 *
 * One process at a time resolves a name: kvr_name_due() gives the name to the
 * first that asks, for KVR_NAME_LEASE_MS.  If that process dies, another one
 * gets the name after this time.  If it dies within kvr_name_write(), readers
 * find nothing until the next result is written.
 */


#ifndef KVR_NAME_H_INCLUDED
#define KVR_NAME_H_INCLUDED


#include "kvr_due.h"


#define KVR_NAME_LEASE_MS    60000  /* a lookup must be over before */
#define KVR_NAME_ADDRESS     56     /* bytes of "[IPv6]:port" and its null */


/* The result of a lookup; 8-byte words: see kvr_words.h. */
typedef struct {
    uint64_t    mark;                       /* 0: nothing yet */
    uint32_t    naddrs;                     /* of the name; 0: none */
    uint32_t    error;                      /* of the last lookup, a number of
                                               the caller's; 0: none */
    char        address[KVR_NAME_ADDRESS];  /* with the port, for requests;
                                               "": no requests go there */
} kvr_name_found_t;


/* The record; all zero is a valid beginning. */
typedef struct {
    kvr_due_t         due;              /* the next lookup */
    uint32_t          seq;              /* odd: being written */
    uint32_t          pad;
    kvr_name_found_t  found;
    uint64_t          spare[4];         /* whole cache lines */
} kvr_name_t;


/*
 * True: the caller must resolve the name now, and call kvr_name_write() in the
 * end.  mark: a number, not 0, that stands for the worker's address.
 */
bool kvr_name_due(kvr_name_t *n, uint64_t mark, uint64_t now_ms);

/*
 * The lookup has ended; the next one is due at due_ms.  True: found differs
 * from what was known.  False, too, when the worker has another address by
 * now.
 */
bool kvr_name_write(kvr_name_t *n, const kvr_name_found_t *found,
    uint64_t due_ms);

/* False, and *found is empty: no lookup for this mark has ended yet. */
bool kvr_name_read(const kvr_name_t *n, uint64_t mark,
    kvr_name_found_t *found);


#endif /* KVR_NAME_H_INCLUDED */
