/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines answer: kvr_http_answer(), the reports in their metrics, and
 * the usage in an answer of each form and the beginning of its output, which
 * don't depend on how the answer is cut.
 */


#include "fuzz.h"

#include "traffic/kvr_report.h"
#include "wire/kvr_answer.h"
#include "wire/kvr_http.h"
#include "wire/kvr_output.h"


#define RANKS  3


static void http(const uint8_t *bytes, size_t len, bool end);
static void report(const char *text, size_t len);
static void number(double value, double most);
static void usage(kvr_form_t form, const char *text, size_t len);
static bool usage_in(kvr_form_t form, const char *text, size_t len,
    size_t piece, kvr_answer_usage_t *u);
static void output(const char *text, size_t len);


const uint32_t  fuzz_inputs = 100000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char        *text;
    kvr_form_t   form;

    http(bytes, len, false);
    http(bytes, len, true);

    text = fuzz_copy(bytes, len);

    report(text, len);

    for (form = KVR_FORM_UNKNOWN; form < KVR_FORMS; form++) {
        usage(form, text, len);
    }

    output(text, len);

    free(text);

    return 0;
}


static void
http(const uint8_t *bytes, size_t len, bool end)
{
    char               *text;
    kvr_rc_t            rc;
    kvr_http_answer_t   a;

    text = fuzz_copy(bytes, len);

    rc = kvr_http_answer(text, len, end, &a);

    if (rc != KVR_OK && rc != KVR_INVALID && (rc != KVR_BUSY || end)) {
        fuzz_fail("http: %d", rc);
    }

    if (rc == KVR_OK) {

        if (a.status < 200 || a.status > 999 || a.body < text
            || a.len > len - (size_t) (a.body - text))
        {
            fuzz_fail("http: status %u, %zu bytes", a.status, a.len);
        }

        report(a.body, a.len);
    }

    free(text);
}


static void
number(double value, double most)
{
    if (!(value == -1 || (value >= 0 && value <= most))) {
        fuzz_fail("report: %g", value);
    }
}


static void
report(const char *text, size_t len)
{
    uint32_t           i, found;
    kvr_report_load_t  ranks[RANKS];

    found = kvr_report_parse(text, len, ranks, RANKS);

    for (i = 0; i < RANKS; i++) {
        number(ranks[i].waiting, 1e9);
        number(ranks[i].running, 1e9);
        number(ranks[i].usage, 1);
        number(ranks[i].capacity, 1e9);
        number(ranks[i].started, 4e9);

        if (found == 0 && (ranks[i].waiting >= 0 || ranks[i].running >= 0
                           || ranks[i].usage >= 0
                           || ranks[i].capacity >= 0))
        {
            fuzz_fail("report: nothing was found");
        }
    }
}


static bool
usage_in(kvr_form_t form, const char *text, size_t len, size_t piece,
    kvr_answer_usage_t *u)
{
    size_t         n;
    kvr_answer_t   a;

    kvr_answer_init(&a, form);

    for ( /* void */ ; len; len -= n, text += n) {
        n = kvr_min(piece, len);
        kvr_answer_add(&a, text, n);
    }

    return kvr_answer_usage(&a, u);
}


static void
usage(kvr_form_t form, const char *text, size_t len)
{
    bool                found;
    size_t              piece;
    kvr_answer_usage_t  u, v;

    found = usage_in(form, text, len, SIZE_MAX, &u);

    for (piece = 1; piece < 2000; piece = 5 * piece + 2) {

        if (usage_in(form, text, len, piece, &v) != found
            || v.has_prompt != u.has_prompt || v.has_cached != u.has_cached
            || v.prompt_tokens != u.prompt_tokens
            || v.cached_tokens != u.cached_tokens)
        {
            fuzz_fail("usage: other by pieces of %zu", piece);
        }
    }
}


static void
output(const char *text, size_t len)
{
    size_t        at, piece, n;
    kvr_output_t  o, all;

    for (piece = 1; piece < 2000; piece = 5 * piece + 2) {
        memset(&o, 0, sizeof(kvr_output_t));

        for (at = 0; at < len && !o.begun; at += n) {
            n = kvr_min(piece, len - at);
            (void) kvr_output_add(&o, text + at, n);
        }

        memset(&all, 0, sizeof(kvr_output_t));

        if (kvr_output_add(&all, text, at) != o.begun
            || all.silent != o.silent || all.len != o.len
            || memcmp(all.line, o.line, o.len) != 0)
        {
            fuzz_fail("output: other by pieces of %zu", piece);
        }
    }
}
