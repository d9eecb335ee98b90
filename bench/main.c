/*
 * Copyright (C) the nginx-kv-router authors
 *
 * How fast the radix index is, and how large.
 *
 *     index main          finds, stores, removals, memory, hashing
 *     index scale         0.1 M and 10 M pairs
 *     index chat=FILE     a script of run.py's, see script.py
 *     index trace=FILE    another one
 *     index worst         one-block prompts, staircases, longest lookups
 *     index positional    the positional index
 *     index beside        finds beside a writer
 *     index groups        finds where holders have KV-cache groups
 *     index pauses        longest turns of ttl=, longest stores when full
 *     index capacity=FILE what zones hold; the script is that of chats
 *     index snapshot      snapshots, built aside and swapped in
 *     index prefix        the prefix cache
 *     index turns         the turn cache
 *     index flights       what is in flight over all processes
 *     index sync          what is heard of other routers
 *
 * One line of JSON a figure, on stdout:
 *
 *     {"who": "ours", "name": "find, hit", "unit": "ns", "value": 543.2}
 *
 * workload.h says what is stored and asked.
 */


#include "index.h"


int
main(int argc, char **argv)
{
    int          i;
    char        *file;
    const char  *row;

    if (argc == 1) {
        goto usage;
    }

    ix_clock();

    for (i = 1; i < argc; i++) {
        row = argv[i];
        file = strchr(argv[i], '=');

        if (file) {
            *file++ = '\0';
        }

        if (strcmp(row, "main") == 0) {
            rows_main();

        } else if (strcmp(row, "scale") == 0) {
            rows_scale();

        } else if (strcmp(row, "chat") == 0 && file) {
            rows_script("chat", file);

        } else if (strcmp(row, "trace") == 0 && file) {
            rows_script("trace", file);

        } else if (strcmp(row, "worst") == 0) {
            rows_worst();

        } else if (strcmp(row, "body") == 0) {
            rows_body();

        } else if (strcmp(row, "positional") == 0) {
            rows_positional();

        } else if (strcmp(row, "beside") == 0) {
            rows_beside();

        } else if (strcmp(row, "groups") == 0) {
            rows_groups();

        } else if (strcmp(row, "ingest") == 0) {
            rows_ingest();

        } else if (strcmp(row, "pauses") == 0) {
            rows_pauses();

        } else if (strcmp(row, "capacity") == 0 && file) {
            rows_capacity(file);

        } else if (strcmp(row, "snapshot") == 0) {
            rows_snapshot();

        } else if (strcmp(row, "prefix") == 0) {
            rows_prefix();

        } else if (strcmp(row, "turns") == 0) {
            rows_turns();

        } else if (strcmp(row, "flights") == 0) {
            rows_flights();

        } else if (strcmp(row, "sync") == 0) {
            rows_sync();

        } else {
            goto usage;
        }
    }

    return 0;

usage:

    fprintf(stderr, "usage: index [main] [scale] [chat=FILE] [trace=FILE]"
                    " [worst] [positional] [beside] [groups] [body] [ingest]"
                    " [pauses] [capacity=FILE] [snapshot] [prefix] [turns]"
                    " [flights] [sync]\n");

    return 2;
}
