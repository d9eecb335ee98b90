/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines report of themselves.
 */


#include "kvr_report.h"

#include <stdlib.h>


#define KVR_REPORT_NONE      UINT32_MAX
#define KVR_REPORT_COUNT_MAX 1e9         /* requests: more than any engine */
#define KVR_REPORT_NUMBER    64          /* bytes of a value */
#define KVR_REPORT_ANY       UINT32_MAX  /* no rank was named */


typedef struct {
    const char  *name;
    size_t       field;             /* offset of the field in
                                       kvr_report_load_t */
} kvr_report_metric_t;


/* a line of the text: name{label="value",…} number */

typedef struct {
    const char  *name;
    size_t       name_len;
    uint32_t     rank;
    double       value;
} kvr_report_sample_t;


static uint32_t kvr_report_count(double value);
static double kvr_report_known(uint32_t value, double unit);
static bool kvr_report_line(const char *p, const char *end,
    kvr_report_sample_t *s);
static const char *kvr_report_labels(const char *p, const char *end,
    uint32_t *rank);
static bool kvr_report_number(const char *p, const char *end, double *value);
static bool kvr_report_rank(const char *p, size_t len, uint32_t *rank);
static uint32_t kvr_report_put(const kvr_report_sample_t *s, size_t field,
    kvr_report_load_t *ranks, uint32_t nranks);


#define KVR_REPORT_WAITING   offsetof(kvr_report_load_t, waiting)
#define KVR_REPORT_RUNNING   offsetof(kvr_report_load_t, running)
#define KVR_REPORT_USAGE     offsetof(kvr_report_load_t, usage)

static const kvr_report_metric_t  kvr_report_metrics[] = {
    { "vllm:num_requests_waiting", KVR_REPORT_WAITING },
    { "vllm:num_requests_running", KVR_REPORT_RUNNING },
    { "vllm:kv_cache_usage_perc", KVR_REPORT_USAGE },
    { "vllm:gpu_cache_usage_perc", KVR_REPORT_USAGE },  /* older ones */
    { "sglang:num_queue_reqs", KVR_REPORT_WAITING },
    { "sglang:num_running_reqs", KVR_REPORT_RUNNING },
    { "sglang:token_usage", KVR_REPORT_USAGE },
    { NULL, 0 }
};

/* ---- the record --------------------------------------------------------- */

static uint32_t
kvr_report_count(double value)
{
    return value < 0 ? KVR_REPORT_NONE : (uint32_t) (value + 0.5);
}


static double
kvr_report_known(uint32_t value, double unit)
{
    return value == KVR_REPORT_NONE ? -1 : value / unit;
}


void
kvr_report_write(kvr_report_t *r, uint32_t generation,
    const kvr_report_load_t *load, uint64_t now_ms)
{
    __atomic_store_n(&r->at_ms, 0, __ATOMIC_RELEASE);

    __atomic_store_n(&r->waiting, kvr_report_count(load->waiting),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->running, kvr_report_count(load->running),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->usage, kvr_report_count(load->usage * 1e6),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->generation, generation, __ATOMIC_RELAXED);

    __atomic_store_n(&r->at_ms, now_ms, __ATOMIC_RELEASE);
}


int64_t
kvr_report_read(const kvr_report_t *r, uint32_t generation, uint64_t now_ms,
    uint64_t max_ms, kvr_report_load_t *load)
{
    uint64_t  at, age;

    load->waiting = -1;
    load->running = -1;
    load->usage = -1;

    at = __atomic_load_n(&r->at_ms, __ATOMIC_ACQUIRE);
    age = now_ms > at ? now_ms - at : 0;

    if (at == 0 || age >= max_ms
        || __atomic_load_n(&r->generation, __ATOMIC_RELAXED) != generation)
    {
        return -1;
    }

    load->waiting = kvr_report_known(__atomic_load_n(&r->waiting,
                                                     __ATOMIC_RELAXED), 1);
    load->running = kvr_report_known(__atomic_load_n(&r->running,
                                                     __ATOMIC_RELAXED), 1);
    load->usage = kvr_report_known(__atomic_load_n(&r->usage,
                                                   __ATOMIC_RELAXED), 1e6);

    return (int64_t) age;
}


/* ---- the text ----------------------------------------------------------- */

/* 0 .. 2^32 - 2 in at most nine digits. */

static bool
kvr_report_rank(const char *p, size_t len, uint32_t *rank)
{
    size_t    i;
    uint32_t  n;

    if (len == 0 || len > 9) {
        return false;
    }

    n = 0;

    for (i = 0; i < len; i++) {

        if (p[i] < '0' || p[i] > '9') {
            return false;
        }

        n = n * 10 + (uint32_t) (p[i] - '0');
    }

    *rank = n;

    return true;
}


/* The position behind the closing bracket; NULL: the labels are not valid. */

static const char *
kvr_report_labels(const char *p, const char *end, uint32_t *rank)
{
    size_t       name_len;
    const char  *name, *value;

    while (p < end && *p != '}') {

        if (*p == ',' || *p == ' ') {
            p++;
            continue;
        }

        name = p;

        while (p < end && *p != '=') {
            p++;
        }

        name_len = p - name;

        if (end - p < 2 || p[1] != '"') {
            return NULL;
        }

        p += 2;
        value = p;

        while (p < end && *p != '"') {
            p += (*p == '\\' && end - p > 1) ? 2 : 1;
        }

        if (p >= end) {
            return NULL;
        }

        /* vLLM's label is "engine", SGLang's "dp_rank" */

        if ((name_len == 6 && memcmp(name, "engine", 6) == 0)
            || (name_len == 7 && memcmp(name, "dp_rank", 7) == 0))
        {
            (void) kvr_report_rank(value, p - value, rank);
        }

        p++;
    }

    return p < end ? p + 1 : NULL;
}


static bool
kvr_report_number(const char *p, const char *end, double *value)
{
    char    buf[KVR_REPORT_NUMBER], *last;
    size_t  n;

    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }

    for (n = 0; p < end && *p != ' ' && *p != '\t' && *p != '\r'; n++) {

        if (n == sizeof(buf) - 1) {
            return false;
        }

        buf[n] = *p++;
    }

    buf[n] = '\0';

    *value = strtod(buf, &last);

    /* the condition is written so that it refuses NaN */

    return n && *last == '\0' && *value >= 0
           && *value <= KVR_REPORT_COUNT_MAX;
}


static bool
kvr_report_line(const char *p, const char *end, kvr_report_sample_t *s)
{
    s->name = p;
    s->rank = KVR_REPORT_ANY;

    while (p < end && *p != '{' && *p != ' ' && *p != '\t') {
        p++;
    }

    s->name_len = p - s->name;

    if (p < end && *p == '{') {
        p = kvr_report_labels(p + 1, end, &s->rank);
        if (p == NULL) {
            return false;
        }
    }

    return kvr_report_number(p, end, &s->value);
}


/*
 * Records a sample. Of several samples of one rank the largest counts, because
 * they measure the same thing.
 */

static uint32_t
kvr_report_put(const kvr_report_sample_t *s, size_t field,
    kvr_report_load_t *ranks, uint32_t nranks)
{
    double    value, *to;
    uint32_t  rank, last;

    value = s->value;

    if (field == KVR_REPORT_USAGE && value > 1) {
        return 0;
    }

    rank = 0;
    last = nranks - 1;

    if (nranks > 1) {

        if (s->rank == KVR_REPORT_ANY) {
            value = field == KVR_REPORT_USAGE ? value : value / nranks;

        } else if (s->rank < nranks) {
            rank = last = s->rank;

        } else {
            return 0;
        }
    }

    for ( /* void */ ; rank <= last; rank++) {
        to = (double *) ((char *) &ranks[rank] + field);
        *to = kvr_max(*to, value);
    }

    return 1;
}


uint32_t
kvr_report_parse(const char *text, size_t len, kvr_report_load_t *ranks,
    uint32_t nranks)
{
    uint32_t                    i, found;
    const char                 *p, *end, *eol;
    kvr_report_sample_t         s;
    const kvr_report_metric_t  *m;

    for (i = 0; i < nranks; i++) {
        ranks[i].waiting = -1;
        ranks[i].running = -1;
        ranks[i].usage = -1;
    }

    found = 0;
    end = text + len;

    for (p = text; nranks && p < end; p = eol + 1) {

        eol = memchr(p, '\n', end - p);
        if (eol == NULL) {
            eol = end;
        }

        /*
         * most of the thousands of lines are not needed: each costs one
         * compare
         */

        for (m = kvr_report_metrics; m->name; m++) {

            i = strlen(m->name);

            if ((size_t) (eol - p) <= i || memcmp(p, m->name, i) != 0) {
                continue;
            }

            if (kvr_report_line(p, eol, &s) && s.name_len == i) {
                found += kvr_report_put(&s, m->field, ranks, nranks);
            }

            break;
        }
    }

    return found;
}
