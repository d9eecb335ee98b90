/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What engines report in /metrics: read from their text, kept, and forgotten
 * when it is old.
 */


#include <stdlib.h>

#include "traffic/kvr_report.h"
#include "tap.h"


#define RANKS  4


static kvr_report_load_t  load[RANKS];


/* Parses a copy of its own, so that a read beyond its end is seen. */

static uint32_t
parse(const char *text, size_t len, uint32_t ranks)
{
    char      *copy;
    uint32_t   found;

    copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    found = kvr_report_parse(copy, len, load, ranks);
    free(copy);

    return found;
}


static void
is(const char *text, double waiting, double running, double usage,
    const char *what)
{
    (void) parse(text, strlen(text), 1);

    if (!ok(load[0].waiting == waiting && load[0].running == running
            && load[0].usage == usage, "%s", what))
    {
        printf("# waiting %g, running %g, usage %g\n", load[0].waiting,
               load[0].running, load[0].usage);
    }
}


static void
texts(void)
{
    is("# HELP vllm:num_requests_running Number of requests.\n"
       "# TYPE vllm:num_requests_running gauge\n"
       "vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 3.0\n"
       "vllm:num_requests_waiting{engine=\"0\",model_name=\"a\"} 17.0\n"
       "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\"} 0.25\n"
       "vllm:num_requests_waiting_by_reason{engine=\"0\"} 99\n",
       17, 3, 0.25, "vLLM's are read");

    is("vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.5\n", -1, -1, 0.5,
       "an older vLLM's, too");

    is("sglang:num_running_reqs{model_name=\"m\",tp_rank=\"0\"} 2\r\n"
       "sglang:num_queue_reqs{model_name=\"m\",tp_rank=\"0\"} 1e1\r\n"
       "sglang:token_usage{model_name=\"m\"} 1.0 1700000000000\r\n",
       10, 2, 1, "SGLang's are read, with times and both ends of line");

    is("vllm:num_requests_running 4", -1, 4, -1,
       "neither labels nor an end of line are needed");

    is("vllm:num_requests_running{a=\"x\\\"} 9\",b=\"}\"} 4\n", -1, 4, -1,
       "a label may say anything");

    is("vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n"
       "vllm:kv_cache_usage_perc -0.1\n", -1, -1, -1, "no number is none");

    is("vllm:kv_cache_usage_perc 37.5\n", -1, -1, -1,
       "a share above 1 is none");

    is("vllm:num_requests_running 1e30\n", -1, -1, -1,
       "a number without measure is none");

    is("vllm:num_requests_running{\n", -1, -1, -1, "cut labels are none");
    is("vllm:num_requests_running{a\n", -1, -1, -1, "nor is a cut name");
    is("vllm:num_requests_running{a=\"\n", -1, -1, -1, "nor a cut value");
    is("vllm:num_requests_running{a=\"\\\n", -1, -1, -1, "nor a cut escape");
    is("vllm:num_requests_running{} \n", -1, -1, -1, "nor is no number");
    is("vllm:num_requests_running{} 4x\n", -1, -1, -1, "nor half of one");
    is("vllm:num_requests_running{} 4000000000000000000000000000000000000000"
       "000000000000000000000000000000000000000\n", -1, -1, -1,
       "nor a very long one");
    is("", -1, -1, -1, "an empty text says nothing");
}


static void
ranks(void)
{
    static const char  engines[] =
        "vllm:num_requests_running{engine=\"0\"} 1\n"
        "vllm:num_requests_running{engine=\"2\"} 3\n"
        "vllm:num_requests_running{engine=\"9\"} 8\n";
    static const char  shared[] =
        "sglang:num_queue_reqs 8\nsglang:token_usage 0.5\n";

    (void) parse(engines, sizeof(engines) - 1, RANKS);
    ok(load[0].running == 1 && load[2].running == 3, "each rank has its own");
    ok(load[3].waiting == -1, "what nobody reports is not known");

    (void) parse(shared, sizeof(shared) - 1, RANKS);
    ok(load[0].waiting == 2 && load[3].waiting == 2,
       "of requests without a rank each has its share");
    ok(load[0].usage == 0.5 && load[3].usage == 0.5,
       "how full the cache is, is the same for all");

    (void) parse(engines, sizeof(engines) - 1, 1);
    ok(load[0].running == 8, "the only rank is meant whatever its number");
}


static void
engines(void)
{
    static const char  vllm[] =
        "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\","
        "engine=\"0\",num_gpu_blocks=\"1000\",swap_space=\"4\"} 1.0\n"
        "vllm:cache_config_info{block_size=\"16\",engine=\"1\","
        "num_gpu_blocks=\"2000\"} 1.0\n"
        "process_start_time_seconds 1.76386160345e+09\n";
    static const char  sglang[] =
        "sglang:max_total_num_tokens{model_name=\"m\"} 4096.0\n"
        "sglang:max_total_num_tokens_swa{model_name=\"m\"} 64.0\n";
    static const char  nothing[] =
        "vllm:cache_config_info{num_gpu_blocks=\"None\"} 7e30\n"
        "process_start_time_seconds 1.7e+09\n";

    ok(parse(vllm, sizeof(vllm) - 1, RANKS) == 2
       && load[0].capacity == 16000 && load[1].capacity == 32000
       && load[2].capacity == -1 && load[0].started == 1763861603.45
       && load[3].started == 1763861603.45,
       "vLLM's caches have blocks of a size, and its process a start");
    ok(parse(sglang, sizeof(sglang) - 1, 2) == 1 && load[0].capacity == 4096
       && load[1].capacity == 4096 && load[0].started == -1,
       "SGLang's caches have tokens, each rank all of them");
    ok(parse(nothing, sizeof(nothing) - 1, 1) == 0 && load[0].capacity == -1,
       "a size that is not known is none, and a start alone is no load");
}


static void
nonsense(void)
{
    char               *text;
    size_t              i, len, n;
    unsigned            k;
    static const char  *words[] = {
        "vllm:num_requests_running", "sglang:token_usage", "{", "}", "\"",
        "engine=\"", "=", ",", " ", "\n", "1.5", "\\", "e", "-", "\xff"
    };

    srandom(11);
    text = malloc(4096);

    for (k = 0; k < 20000; k++) {
        len = 0;
        n = (size_t) random() % 40;

        for (i = 0; i < n; i++) {
            len += (size_t) sprintf(text + len, "%s",
                                    words[(size_t) random() % 15]);
        }

        (void) parse(text, len, 1 + k % RANKS);
    }

    free(text);

    ok(true, "20000 texts of nonsense do no harm");
}


static void
records(void)
{
    kvr_report_t       r;
    kvr_report_load_t  l;

    memset(&r, 0, sizeof(r));

    ok(kvr_report_read(&r, 0, 5000, 3000, &l) == -1 && l.waiting == -1,
       "an empty record says nothing");

    l = (kvr_report_load_t) { 3, -1, 0.125, -1, -1 };
    (void) kvr_report_write(&r, 7, &l, 5000);

    ok(kvr_report_read(&r, 7, 6000, 3000, &l) == 1000 && l.waiting == 3
       && l.running == -1 && l.usage == 0.125,
       "what was written is read, with its age");
    ok(kvr_report_read(&r, 8, 6000, 3000, &l) == -1 && l.waiting == -1,
       "not by the next worker of that number");
    ok(kvr_report_read(&r, 7, 8000, 3000, &l) == -1 && l.usage == -1,
       "and not when it is old");
    ok(kvr_report_read(&r, 7, 4999, 3000, &l) == 0,
       "another process's clock may be behind");

    l = (kvr_report_load_t) { 3, -1, 0.125, 4096, 1.7e9 };
    ok(!kvr_report_write(&r, 7, &l, 5000)
       && kvr_report_capacity(&r, 7) == 4096,
       "the first start that is known is no restart");

    l = (kvr_report_load_t) { 4, -1, 0.25, -1, -1 };
    ok(!kvr_report_write(&r, 7, &l, 6000)
       && kvr_report_capacity(&r, 7) == 4096,
       "what a report leaves out, is as it was");

    l.started = 1.7e9;
    ok(!kvr_report_write(&r, 7, &l, 7000), "the same start is no restart");

    l.started = 1.7e9 + 1;
    ok(kvr_report_write(&r, 7, &l, 8000), "another one is");

    l.started = 1.7e9 + 2;
    ok(!kvr_report_write(&r, 8, &l, 9000)
       && kvr_report_capacity(&r, 8) == 0 && kvr_report_capacity(&r, 7) == 0,
       "but not that of the next worker of that number");
}


int
main(void)
{
    texts();
    ranks();
    engines();
    nonsense();
    records();

    return done();
}
