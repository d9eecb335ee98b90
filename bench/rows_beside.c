/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Finds beside a writer.  Readers look sequences up while a writer, another
 * process, takes the second halves of the very same sequences away and stores
 * them again, 64 blocks an event, at a rate; an answer is right from 512 to
 * 1024.
 */


#include "index.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


#define ROWS_SAMPLES      200000u       /* of one reader */
#define ROWS_BESIDE_NS    1500000000u   /* how long it reads at most */


/* Shared by the processes of a row. */
typedef struct {
    volatile uint32_t  ready, go, stop;
    volatile uint64_t  written, wrote_ns, torn;
    uint64_t           n[2];
    uint64_t           ns[2][ROWS_SAMPLES];
} rows_common_t;


static void rows_beside_row(const wl_t *w, uint32_t readers, uint64_t rate);


void
rows_beside(void)
{
    wl_t      w;
    uint32_t  readers, i;

    static const uint64_t  rates[3] = { 0, 100000, 1000000 };

    wl_make(&w, 'm', WL_SEQUENCES);

    for (readers = 1; readers <= 2; readers++) {
        for (i = 0; i < 3; i++) {
            rows_beside_row(&w, readers, rates[i]);
        }
    }

    wl_free(&w);
}


static void
rows_reader(ix_t *ix, const wl_t *w, rows_common_t *c, uint32_t me)
{
    uint32_t         q, n, best;
    uint64_t         took, end;
    static uint64_t  hashes[WL_DEPTH];

    __atomic_add_fetch(&c->ready, 1, __ATOMIC_SEQ_CST);

    while (!c->go) {
        usleep(100);
    }

    end = wl_now() + ROWS_BESIDE_NS;
    n = 0;

    for (q = me * 1000003; n < ROWS_SAMPLES; q++) {
        (void) wl_query(w, q, WL_DEPTH, hashes);

        took = ix_find(ix, hashes, WL_DEPTH, &best);
        ix_must(best <= WL_DEPTH && (best >= 512 || ix->out.torn),
                "find beside a writer");
        __atomic_add_fetch(&c->torn, ix->out.torn, __ATOMIC_RELAXED);
        c->ns[me][n++] = took;

        if (wl_now() > end) {
            break;
        }
    }

    c->n[me] = n;
    _exit(0);
}


static void
rows_writer(ix_t *ix, const wl_t *w, rows_common_t *c, uint64_t rate)
{
    uint32_t         s, d, i;
    uint64_t         start, due;
    struct timespec  ts;

    __atomic_add_fetch(&c->ready, 1, __ATOMIC_SEQ_CST);

    while (!c->go) {
        usleep(100);
    }

    start = wl_now();

    for (i = 0; !c->stop; i++) {
        s = wl_mix(i) % w->n;

        for (d = WL_DEPTH; d > 512; d -= 64) {
            ix_remove_at(ix, w, s, d, 64);
        }

        for (d = 512; d < WL_DEPTH; d += 64) {
            ix_store_at(ix, w, s, d, 64);
        }

        c->written += 1024;
        c->wrote_ns = wl_now() - start;
        due = c->written * 1000 / rate * 1000000;

        if (due > c->wrote_ns + 50000) {
            ts.tv_sec = 0;
            ts.tv_nsec = (long) kvr_min(due - c->wrote_ns, 500000000);
            nanosleep(&ts, NULL);
        }
    }

    _exit(0);
}


static void
rows_beside_row(const wl_t *w, uint32_t readers, uint64_t rate)
{
    int             status;
    ix_t            ix;
    char            name[96], row[64];
    pid_t           pids[3];
    uint32_t        i, n, total;
    rows_common_t  *c;

    c = mmap(NULL, sizeof(rows_common_t), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ix_must(c != MAP_FAILED, "mmap");
    memset((void *) c, 0, sizeof(rows_common_t));

    ix_open(&ix, (uint64_t) w->n * WL_DEPTH, IX_PAIR_BYTES);
    rows_fill(&ix, w, 64);
    n = readers + (rate != 0);

    for (i = 0; i < n; i++) {
        pids[i] = fork();
        ix_must(pids[i] != -1, "fork");

        if (pids[i] == 0) {
            if (i < readers) {
                rows_reader(&ix, w, c, i);
            }

            rows_writer(&ix, w, c, rate);
        }
    }

    while (__atomic_load_n(&c->ready, __ATOMIC_SEQ_CST) < n) {
        usleep(100);
    }

    c->go = 1;

    for (i = 0; i < readers; i++) {
        ix_must(waitpid(pids[i], &status, 0) == pids[i] && status == 0,
                "a reader's end");
    }

    c->stop = 1;

    if (rate) {
        ix_must(waitpid(pids[readers], &status, 0) == pids[readers]
                && status == 0, "the writer's end");
    }

    /* both readers' samples as one */

    total = c->n[0];

    if (readers == 2) {
        memmove(&c->ns[0][c->n[0]], c->ns[1], c->n[1] * sizeof(uint64_t));
        total += c->n[1];
    }

    snprintf(row, sizeof(row), "%u reader%s, %s blocks/s written", readers,
             readers == 1 ? "" : "s",
             rate == 0 ? "0" : rate == 100000 ? "100 k" : "1 M");
    snprintf(name, sizeof(name), "%s: find p50", row);
    ix_say(name, "ns", ix_percentile(c->ns[0], total, 50));
    snprintf(name, sizeof(name), "%s: find p99", row);
    ix_say(name, "ns", ix_percentile(c->ns[0], total, 99));

    if (rate) {
        snprintf(name, sizeof(name), "%s: in fact", row);
        ix_say(name, "k blocks/s", (double) c->written * 1e6 / c->wrote_ns);
        snprintf(name, sizeof(name), "%s: cut short", row);
        ix_say(name, "of 1000", (double) c->torn * 1000 / total);
    }

    ix_close(&ix);
    munmap(c, sizeof(rows_common_t));
}
