/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines report of themselves.
 */


#include "../core/kvr_words.h"
#include "kvr_report.h"

#include <stdlib.h>


#define KVR_REPORT_NONE      UINT32_MAX
#define KVR_REPORT_COUNT_MAX 1e9         /* requests, tokens: more than any
                                            engine */
#define KVR_REPORT_TIME_MAX  4e9         /* seconds since 1970, in 32 bits */
#define KVR_REPORT_NUMBER    64          /* bytes of a value */
#define KVR_REPORT_ANY       UINT32_MAX  /* no rank was named */


typedef struct {
    const char  *name;
    size_t       field;             /* offset of the field in
                                       kvr_report_load_t */
    double       most;              /* a larger value is not possible */
} kvr_report_metric_t;


/* a line of the text: name{label="value",…} number */

typedef struct {
    const char  *name;
    size_t       name_len;
    uint32_t     rank;
    uint32_t     blocks;            /* of vLLM's cache, in labels; 0: none */
    uint32_t     block_size;
    double       value;
} kvr_report_sample_t;


#define KVR_REPORT_WAITING   offsetof(kvr_report_load_t, waiting)
#define KVR_REPORT_RUNNING   offsetof(kvr_report_load_t, running)
#define KVR_REPORT_USAGE     offsetof(kvr_report_load_t, usage)
#define KVR_REPORT_CAPACITY  offsetof(kvr_report_load_t, capacity)
#define KVR_REPORT_STARTED   offsetof(kvr_report_load_t, started)

static const kvr_report_metric_t  kvr_report_metrics[] = {
    { "vllm:num_requests_waiting", KVR_REPORT_WAITING, KVR_REPORT_COUNT_MAX },
    { "vllm:num_requests_running", KVR_REPORT_RUNNING, KVR_REPORT_COUNT_MAX },
    { "vllm:kv_cache_usage_perc", KVR_REPORT_USAGE, 1 },
    { "vllm:gpu_cache_usage_perc", KVR_REPORT_USAGE, 1 },   /* older ones */
    { "vllm:cache_config_info", KVR_REPORT_CAPACITY, KVR_REPORT_COUNT_MAX },
    { "sglang:num_queue_reqs", KVR_REPORT_WAITING, KVR_REPORT_COUNT_MAX },
    { "sglang:num_running_reqs", KVR_REPORT_RUNNING, KVR_REPORT_COUNT_MAX },
    { "sglang:token_usage", KVR_REPORT_USAGE, 1 },
    { "sglang:max_total_num_tokens", KVR_REPORT_CAPACITY,
      KVR_REPORT_COUNT_MAX },
    { "process_start_time_seconds", KVR_REPORT_STARTED, KVR_REPORT_TIME_MAX },
    { NULL, 0, 0 }
};

static const kvr_report_load_t  kvr_report_unknown = {
    .waiting = -1, .running = -1, .usage = -1, .capacity = -1, .started = -1
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


bool
kvr_report_write(kvr_report_t *r, uint32_t generation,
    const kvr_report_load_t *load, uint64_t now_ms)
{
    bool      again;
    uint32_t  capacity, started, before;

    capacity = 0;
    started = 0;

    if (kvr_load32(&r->generation) == generation) {
        capacity = kvr_load32(&r->capacity);
        started = kvr_load32(&r->started);
    }

    before = started;

    if (load->capacity >= 1) {
        capacity = kvr_report_count(load->capacity);
    }

    if (load->started >= 1) {
        started = kvr_report_count(load->started);
    }

    again = before && started != before;

    __atomic_store_n(&r->at_ms, 0, __ATOMIC_RELEASE);

    __atomic_store_n(&r->waiting, kvr_report_count(load->waiting),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->running, kvr_report_count(load->running),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->usage, kvr_report_count(load->usage * 1e6),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&r->capacity, capacity, __ATOMIC_RELAXED);
    __atomic_store_n(&r->started, started, __ATOMIC_RELAXED);
    __atomic_store_n(&r->generation, generation, __ATOMIC_RELAXED);

    __atomic_store_n(&r->at_ms, now_ms, __ATOMIC_RELEASE);

    return again;
}


uint32_t
kvr_report_capacity(const kvr_report_t *r, uint32_t generation)
{
    return kvr_load32(&r->generation) == generation ? kvr_load32(&r->capacity)
                                                    : 0;
}


int64_t
kvr_report_read(const kvr_report_t *r, uint32_t generation, uint64_t now_ms,
    uint64_t max_ms, kvr_report_load_t *load)
{
    uint64_t  at, age;

    *load = kvr_report_unknown;

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
kvr_report_digits(const char *p, size_t len, uint32_t *value)
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

    *value = n;

    return true;
}


/* Keeps what a label says of its sample; most labels say nothing. */

static void
kvr_report_label(const char *name, size_t len, const char *value,
    size_t value_len, kvr_report_sample_t *s)
{
    uint32_t  *to;

    /* vLLM's label of a rank is "engine", SGLang's "dp_rank" */

    if ((len == 6 && memcmp(name, "engine", 6) == 0)
        || (len == 7 && memcmp(name, "dp_rank", 7) == 0))
    {
        to = &s->rank;

    } else if (len == 14 && memcmp(name, "num_gpu_blocks", 14) == 0) {
        to = &s->blocks;

    } else if (len == 10 && memcmp(name, "block_size", 10) == 0) {
        to = &s->block_size;

    } else {
        return;
    }

    (void) kvr_report_digits(value, value_len, to);
}


/* The position behind the closing bracket; NULL: the labels are not valid. */

static const char *
kvr_report_labels(const char *p, const char *end, kvr_report_sample_t *s)
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

        kvr_report_label(name, name_len, value, p - value, s);

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

    return n && *last == '\0';
}


static bool
kvr_report_line(const char *p, const char *end, kvr_report_sample_t *s)
{
    s->name = p;
    s->rank = KVR_REPORT_ANY;
    s->blocks = 0;
    s->block_size = 0;

    while (p < end && *p != '{' && *p != ' ' && *p != '\t') {
        p++;
    }

    s->name_len = p - s->name;

    if (p < end && *p == '{') {
        p = kvr_report_labels(p + 1, end, s);
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
kvr_report_put(const kvr_report_sample_t *s, const kvr_report_metric_t *m,
    kvr_report_load_t *ranks, uint32_t nranks)
{
    double    value, *to;
    uint32_t  rank, last;

    value = s->value;

    /* vLLM's size of its cache is in labels of a sample, whose value is 1 */

    if (s->blocks) {
        value = (double) s->blocks * s->block_size;
    }

    /* the condition is written so that it refuses NaN */

    if (!(value >= 0 && value <= m->most)) {
        return 0;
    }

    rank = 0;
    last = nranks - 1;

    if (nranks > 1) {

        if (s->rank == KVR_REPORT_ANY) {
            if (m->field == KVR_REPORT_WAITING
                || m->field == KVR_REPORT_RUNNING)
            {
                value /= nranks;
            }

        } else if (s->rank < nranks) {
            rank = last = s->rank;

        } else {
            return 0;
        }
    }

    for ( /* void */ ; rank <= last; rank++) {
        to = (double *) ((char *) &ranks[rank] + m->field);
        *to = kvr_max(*to, value);
    }

    return m->field != KVR_REPORT_STARTED;
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
        ranks[i] = kvr_report_unknown;
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
                found += kvr_report_put(&s, m, ranks, nranks);
            }

            break;
        }
    }

    return found;
}
