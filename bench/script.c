/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "script.h"


#define SCRIPT_MAGIC   0x3142564bu
#define SCRIPT_SALT    44               /* bits of a segment's number */


static void
script_read(FILE *f, const char *file, void *to, size_t size)
{
    if (fread(to, 1, size, f) != size) {
        fprintf(stderr, "index: %s: not a script, or cut off\n", file);
        exit(1);
    }
}


void
script_open(script_t *s, const char *file)
{
    FILE      *f;
    uint32_t   i, head[4];
    uint64_t   k, at;

    f = fopen(file, "rb");

    if (f == NULL) {
        perror(file);
        exit(1);
    }

    memset(s, 0, sizeof(script_t));
    script_read(f, file, head, sizeof(head));

    if (head[0] != SCRIPT_MAGIC) {
        fprintf(stderr, "index: %s: not a script\n", file);
        exit(1);
    }

    s->nprompts = head[1];
    s->nops = head[3];
    s->nsegments = wl_alloc(head[1] * sizeof(uint32_t));
    s->segments = wl_alloc(head[2] * sizeof(script_segment_t));
    s->ops = wl_alloc(s->nops * sizeof(script_op_t));
    s->starts = wl_alloc((head[1] + 1) * sizeof(uint64_t));

    script_read(f, file, s->nsegments, head[1] * sizeof(uint32_t));
    script_read(f, file, s->segments, head[2] * sizeof(script_segment_t));
    script_read(f, file, s->ops, s->nops * sizeof(script_op_t));
    fclose(f);

    for (i = 0, k = 0, at = 0; i < s->nprompts; i++) {
        s->starts[i] = at;

        for (head[0] = s->nsegments[i]; head[0]; head[0]--) {
            at += s->segments[k++].blocks;
        }
    }

    s->starts[i] = at;
    s->locals = wl_alloc(at * sizeof(uint64_t));
    s->handles = wl_alloc(at * sizeof(uint64_t));

    for (i = 0; i < s->nops; i++) {
        s->nfinds += s->ops[i].kind == SCRIPT_FIND;

        if (s->ops[i].kind == SCRIPT_STORE) {
            s->pairs += s->ops[i].n;
        }
    }

    script_salt(s, 0);
}


void
script_salt(script_t *s, uint64_t salt)
{
    uint32_t           i, n, d;
    uint64_t          *l;
    script_segment_t  *g;

    l = s->locals;
    g = s->segments;

    for (i = 0; i < s->nprompts; i++) {
        for (n = s->nsegments[i]; n; n--, g++) {
            for (d = 0; d < g->blocks; d++) {
                *l++ = wl_local(g->number + (salt << SCRIPT_SALT), d);
            }
        }

        kvr_hash_sequence(s->locals + s->starts[i],
                          s->starts[i + 1] - s->starts[i],
                          s->handles + s->starts[i]);
    }
}


void
script_close(script_t *s)
{
    free(s->ops);
    free(s->nsegments);
    free(s->segments);
    free(s->starts);
    free(s->locals);
    free(s->handles);
}
