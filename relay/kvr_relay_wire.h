/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bytes to and from Redis: by TCP or a unix socket, with TLS or without, all
 * of them by OpenSSL's BIO.
 * Nothing blocks but the lookup of a host's name.
 */


#ifndef KVR_RELAY_WIRE_H_INCLUDED
#define KVR_RELAY_WIRE_H_INCLUDED


#include "kvr_relay_tls.h"

#include <netdb.h>
#include <sys/types.h>


typedef enum {
    KVR_RELAY_WIRE_NONE = 0,
    KVR_RELAY_WIRE_CONNECTING,
    KVR_RELAY_WIRE_HANDSHAKE,       /* of TLS */
    KVR_RELAY_WIRE_OPEN
} kvr_relay_wire_phase_t;


typedef struct {
    kvr_relay_wire_phase_t   phase;
    int                      fd;            /* unless NONE */
    BIO                     *bio;           /* owns fd */
    SSL                     *ssl;           /* of bio; NULL: no TLS, or not
                                               yet */
    bool                     shaken;        /* a handshake has failed */
    bool                     in_writes;     /* reading waits for room, */
    bool                     out_reads;     /* and writing for input */
    struct addrinfo         *found;         /* the host's addresses */
    struct addrinfo         *next;          /* those not tried yet */
    char                     why[KVR_RELAY_TLS_WHY];    /* of a failure */
} kvr_relay_wire_t;


/*
 * Starts to connect. w must be all zero.  False: the connect failed at once.
 */
bool kvr_relay_wire_open(kvr_relay_wire_t *w, const kvr_redis_url_t *url);

/*
 * Connects to the next address of the host instead.  False: there is no other
 * address.
 */
bool kvr_relay_wire_next(kvr_relay_wire_t *w);

/*
 * Goes on with the connect when the socket is ready, until the state is OPEN.
 * url and o are the ones that kvr_relay_wire_open() got.  False: the connect
 * failed, and the wire must be closed.
 */
bool kvr_relay_wire_step(kvr_relay_wire_t *w, const kvr_redis_url_t *url,
    const kvr_relay_options_t *o);

/* The events to poll for; out: there are bytes to write. */
short kvr_relay_wire_events(const kvr_relay_wire_t *w, bool out);

/*
 * Reads in the state OPEN.  Returns the number of bytes; 0: there is nothing
 * now; -1: the connection failed, and must be closed.
 */
ssize_t kvr_relay_wire_read(kvr_relay_wire_t *w, char *buf, size_t size);
ssize_t kvr_relay_wire_write(kvr_relay_wire_t *w, const char *buf,
    size_t len);

/* Whatever phase it is in. */
void kvr_relay_wire_close(kvr_relay_wire_t *w);


#endif /* KVR_RELAY_WIRE_H_INCLUDED */
