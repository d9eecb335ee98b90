
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A client that keeps a number of connections busy, for rivals.py:
 *
 *     load PORT FILE CONNECTIONS SECONDS [RATE]
 *
 * FILE has whole requests, each behind its length and a newline.  Every
 * connection sends the next request as soon as it has the answer to the last
 * one.  With a rate, RATE requests a second are sent at random times, each on a
 * connection that is idle, or as soon as one is.  The first "################"
 * of a request becomes a number, another one in each request sent.
 *
 * Prints the requests answered by 200, and the requests answered otherwise; of
 * the former the microseconds until the answer, from the time when a request
 * was to be sent: the median, the 99th percentile and the longest.
 */


#define _GNU_SOURCE

#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>


#define LOAD_CONNECTIONS  256
#define LOAD_REQUESTS     1024
#define LOAD_TIMES        (1 << 20)
#define LOAD_ANSWER       (1 << 20)
#define LOAD_MARK         "################"
#define LOAD_MARK_LEN     16


typedef struct {
    char    *data;
    size_t   len;
    char    *mark;              /* in data; NULL: none */
} load_request_t;


typedef struct {
    int      fd;
    size_t   got;               /* of the answer */
    char    *answer;
    double   due;               /* of the request; 0: idle */
} load_connection_t;


static load_request_t     load_requests[LOAD_REQUESTS];
static uint32_t           load_nrequests;
static uint64_t           load_sent, load_good, load_bad;
static double             load_started;
static double             load_rate;    /* a second; 0: none */
static double             load_due;     /* of the next one */
static double             load_times[LOAD_TIMES];
static load_connection_t  load_connections[LOAD_CONNECTIONS];


static void
load_die(const char *what)
{
    perror(what);
    exit(1);
}


static double
load_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec + ts.tv_nsec / 1e9;
}


static void
load_read(const char *path)
{
    FILE            *f;
    size_t           len;
    load_request_t  *r;

    f = fopen(path, "r");
    if (f == NULL) {
        load_die(path);
    }

    while (load_nrequests < LOAD_REQUESTS && fscanf(f, "%zu", &len) == 1) {

        r = &load_requests[load_nrequests++];
        r->len = len;
        r->data = malloc(len + 1);

        if (r->data == NULL || fgetc(f) != '\n'
            || fread(r->data, 1, len, f) != len)
        {
            load_die(path);
        }

        r->data[len] = '\0';
        r->mark = strstr(r->data, LOAD_MARK);
    }

    fclose(f);

    if (load_nrequests == 0) {
        fprintf(stderr, "load: %s has no requests\n", path);
        exit(1);
    }
}


static void
load_open(load_connection_t *c, uint16_t port, int epoll)
{
    int                 one;
    struct epoll_event  ev;
    struct sockaddr_in  sin;

    memset(&sin, 0, sizeof(sin));
    sin.sin_family = AF_INET;
    sin.sin_port = htons(port);
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    c->fd = socket(AF_INET, SOCK_STREAM, 0);

    if (c->fd == -1
        || connect(c->fd, (struct sockaddr *) &sin, sizeof(sin)) == -1)
    {
        load_die("connect");
    }

    one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

    if (c->answer == NULL) {
        c->answer = malloc(LOAD_ANSWER + 1);
        if (c->answer == NULL) {
            load_die("malloc");
        }
    }

    ev.events = EPOLLIN;
    ev.data.ptr = c;

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &ev) == -1) {
        load_die("epoll_ctl");
    }
}


/* The socket blocks, so that all of the request is written. */

static void
load_write(load_connection_t *c, const char *data, size_t len)
{
    ssize_t  n;

    while (len) {

        n = send(c->fd, data, len, MSG_NOSIGNAL);
        if (n == -1) {
            load_die("send");
        }

        data += n;
        len -= n;
    }
}


static void
load_send(load_connection_t *c)
{
    char             number[LOAD_MARK_LEN + 1];
    load_request_t  *r;

    r = &load_requests[load_sent % load_nrequests];
    c->got = 0;
    c->due = load_now();

    if (load_rate > 0) {
        c->due = load_due;
        load_due -= log(1 - drand48()) / load_rate;
    }

    if (r->mark) {
        snprintf(number, sizeof(number), "%016llx",
                 (unsigned long long) (load_started * 1e3) << 24 | load_sent);
        memcpy(r->mark, number, LOAD_MARK_LEN);
    }

    load_sent++;

    load_write(c, r->data, r->len);
}


/* The connection can be used again. */

static void
load_next(load_connection_t *c)
{
    c->due = 0;

    if (load_rate == 0) {
        load_send(c);
    }
}


/* 1: the answer is complete. */

static int
load_complete(load_connection_t *c)
{
    char  *body, *p;

    c->answer[c->got] = '\0';

    body = strstr(c->answer, "\r\n\r\n");
    if (body == NULL) {
        return 0;
    }

    body += 4;
    p = strcasestr(c->answer, "\r\ncontent-length:");

    if (p && p < body) {
        return c->got - (body - c->answer)
               >= strtoul(p + sizeof("\r\ncontent-length:") - 1, NULL, 10);
    }

    return c->got >= 5
           && memcmp(c->answer + c->got - 5, "0\r\n\r\n", 5) == 0;
}


/* Sends what is due, as far as connections are idle. */

static void
load_send_due(int n)
{
    int  i;

    for (i = 0; i < n && load_due <= load_now(); i++) {
        if (load_connections[i].due == 0) {
            load_send(&load_connections[i]);
        }
    }
}


/* Waits for an answer, or until the next request is due. */

static void
load_wait(int epoll)
{
    double           left;
    struct pollfd    pfd;
    struct timespec  ts;

    left = load_due - load_now();
    left = left < 0 ? 0.001 : left;

    ts.tv_sec = (time_t) left;
    ts.tv_nsec = (long) ((left - ts.tv_sec) * 1e9);

    pfd.fd = epoll;
    pfd.events = POLLIN;

    (void) ppoll(&pfd, 1, &ts, NULL);
}


static int
load_compare(const void *a, const void *b)
{
    double  x, y;

    x = *(const double *) a;
    y = *(const double *) b;

    return (x > y) - (x < y);
}


/* Microseconds in which that share of the requests was answered. */

static double
load_quantile(double share)
{
    uint64_t  n;

    n = load_good < LOAD_TIMES ? load_good : LOAD_TIMES;

    return n ? load_times[(uint64_t) ((n - 1) * share)] * 1e6 : 0;
}


int
main(int argc, char **argv)
{
    int                  i, n, k, epoll;
    double               end;
    ssize_t              got;
    uint16_t             port;
    load_connection_t   *c;
    struct epoll_event   events[LOAD_CONNECTIONS];

    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: load PORT FILE CONNECTIONS SECONDS [RATE]\n");
        return 1;
    }

    port = atoi(argv[1]);
    n = atoi(argv[3]);

    if (n < 1 || n > LOAD_CONNECTIONS) {
        fprintf(stderr, "load: CONNECTIONS must be from 1 to %d\n",
                LOAD_CONNECTIONS);
        return 1;
    }

    load_read(argv[2]);
    load_started = load_now();
    load_rate = argc == 6 ? atof(argv[5]) : 0;
    load_due = load_started;
    srand48(getpid());

    epoll = epoll_create1(0);
    if (epoll == -1) {
        load_die("epoll_create1");
    }

    for (i = 0; i < n; i++) {
        load_open(&load_connections[i], port, epoll);

        if (load_rate == 0) {
            load_send(&load_connections[i]);
        }
    }

    end = load_now() + atof(argv[4]);

    while (load_now() < end) {

        if (load_rate > 0) {
            load_send_due(n);
            load_wait(epoll);
        }

        k = epoll_wait(epoll, events, LOAD_CONNECTIONS,
                       load_rate > 0 ? 0 : 100);

        for (i = 0; i < k; i++) {

            c = events[i].data.ptr;
            got = recv(c->fd, c->answer + c->got, LOAD_ANSWER - c->got, 0);

            if (got <= 0) {

                if (load_bad++ == 0) {
                    fprintf(stderr, "load: a connection was closed after %zu "
                            "bytes of an answer\n", c->got);
                }

                close(c->fd);
                load_open(c, port, epoll);
                load_next(c);
                continue;
            }

            c->got += got;

            if (!load_complete(c)) {
                continue;
            }

            if (memcmp(c->answer + 8, " 200", 4) == 0) {
                load_times[load_good++ % LOAD_TIMES] = load_now() - c->due;

            } else if (load_bad++ == 0) {
                fprintf(stderr, "load: the first bad answer: %.*s\n",
                        (int) strcspn(c->answer, "\r"), c->answer);
            }

            load_next(c);
        }
    }

    qsort(load_times, load_good < LOAD_TIMES ? load_good : LOAD_TIMES,
          sizeof(double), load_compare);

    printf("%llu %llu %.0f %.0f %.0f\n", (unsigned long long) load_good,
           (unsigned long long) load_bad, load_quantile(0.5),
           load_quantile(0.99), load_quantile(1));

    return 0;
}
