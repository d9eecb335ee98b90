/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A prefix cache, printed for people.
 */


#include "kvr_prefix_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


#define KVR_PREFIX_SHOWN     8          /* units of a node */
#define KVR_PREFIX_INDENT    32         /* levels; deeper ones stay there */
#define KVR_PREFIX_LINE      512


/* A node, copied in the slice, and printed behind it. */
typedef struct {
    uint32_t    depth;
    uint32_t    len;
    uint32_t    locks;
    uint32_t    level;
    uint32_t    flags;
    uint32_t    value_len;
    uint64_t    units[KVR_PREFIX_SHOWN];
    uint64_t    last;
    char        extra[KVR_PREFIX_SHOWN * 8];
} kvr_prefix_shown_t;


typedef struct {
    size_t      len;
    char        text[KVR_PREFIX_LINE];
} kvr_prefix_line_t;


static uint32_t kvr_prefix_collect(const kvr_prefix_t *c,
    kvr_prefix_shown_t *out, uint32_t limit, bool *more);
static void kvr_prefix_show(const kvr_prefix_t *c,
    const kvr_prefix_item_t *p, uint32_t depth, kvr_prefix_shown_t *out);
static void kvr_prefix_print(const kvr_prefix_t *c,
    const kvr_prefix_shown_t *s, kvr_prefix_line_t *line);
static void kvr_prefix_add(kvr_prefix_line_t *line, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


kvr_rc_t
kvr_prefix_dump(kvr_prefix_t *c, uint32_t limit,
    void (*line)(void *data, const char *text, size_t len), void *data)
{
    kvr_rc_t             rc;
    uint32_t             i, n;
    bool                 more;
    kvr_prefix_line_t    l;
    kvr_prefix_shown_t  *shown;

    limit = kvr_min(limit, KVR_PREFIX_DUMP_MAX);

    shown = malloc((limit + 1) * sizeof(kvr_prefix_shown_t));
    if (shown == NULL) {
        return KVR_ERROR;
    }

    rc = kvr_prefix_enter(c);

    if (rc == KVR_OK) {
        n = kvr_prefix_collect(c, shown, limit, &more);
        kvr_prefix_exit(c);

        for (i = 0; i < n; i++) {
            l.len = 0;
            kvr_prefix_print(c, &shown[i], &l);
            line(data, l.text, l.len);
        }

        if (more) {
            l.len = 0;
            kvr_prefix_add(&l, "more nodes are not shown: the first %u are",
                           n);
            line(data, l.text, l.len);
        }
    }

    free(shown);

    return rc;
}


/* Copies nodes; *more: there are more than the limit. */

static uint32_t
kvr_prefix_collect(const kvr_prefix_t *c, kvr_prefix_shown_t *out,
    uint32_t limit, bool *more)
{
    uint32_t                  n, node, depth;
    const kvr_prefix_item_t  *p;

    n = 0;
    depth = 0;
    node = c->zone->spaces;

    while (node && n < limit) {
        p = kvr_prefix_at(c, node);
        kvr_prefix_show(c, p, depth, &out[n++]);

        if (p->child) {
            node = p->child;
            depth++;
            continue;
        }

        while (p->next == 0 && p->parent) {
            p = kvr_prefix_at(c, p->parent);
            depth--;
        }

        node = p->next;
    }

    *more = node != 0;

    return n;
}


static uint64_t
kvr_prefix_unit(const kvr_prefix_t *c, const kvr_prefix_item_t *p, uint32_t i)
{
    uint8_t      byte;
    uint32_t     token;
    uint64_t     hash;
    const char  *at;

    at = kvr_prefix_units(c, p) + (size_t) i * c->unit;

    switch (c->unit) {

    case sizeof(uint32_t):
        memcpy(&token, at, sizeof(token));
        return token;

    case sizeof(uint64_t):
        memcpy(&hash, at, sizeof(hash));
        return hash;

    default:
        memcpy(&byte, at, sizeof(byte));
        return byte;
    }
}


static void
kvr_prefix_show(const kvr_prefix_t *c, const kvr_prefix_item_t *p,
    uint32_t depth, kvr_prefix_shown_t *out)
{
    uint32_t  i;

    out->depth = depth;
    out->len = p->len;
    out->locks = p->locks;
    out->level = p->level;
    out->flags = p->flags;
    out->value_len = p->value_len;

    if (p->flags & KVR_PREFIX_SPACE) {
        memcpy(out->extra, kvr_prefix_units(c, p),
               kvr_min(p->len, sizeof(out->extra)));
        return;
    }

    for (i = 0; i < KVR_PREFIX_SHOWN && i < p->len; i++) {
        out->units[i] = kvr_prefix_unit(c, p, i);
    }

    out->last = kvr_prefix_unit(c, p, p->len - 1);
}


static void
kvr_prefix_add(kvr_prefix_line_t *line, const char *fmt, ...)
{
    int      n;
    va_list  args;

    va_start(args, fmt);
    n = vsnprintf(line->text + line->len, KVR_PREFIX_LINE - line->len, fmt,
                  args);
    va_end(args);

    line->len = kvr_min(line->len + (size_t) n, KVR_PREFIX_LINE - 1);
}


static void
kvr_prefix_print_unit(const kvr_prefix_t *c, uint64_t unit,
    kvr_prefix_line_t *line)
{
    if (c->unit == sizeof(uint64_t)) {
        kvr_prefix_add(line, " %016llx", (unsigned long long) unit);

    } else if (c->unit == 1 && unit > 0x20 && unit < 0x7f) {
        kvr_prefix_add(line, " %c", (char) unit);

    } else if (c->unit == 1) {
        kvr_prefix_add(line, " %02x", (unsigned) unit);

    } else {
        kvr_prefix_add(line, " %u", (unsigned) unit);
    }
}


static void
kvr_prefix_print(const kvr_prefix_t *c, const kvr_prefix_shown_t *s,
    kvr_prefix_line_t *line)
{
    uint32_t  i;

    kvr_prefix_add(line, "%*s",
                   (int) (2 * kvr_min(s->depth, KVR_PREFIX_INDENT)), "");

    if (s->flags & KVR_PREFIX_SPACE) {
        kvr_prefix_add(line, "%s \"",
                       s->flags & KVR_PREFIX_STORED ? "entries" : "tree");

        for (i = 0; i < kvr_min(s->len, sizeof(s->extra)); i++) {
            kvr_prefix_add(line, s->extra[i] >= 0x20 && s->extra[i] < 0x7f
                                 && s->extra[i] != '"' && s->extra[i] != '\\'
                                 ? "%c" : "\\x%02x",
                           (unsigned char) s->extra[i]);
        }

        kvr_prefix_add(line, "\"%s", s->len > sizeof(s->extra) ? "..." : "");
        return;
    }

    kvr_prefix_add(line, "%u:", s->len);

    for (i = 0; i < KVR_PREFIX_SHOWN && i < s->len; i++) {
        kvr_prefix_print_unit(c, s->units[i], line);
    }

    if (s->len > KVR_PREFIX_SHOWN) {
        kvr_prefix_add(line, s->len > KVR_PREFIX_SHOWN + 1 ? " ..." : "");
        kvr_prefix_print_unit(c, s->last, line);
    }

    if (s->locks) {
        kvr_prefix_add(line, " locks=%u", s->locks);
    }

    if (s->level) {
        kvr_prefix_add(line, " level=%u", s->level);
    }

    if (s->flags & KVR_PREFIX_ENTRY) {
        kvr_prefix_add(line, " entry=%u bytes", s->value_len);
    }
}
