/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_METRICS_SIZE  32768


#if MHD_VERSION < 0x00097002
typedef int                kvr_relay_mhd_t;
#else
typedef enum MHD_Result    kvr_relay_mhd_t;
#endif


typedef struct {
    char    *text;
    size_t   len;
} kvr_relay_page_t;


static kvr_relay_mhd_t kvr_relay_metrics_answer(void *data,
    struct MHD_Connection *connection, const char *url, const char *method,
    const char *version, const char *upload, size_t *upload_len,
    void **request);
static unsigned kvr_relay_metrics_drain(kvr_relay_t *r,
    struct MHD_Connection *connection, void **request, kvr_relay_page_t *page);
static bool kvr_relay_metrics_loopback(struct MHD_Connection *connection);
static void kvr_relay_metrics_resume(kvr_relay_t *r);
static void kvr_relay_metrics_ready(kvr_relay_t *r, kvr_relay_page_t *page);
static void kvr_relay_metrics_write(kvr_relay_t *r, kvr_relay_page_t *page);
static void kvr_relay_metrics_one(kvr_relay_page_t *page, const char *name,
    const char *type, const char *help, double value);
static void kvr_relay_metrics_why(kvr_relay_t *r, kvr_relay_page_t *page);
__attribute__((format(printf, 2, 3)))
static void kvr_relay_metrics_add(kvr_relay_page_t *page, const char *fmt,
    ...);


bool
kvr_relay_metrics_init(kvr_relay_t *r, char why[KVR_WHY_LEN])
{
    int                         rc;
    char                        host[KVR_ADDRESS_MAX + 1];
    const char                 *listen, *colon;
    struct addrinfo             hints, *found;
    kvr_relay_metrics_t        *m;
    const union MHD_DaemonInfo *info;

    m = &r->metrics;
    m->daemon = NULL;
    m->fd = -1;
    snprintf(m->address, sizeof(m->address), "-");

    listen = r->options.listen;

    if (listen == NULL) {
        return true;
    }

    colon = strrchr(listen, ':');

    if (listen[0] == '[' && colon > listen && colon[-1] == ']') {
        snprintf(host, sizeof(host), "%.*s", (int) (colon - listen - 2),
                 listen + 1);

    } else {
        snprintf(host, sizeof(host), "%.*s", (int) (colon - listen), listen);
    }

    memset(&hints, 0, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;

    rc = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &found);
    if (rc != 0) {
        snprintf(why, KVR_WHY_LEN, "--listen %.60s: %s", listen,
                 gai_strerror(rc));
        return false;
    }

    m->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME
                                 | (found->ai_family == AF_INET6
                                    ? MHD_USE_IPv6 : 0),
                                 0, NULL, NULL, kvr_relay_metrics_answer, r,
                                 MHD_OPTION_SOCK_ADDR, found->ai_addr,
                                 MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned) KVR_RELAY_METRICS_MAX,
                                 MHD_OPTION_CONNECTION_TIMEOUT, 10u,
                                 MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u,
                                 MHD_OPTION_END);
    freeaddrinfo(found);

    if (m->daemon == NULL) {
        snprintf(why, KVR_WHY_LEN, "--listen %.60s: %s", listen,
                 strerror(errno));
        return false;
    }

    info = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    m->fd = info ? info->listen_fd : -1;

    info = MHD_get_daemon_info(m->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(m->address, sizeof(m->address), "%.*s:%u",
             (int) (colon - listen), listen, info ? info->port : 0);

    return true;
}


void
kvr_relay_metrics_free(kvr_relay_t *r)
{
    if (r->metrics.daemon != NULL) {
        kvr_relay_metrics_resume(r);
        (void) MHD_run(r->metrics.daemon);
        MHD_stop_daemon(r->metrics.daemon);
    }
}


void
kvr_relay_metrics_tick(kvr_relay_t *r)
{
    MHD_UNSIGNED_LONG_LONG  ms;

    if (r->metrics.daemon == NULL) {
        return;
    }

    if (r->stopping || kvr_relay_drain_over(&r->drain)) {
        kvr_relay_metrics_resume(r);
    }

    (void) MHD_run(r->metrics.daemon);

    if (MHD_get_timeout(r->metrics.daemon, &ms) == MHD_YES) {
        kvr_relay_wake(r, r->now_ms + ms);
    }
}


static kvr_relay_mhd_t
kvr_relay_metrics_answer(void *data, struct MHD_Connection *connection,
    const char *url, const char *method, const char *version,
    const char *upload, size_t *upload_len, void **request)
{
    unsigned               status;
    kvr_relay_t           *r;
    kvr_relay_mhd_t        rc;
    kvr_relay_page_t       page;
    struct MHD_Response   *response;

    r = data;

    /* libmicrohttpd calls first without the body, then with it */

    if (*request == NULL) {
        *request = r;
        return MHD_YES;
    }

    *upload_len = 0;

    page.len = 0;
    page.text = malloc(KVR_RELAY_METRICS_SIZE);
    if (page.text == NULL) {
        return MHD_NO;
    }

    status = MHD_HTTP_OK;

    if (strcmp(url, "/drain") == 0 && strcmp(method, "POST") == 0) {
        status = kvr_relay_metrics_drain(r, connection, request, &page);

        if (status == 0) {
            free(page.text);
            return MHD_YES;
        }

    } else if (strcmp(url, "/drain") == 0) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        kvr_relay_metrics_add(&page, "only POST\n");

    } else if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        status = MHD_HTTP_METHOD_NOT_ALLOWED;
        kvr_relay_metrics_add(&page, "only GET\n");

    } else if (strcmp(url, "/metrics") == 0) {
        kvr_relay_metrics_write(r, &page);

    } else if (strcmp(url, "/health") == 0) {
        kvr_relay_metrics_add(&page, "ok\n");

    } else if (strcmp(url, "/ready") == 0) {
        kvr_relay_metrics_ready(r, &page);

        if (page.len != 0) {
            status = MHD_HTTP_SERVICE_UNAVAILABLE;

        } else {
            kvr_relay_metrics_add(&page, "ok\n");
        }

    } else {
        status = MHD_HTTP_NOT_FOUND;
        kvr_relay_metrics_add(&page, "/metrics, /health, /ready and /drain "
                              "are here\n");
    }

    response = MHD_create_response_from_buffer(page.len, page.text,
                                               MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(page.text);
        return MHD_NO;
    }

    (void) MHD_add_response_header(response, "Content-Type",
                                   "text/plain; version=0.0.4");
    rc = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);

    return rc;
}


/*
 * Returns the status, or 0: the answer must wait, and this is called again
 * when the connection is resumed.  *request is &r->drain then.
 */

static unsigned
kvr_relay_metrics_drain(kvr_relay_t *r, struct MHD_Connection *connection,
    void **request, kvr_relay_page_t *page)
{
    bool                  resumed;
    kvr_relay_metrics_t  *m;

    m = &r->metrics;
    resumed = *request == &r->drain;

    if (!kvr_relay_metrics_loopback(connection)) {
        kvr_relay_metrics_add(page, "only from 127.0.0.1 or ::1: the peer is "
                              "another address; let --listen be one of them, "
                              "or all\n");
        return MHD_HTTP_FORBIDDEN;
    }

    if (!r->session.started) {
        kvr_relay_metrics_add(page, "not drained: this relay does not have "
                              "the lease of the worker\n");
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    }

    if (!resumed) {
        kvr_relay_drain_begin(r);
    }

    if (r->drain.state == KVR_RELAY_DRAIN_DRAINED) {
        kvr_relay_metrics_add(page, "drained: %s\n", r->drain.why);
        return MHD_HTTP_OK;
    }

    if (!resumed && !r->stopping && m->nwaiting < KVR_RELAY_METRICS_MAX) {
        *request = &r->drain;
        MHD_suspend_connection(connection);
        m->waiting[m->nwaiting++] = connection;
        return 0;
    }

    kvr_relay_metrics_add(page, "not drained: %s\n", r->drain.why);

    return MHD_HTTP_SERVICE_UNAVAILABLE;
}


static bool
kvr_relay_metrics_loopback(struct MHD_Connection *connection)
{
    const struct in6_addr           *six;
    const union MHD_ConnectionInfo  *info;

    info = MHD_get_connection_info(connection,
                                   MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info == NULL) {
        return false;
    }

    if (info->client_addr->sa_family == AF_INET6) {
        six = &((struct sockaddr_in6 *) info->client_addr)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(six)
               || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    }

    return info->client_addr->sa_family == AF_INET
           && ntohl(((struct sockaddr_in *) info->client_addr)
                    ->sin_addr.s_addr) >> 24 == 127;
}


/* Those that wait for the end of a drain are called once more. */

static void
kvr_relay_metrics_resume(kvr_relay_t *r)
{
    while (r->metrics.nwaiting != 0) {
        MHD_resume_connection(r->metrics.waiting[--r->metrics.nwaiting]);
    }
}


/* Writes a line for each condition that is not met yet. */

static void
kvr_relay_metrics_ready(kvr_relay_t *r, kvr_relay_page_t *page)
{
    uint32_t                   i;
    const kvr_relay_source_t  *s;

    if (!r->redis.up) {
        kvr_relay_metrics_add(page, "no connection to redis\n");

    } else if (!r->session.started) {
        kvr_relay_metrics_add(page, "standby: another relay of this worker "
                              "has the lease\n");

    } else if (r->publisher.state != KVR_RELAY_OPEN || !r->publisher.resumed) {
        kvr_relay_metrics_add(page, "synchronizing: what the engine holds is "
                              "not in redis yet\n");
    }

    for (i = 0; r->session.started && i < r->nsources; i++) {
        s = &r->sources[i];

        if (s->at.state == KVR_RELAY_STEP_AWAY) {
            kvr_relay_metrics_add(page, "rank %u of the engine is not reached "
                                  "at %s: %s\n", i,
                                  kvr_relay_source_endpoint(r, s),
                                  kvr_relay_engine_why(r, s));

        } else if (s->other != s->base) {
            kvr_relay_metrics_add(page, "rank %u of the engine is refused: %s "
                                  "says that it is rank %u, not %u; %s\n", i,
                                  kvr_relay_source_endpoint(r, s), s->other,
                                  s->base, KVR_RELAY_OTHER_REMEDY);
        }
    }
}


static void
kvr_relay_metrics_write(kvr_relay_t *r, kvr_relay_page_t *page)
{
    uint32_t                 i;
    uint64_t                 oldest;
    kvr_stats_t              stats;
    const kvr_relay_entry_t *e;

#define counter(name, field, help)                                            \
    kvr_relay_metrics_one(page, name "_total", "counter", help,               \
                          (double) r->counters.field)

#define gauge(name, help, value)                                              \
    kvr_relay_metrics_one(page, name, "gauge", help, (double) (value))

    counter("messages", messages, "Messages of the engine, applied.");
    counter("gaps", gaps, "Gaps in the engine's sequence.");
    counter("gaps_filled", gaps_filled, "Gaps that replay filled.");
    counter("replays", replays, "Replays asked for.");
    counter("replays_unanswered", unanswered,
            "Replays that had no answer in time.");
    counter("engine_reconnects", reconnects, "Connections to the engine, but "
            "the first of each rank.");
    counter("engine_restarts", restarts, "Restarts of the engine, proven.");

    kvr_relay_metrics_why(r, page);

    counter("blocks_stored", stored, "Blocks stored, first copies only.");
    counter("blocks_removed", removed, "Blocks removed, last copies only.");
    counter("envelopes", envelopes, "Messages that Redis has taken.");
    counter("dropped", dropped, "Messages dropped for a snapshot to come.");
    counter("snapshots", snapshots, "Snapshots written.");
    counter("snapshots_failed", snapshots_failed, "Snapshots given up.");
    counter("redis_connects", redis_connects, "Connections to Redis.");
    counter("redis_errors", redis_errors, "Errors that Redis answered.");

    kvr_relay_metrics_one(page, "log_dropped_total", "counter", "Lines of the "
                          "log dropped: nobody read them.",
                          (double) kvr_relay_log_dropped());

    kvr_router_stats(&r->mirror.router, &stats);

    gauge("blocks", "Blocks that the engine holds.",
          kvr_relay_mirror_blocks(&r->mirror));
    gauge("mirror_bytes", "Memory of the mirror.", stats.zone_bytes);
    gauge("mirror_used_bytes", "Of that, in use.", stats.used_bytes);
    gauge("mirror_forgotten", "Blocks forgotten for want of memory.",
          kvr_relay_mirror_forgotten(&r->mirror));

    gauge("ring_bytes", "Messages kept for Redis.", r->publisher.ring.bytes);
    gauge("ring_max_bytes", "Room for them.", r->publisher.ring.max_bytes);
    gauge("unsent", "Messages that Redis has not taken yet.",
          r->publisher.seq - r->publisher.acked);

    e = kvr_relay_ring_at(&r->publisher.ring, r->publisher.acked + 1);
    oldest = e ? r->now_ms - e->made_ms : r->counters.lag_ms;

    gauge("lag_seconds", "From the engine's message to Redis.",
          (double) oldest / 1000);

    gauge("complete", "1: all that the engine holds is known.",
          kvr_relay_complete(r, NULL));
    gauge("epoch", "The epoch.", r->publisher.epoch);
    gauge("seq", "Its last message.", r->publisher.seq);
    gauge("redis_up", "1: connected to Redis.", r->redis.up);
    gauge("active", "1: has the lease; 0: a standby.", r->session.started);

#undef counter
#undef gauge

    kvr_relay_metrics_add(page, "# HELP kv_relay_engine_up 1: connected to the"
                          " rank.\n# TYPE kv_relay_engine_up gauge\n");

    for (i = 0; i < r->nsources; i++) {
        kvr_relay_metrics_add(page, "kv_relay_engine_up{rank=\"%u\"} %d\n", i,
                              r->sources[i].at.state
                              != KVR_RELAY_STEP_AWAY);
    }

    kvr_relay_metrics_add(page, "# HELP kv_relay_engine_seq The engine's last "
                          "message.\n# TYPE kv_relay_engine_seq gauge\n");

    for (i = 0; i < r->nsources; i++) {
        if (r->sources[i].known) {
            kvr_relay_metrics_add(page, "kv_relay_engine_seq{rank=\"%u\"} "
                                  "%llu\n", i,
                                  (unsigned long long) r->sources[i].seq);
        }
    }
}


static void
kvr_relay_metrics_why(kvr_relay_t *r, kvr_relay_page_t *page)
{
    uint32_t  why;

    kvr_relay_metrics_add(page, "# HELP kv_relay_skipped_total Events that "
                          "were left out.\n"
                          "# TYPE kv_relay_skipped_total counter\n");

    for (why = KVR_WHY_NONE + 1; why < KVR_WHYS; why++) {
        kvr_relay_metrics_add(page, "kv_relay_skipped_total{what=\"%s\","
                              "why=\"%s\"} %llu\n",
                              kvr_why_class_name(kvr_why_class(why)),
                              kvr_why_name(why),
                              (unsigned long long) r->counters.why[why]);
    }
}


static void
kvr_relay_metrics_one(kvr_relay_page_t *page, const char *name,
    const char *type, const char *help, double value)
{
    kvr_relay_metrics_add(page, "# HELP kv_relay_%s %s\n# TYPE kv_relay_%s %s"
                          "\nkv_relay_%s %.15g\n", name, help, name, type,
                          name, value);
}


static void
kvr_relay_metrics_add(kvr_relay_page_t *page, const char *fmt, ...)
{
    int      n;
    size_t   left;
    va_list  args;

    left = KVR_RELAY_METRICS_SIZE - page->len;

    va_start(args, fmt);
    n = vsnprintf(page->text + page->len, left, fmt, args);
    va_end(args);

    page->len += kvr_min((size_t) kvr_max(n, 0), left - 1);
}
