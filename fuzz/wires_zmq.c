/*
 * Copyright (C) the nginx-kv-router authors
 *
 * In the place of libzmq.
 */


#include "wires.h"

#include <errno.h>


#define FRAMES  1024                    /* on a wire */


typedef struct {
    void     *bytes;
    size_t    len;
    bool      more;
} frame_t;


typedef struct {
    frame_t   frames[FRAMES];
    uint32_t  first;
    uint32_t  n;
} wire_t;


typedef struct {
    void    *wire;                      /* NULL: not connected */
    bool     taken;
} end_t;


static frame_t *message(zmq_msg_t *msg);
static void drain(wire_t *w);


bool           wires_full;

static wire_t  wires[WIRES][WIRES_RANKS];
static end_t   ends[WIRES * WIRES_RANKS];
static int     context;                 /* there is one, somewhere */


void
wires_zmq_clear(void)
{
    uint32_t  i, k;

    for (i = 0; i < WIRES; i++) {
        for (k = 0; k < WIRES_RANKS; k++) {
            drain(&wires[i][k]);
        }
    }

    for (i = 0; i < WIRES * WIRES_RANKS; i++) {
        if (ends[i].taken) {
            fuzz_fail("a socket was left open");
        }
    }
}


static frame_t *
message(zmq_msg_t *msg)
{
    return (frame_t *) (void *) msg;
}


static void
drain(wire_t *w)
{
    for ( /* void */ ; w->n != 0; w->n--) {
        free(w->frames[w->first % FRAMES].bytes);
        w->first++;
    }
}


void
wires_frame(wires_kind_t kind, uint32_t rank, const void *bytes, size_t len,
    bool more)
{
    wire_t   *w;
    frame_t  *f;

    w = &wires[kind][rank % WIRES_RANKS];

    if (w->n == FRAMES) {
        drain(w);
    }

    f = &w->frames[(w->first + w->n) % FRAMES];
    f->bytes = fuzz_copy(bytes, len);
    f->len = len;
    f->more = more;
    w->n++;
}


void
wires_connect(uint32_t rank, bool up)
{
    wires_event(rank, up ? ZMQ_EVENT_HANDSHAKE_SUCCEEDED
                         : ZMQ_EVENT_DISCONNECTED);
}


void
wires_event(uint32_t rank, uint16_t event)
{
    uint8_t  frame[6];

    memset(frame, 0, sizeof(frame));
    memcpy(frame, &event, sizeof(event));

    wires_frame(WIRES_MONITOR, rank, frame, sizeof(frame), true);
    wires_frame(WIRES_MONITOR, rank, "", 0, false);
}


void *
zmq_ctx_new(void)
{
    return &context;
}


int
zmq_ctx_term(void *ctx)
{
    return 0;
}


void *
zmq_socket(void *ctx, int type)
{
    uint32_t  i;

    if (wires_full) {
        errno = EMFILE;
        return NULL;
    }

    for (i = 0; i < WIRES * WIRES_RANKS; i++) {
        if (!ends[i].taken) {
            ends[i].taken = true;
            ends[i].wire = NULL;
            return &ends[i];
        }
    }

    fuzz_fail("too many sockets");
}


int
zmq_close(void *socket)
{
    end_t  *e;

    e = socket;

    if (!e->taken) {
        fuzz_fail("a socket was closed twice");
    }

    if (e->wire != NULL) {
        drain(e->wire);
    }

    e->taken = false;

    return 0;
}


/* "events:<rank>", "replay:<rank>", and the monitor's own. */

int
zmq_connect(void *socket, const char *address)
{
    end_t         *e;
    uint32_t       rank;
    wires_kind_t   kind;

    e = socket;
    rank = (uint32_t) (address[strlen(address) - 1] - '0');
    kind = address[0] == 'e' ? WIRES_EVENTS
           : address[0] == 'r' ? WIRES_REPLAY : WIRES_MONITOR;

    e->wire = &wires[kind][rank];

    if (kind == WIRES_REPLAY) {
        drain(e->wire);                 /* meant for another one */
    }

    return 0;
}


int
zmq_disconnect(void *socket, const char *address)
{
    end_t  *e;

    e = socket;
    e->wire = NULL;

    return 0;
}


int
zmq_setsockopt(void *socket, int option, const void *value, size_t len)
{
    return 0;
}


/* ZMQ_EVENTS alone: a connection can be written to until it is over. */

int
zmq_getsockopt(void *socket, int option, void *value, size_t *len)
{
    end_t  *e;

    e = socket;

    if (option != ZMQ_EVENTS || *len != sizeof(int)) {
        fuzz_fail("an option that nobody knows is asked for");
    }

    *(int *) value = e->wire != NULL ? ZMQ_POLLOUT : 0;

    return 0;
}


int
zmq_socket_monitor(void *socket, const char *address, int events)
{
    return 0;
}


int
zmq_send(void *socket, const void *bytes, size_t len, int flags)
{
    return (int) len;
}


int
zmq_errno(void)
{
    return errno;
}


const char *
zmq_strerror(int number)
{
    return "an error";
}


int
zmq_msg_init(zmq_msg_t *msg)
{
    memset(message(msg), 0, sizeof(frame_t));

    return 0;
}


int
zmq_msg_close(zmq_msg_t *msg)
{
    free(message(msg)->bytes);
    memset(message(msg), 0, sizeof(frame_t));

    return 0;
}


int
zmq_msg_move(zmq_msg_t *to, zmq_msg_t *from)
{
    free(message(to)->bytes);
    *message(to) = *message(from);
    memset(message(from), 0, sizeof(frame_t));

    return 0;
}


void *
zmq_msg_data(zmq_msg_t *msg)
{
    return message(msg)->bytes;
}


size_t
zmq_msg_size(const zmq_msg_t *msg)
{
    return message((zmq_msg_t *) (uintptr_t) msg)->len;
}


int
zmq_msg_more(const zmq_msg_t *msg)
{
    return message((zmq_msg_t *) (uintptr_t) msg)->more;
}


int
zmq_msg_recv(zmq_msg_t *msg, void *socket, int flags)
{
    wire_t  *w;

    w = ((end_t *) socket)->wire;

    if (w == NULL || w->n == 0) {
        errno = EAGAIN;
        return -1;
    }

    free(message(msg)->bytes);
    *message(msg) = w->frames[w->first % FRAMES];

    w->first++;
    w->n--;

    /* a message is there as a whole */

    if (w->n == 0) {
        message(msg)->more = false;
    }

    return (int) message(msg)->len;
}
