/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Bodies of requests: the scan that makes a tape of them.
 */


#include "index.h"

#include "wire/kvr_json_ways.h"
#include "wire/kvr_tape.h"


#define ROWS_IDS          4096u
#define ROWS_TEXT         16384u        /* bytes */
#define ROWS_ENTRIES      256u          /* of a tape */
#define ROWS_TURNS        1001u


static char *rows_ids(char *p, const char *separator);
static char *rows_text(char *p, const char *word);
static void rows_scan(const char *what, const char *body, const char *end,
    uint32_t ids);


void
rows_body(void)
{
    char  *body;

    body = wl_alloc(ROWS_IDS * 12 + ROWS_TEXT + 64);

    rows_scan("4096 ids", body, rows_ids(body, ","), ROWS_IDS);
    rows_scan("4096 ids with blanks", body, rows_ids(body, ", "), ROWS_IDS);
    rows_scan("16 KB of English", body, rows_text(body, "A line of text, and "
                                                        "the next.\\n"), 0);
    rows_scan("16 KB of Chinese", body, rows_text(body, "\xe4\xbd\xa0"), 0);

    free(body);
}


static char *
rows_ids(char *p, const char *separator)
{
    uint32_t  i;

    p += sprintf(p, "{\"prompt\":[");

    for (i = 0; i < ROWS_IDS; i++) {
        p += sprintf(p, "%s%u", i ? separator : "",
                     (unsigned) (wl_mix(i) % 151936));
    }

    return p + sprintf(p, "]}");
}


static char *
rows_text(char *p, const char *word)
{
    char  *start;

    start = p;
    p += sprintf(p, "{\"prompt\":\"");

    while (p - start < ROWS_TEXT) {
        p += sprintf(p, "%s", word);
    }

    return p + sprintf(p, "\"}");
}


/* By each implementation that this processor can run. */

static void
rows_scan(const char *what, const char *body, const char *end, uint32_t ids)
{
    char               name[64];
    size_t             way, k;
    uint32_t           out[ROWS_IDS];
    uint64_t           t, v[ROWS_TURNS];
    kvr_tape_t         tape;
    kvr_tape_entry_t   entries[ROWS_ENTRIES];

    for (way = 0; kvr_json_way(way); way++) {

        kvr_tape_init(&tape, entries, ROWS_ENTRIES, out, ROWS_IDS);
        tape.way = kvr_json_way(way);

        for (k = 0; k < ROWS_TURNS; k++) {
            t = wl_now();
            ix_must(kvr_tape_scan(&tape, body, end - body) == KVR_OK, "scan");
            v[k] = wl_now() - t;
        }

        ix_must(tape.nids == ids, "ids");

        snprintf(name, sizeof(name), "scan a body, %s, %s", what,
                 tape.way->name);
        ix_say(name, "us", ix_percentile(v, ROWS_TURNS, 50) / 1000.0);
    }
}
