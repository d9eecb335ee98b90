/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The tape of a text: beside the cursor, which walks over the same text value
 * by value; with little room; and by every implementation that this processor
 * can run, which must all say the same.
 */


#include "fuzz.h"

#include "wire/kvr_json_ways.h"
#include "wire/kvr_plain.h"
#include "wire/kvr_tape.h"


#define LITTLE        6                 /* entries, or ids */


static kvr_rc_t scan(kvr_tape_t *t, const char *text, size_t len,
    uint32_t cap, size_t ids_cap, size_t way);
static void clear(kvr_tape_t *t);
static void ways(const kvr_tape_t *t, kvr_rc_t rc, const char *text,
    size_t len);
static void walk(const kvr_tape_t *t);
static uint32_t value(const kvr_tape_t *t, kvr_json_t *j, uint32_t i);
static uint32_t ids(const kvr_tape_t *t, kvr_json_t *j, uint32_t i);
static void string(const kvr_tape_t *t, uint32_t i, kvr_tape_kind_t kind,
    const kvr_json_text_t *text);
static void is(const kvr_tape_t *t, uint32_t i, bool good, const char *what);
static void refused(const kvr_tape_t *t);
static bool utf8(const kvr_json_text_t *text);
static void little(const kvr_tape_t *t);
static void plain(const kvr_tape_t *t);


const uint32_t  fuzz_inputs = 300000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char        *text;
    kvr_rc_t     rc;
    kvr_tape_t   t;

    text = fuzz_copy(bytes, len);

    rc = scan(&t, text, len, len / 2 + 3, len / 2 + 1, 0);

    ways(&t, rc, text, len);

    if (rc == KVR_OK) {
        walk(&t);
        little(&t);
        plain(&t);

    } else {
        refused(&t);
    }

    clear(&t);
    free(text);

    return 0;
}


/* A tape in arrays of just that size. */

static kvr_rc_t
scan(kvr_tape_t *t, const char *text, size_t len, uint32_t cap,
    size_t ids_cap, size_t way)
{
    kvr_rc_t  rc;

    kvr_tape_init(t, malloc(cap * sizeof(kvr_tape_entry_t)), cap,
                  malloc(ids_cap * sizeof(uint32_t)), ids_cap);

    t->way = kvr_json_way(way);

    rc = kvr_tape_scan(t, text, len);

    if ((rc == KVR_OK) != !t->error || t->error_at > len || t->n > cap
        || t->nids > ids_cap || (rc != KVR_OK && rc != KVR_INVALID
                                 && rc != KVR_FULL))
    {
        fuzz_fail("scan: %d, %u entries, %zu ids, %s at %zu", rc, t->n,
                  t->nids, t->error ? t->error : "-", t->error_at);
    }

    return rc;
}


static void
clear(kvr_tape_t *t)
{
    free(t->entries);
    free(t->ids);
}


static void
ways(const kvr_tape_t *t, kvr_rc_t rc, const char *text, size_t len)
{
    size_t      way;
    kvr_rc_t    other;
    kvr_tape_t  u;

    for (way = 1; kvr_json_way(way); way++) {

        other = scan(&u, text, len, t->cap, t->ids_cap, way);

        if (other != rc || u.error != t->error || u.error_at != t->error_at
            || (rc == KVR_OK
                && (u.n != t->n || u.nids != t->nids
                    || memcmp(u.entries, t->entries,
                              t->n * sizeof(kvr_tape_entry_t)) != 0
                    || memcmp(u.ids, t->ids, t->nids * sizeof(uint32_t))
                       != 0)))
        {
            fuzz_fail("%s says %d, %s at %zu; %s says %d, %s at %zu",
                      t->way->name, rc, t->error ? t->error : "-",
                      t->error_at, u.way->name, other,
                      u.error ? u.error : "-", u.error_at);
        }

        clear(&u);
    }
}


/* Every entry is what the cursor finds in its place, and there is no other. */

static void
walk(const kvr_tape_t *t)
{
    kvr_json_t  j;

    kvr_json_init(&j, t->text, t->text_len);

    is(t, value(t, &j, KVR_TAPE_ROOT), true, "end");

    if (!kvr_json_end(&j) || t->entries[KVR_TAPE_ROOT].next != t->n) {
        fuzz_fail("the tape ends at %u of %u; %s",
                  t->entries[KVR_TAPE_ROOT].next, t->n,
                  j.error ? j.error : "-");
    }
}


/* The value at the cursor is that of entry i; returns the entry behind it. */

static uint32_t
value(const kvr_tape_t *t, kvr_json_t *j, uint32_t i)
{
    int                      c;
    bool                     b, map;
    uint32_t                 len, at;
    kvr_json_text_t          text;
    const kvr_tape_entry_t  *e;

    e = &t->entries[i];
    c = kvr_json_peek(j);

    is(t, i, i < t->n && (size_t) (j->pos - j->start) == e->at, "offset");

    at = i + 1;

    switch (c) {

    case '{':
    case '[':
        if (e->kind == KVR_TAPE_IDS) {
            at = ids(t, j, i);
            break;
        }

        map = (c == '{');
        is(t, i, e->kind == (map ? KVR_TAPE_OBJECT : KVR_TAPE_ARRAY), "kind");

        kvr_json_open(j, c);

        for (len = 0; map ? kvr_json_key(j, &text) : kvr_json_next(j); len++) {

            if (map) {
                string(t, at, KVR_TAPE_KEY, &text);
                is(t, at, t->entries[at].next == t->entries[at + 1].next,
                   "next of a key");
                at++;
            }

            at = value(t, j, at);
        }

        is(t, i, e->len == len, "number of children");
        break;

    case '"':
        kvr_json_string(j, &text);
        string(t, i, KVR_TAPE_STRING, &text);
        break;

    case 't':
    case 'f':
        kvr_json_bool(j, &b);
        is(t, i, e->kind == (b ? KVR_TAPE_TRUE : KVR_TAPE_FALSE), "boolean");
        break;

    case 'n':
        kvr_json_null(j);
        is(t, i, e->kind == KVR_TAPE_NULL, "null");
        break;

    default:
        kvr_json_number(j, &text);
        is(t, i, e->len == text.len
                 && e->kind == (memchr(text.data, '.', text.len)
                                || memchr(text.data, 'e', text.len)
                                || memchr(text.data, 'E', text.len)
                                ? KVR_TAPE_FLOAT : KVR_TAPE_INT),
           "number");
    }

    is(t, i, e->next == at && (size_t) (j->pos - j->start) == e->end, "end");

    return at;
}


/* An array of ids, read number by number. */

static uint32_t
ids(const kvr_tape_t *t, kvr_json_t *j, uint32_t i)
{
    uint32_t                 n;
    uint64_t                 id;
    kvr_json_text_t          text;
    const kvr_tape_entry_t  *e;

    e = &t->entries[i];

    is(t, i, e->len > 0 && e->first + e->len <= t->nids, "room");

    kvr_json_open(j, '[');

    for (n = 0; kvr_json_next(j); n++) {
        is(t, i, kvr_json_number(j, &text)
                 && kvr_json_digits(text.data, text.len, &id) && n < e->len
                 && t->ids[e->first + n] == id,
           "id");
    }

    is(t, i, n == e->len, "number of ids");

    return i + 1;
}


static void
string(const kvr_tape_t *t, uint32_t i, kvr_tape_kind_t kind,
    const kvr_json_text_t *text)
{
    kvr_json_text_t          s;
    const kvr_tape_entry_t  *e;

    e = &t->entries[i];
    s = kvr_tape_text(t, i);

    is(t, i, e->kind == kind && s.data == text->data && s.len == text->len
             && s.escaped == text->escaped
             && e->end == e->at + e->len + 2,
       "string");
    is(t, i, utf8(text) && kvr_json_lone(text) == NULL, "characters");
}


static void
is(const kvr_tape_t *t, uint32_t i, bool good, const char *what)
{
    if (!good) {
        fuzz_fail("entry %u of %u: %s", i, t->n, what);
    }
}


/* What is refused is refused by the cursor, too, or for its characters. */

static void
refused(const kvr_tape_t *t)
{
    kvr_json_t  j;

    kvr_json_init(&j, t->text, t->text_len);

    (void) kvr_json_skip(&j);

    if (kvr_json_end(&j)
        && strcmp(t->error, "ill-formed UTF-8 in a string") != 0
        && strcmp(t->error, "a surrogate without its other half") != 0)
    {
        fuzz_fail("refused: %s at %zu", t->error, t->error_at);
    }
}


/* Byte by byte: what is left to come of a character, and its bounds. */

static bool
utf8(const kvr_json_text_t *text)
{
    size_t          i;
    unsigned        left;
    uint32_t        c, least;
    const uint8_t  *p;

    p = (const uint8_t *) text->data;
    left = 0;
    c = 0;
    least = 0;

    for (i = 0; i < text->len; i++) {

        if (left) {
            if ((p[i] >> 6) != 2) {
                return false;
            }

            c = c << 6 | (p[i] & 0x3f);

            if (--left == 0 && (c < least || c > 0x10ffff
                                || (c >= 0xd800 && c < 0xe000)))
            {
                return false;
            }

        } else if (p[i] >= 0x80) {

            if (p[i] < 0xc0 || p[i] >= 0xf8) {
                return false;
            }

            left = p[i] < 0xe0 ? 1 : p[i] < 0xf0 ? 2 : 3;
            c = p[i] & (0x3f >> left);
            least = left == 1 ? 0x80 : left == 2 ? 0x800 : 0x10000;
        }
    }

    return left == 0;
}


/* The members that are kept are the same, the others are cut or none is. */

static void
little(const kvr_tape_t *t)
{
    bool             cut;
    size_t           n;
    uint32_t         i, k;
    kvr_rc_t         rc;
    kvr_tape_t       u;
    const uint32_t  *found;

    rc = scan(&u, t->text, t->text_len, LITTLE, LITTLE, 0);

    if (rc == KVR_FULL) {
        clear(&u);
        return;
    }

    if (rc != KVR_OK) {
        fuzz_fail("with little room: %s at %zu", u.error, u.error_at);
    }

    cut = false;
    i = kvr_tape_first(t, KVR_TAPE_ROOT);
    k = kvr_tape_first(&u, KVR_TAPE_ROOT);

    while (i && k) {

        if (t->entries[i].at != u.entries[k].at
            || t->entries[i].end != u.entries[k].end
            || t->entries[i].kind != u.entries[k].kind
            || (t->entries[i].len != u.entries[k].len
                && !(u.entries[k].flags & KVR_TAPE_CUT)))
        {
            fuzz_fail("with little room: entry %u is not entry %u", k, i);
        }

        /* ids that were cut are read again over those of the others */

        cut = cut || (u.entries[k].flags & KVR_TAPE_CUT) != 0;

        if ((!cut || (u.entries[k].flags & KVR_TAPE_CUT))
            && kvr_tape_ids(&u, k, &found, &n) != KVR_DECLINED
            && (n != t->entries[i].len
                || memcmp(found, t->ids + t->entries[i].first,
                          kvr_min(n, LITTLE) * sizeof(uint32_t)) != 0))
        {
            fuzz_fail("with little room: the ids of entry %u", k);
        }

        i = kvr_tape_next(t, KVR_TAPE_ROOT, i);
        k = kvr_tape_next(&u, KVR_TAPE_ROOT, k);
    }

    if (i || k) {
        fuzz_fail("with little room: %u and %u are left", i, k);
    }

    clear(&u);
}


/* The plain text of a prompt has no more bytes than the body. */

static void
plain(const kvr_tape_t *t)
{
    char        *out, *room;
    size_t       n;
    kvr_form_t   form;

    out = fuzz_copy((const uint8_t *) t->text, t->text_len);
    room = malloc(2 * t->text_len + 1);

    for (form = KVR_FORM_UNKNOWN; form < KVR_FORMS; form++) {

        n = kvr_plain_text(t, form, out, t->text_len);

        if (n > t->text_len
            || n != kvr_plain_text(t, form, room, 2 * t->text_len + 1)
            || memcmp(out, room, n) != 0)
        {
            fuzz_fail("plain text of form %u: %zu bytes of %zu",
                      (unsigned) form, n, t->text_len);
        }
    }

    free(room);
    free(out);
}
