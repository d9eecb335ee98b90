/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_tape.h"
#include "kvr_json_ways.h"
#include "kvr_utf8.h"


/* A scan: the cursor, and the objects and arrays that it is in. */

typedef struct {
    kvr_tape_t  *tape;
    kvr_json_t   json;
    uint32_t     parents[KVR_JSON_DEPTH];
} kvr_tape_scan_t;


static const char  kvr_tape_full[] = "too many members";


void
kvr_tape_init(kvr_tape_t *t, kvr_tape_entry_t *entries, uint32_t cap,
    uint32_t *ids, size_t ids_cap)
{
    memset(t, 0, sizeof(kvr_tape_t));

    t->way = kvr_json_way(0);
    t->entries = entries;
    t->cap = cap;
    t->ids = ids;
    t->ids_cap = ids_cap;
}


/* ---- the scan ----------------------------------------------------------- */

/*
 * Adds an entry for the value that begins at this offset.  There must be room.
 */

static kvr_tape_entry_t *
kvr_tape_put(kvr_tape_t *t, kvr_tape_kind_t kind, size_t at)
{
    kvr_tape_entry_t  *e;

    e = &t->entries[t->n++];

    e->at = (uint32_t) at;
    e->end = (uint32_t) at;
    e->len = 0;
    e->next = t->n;
    e->first = 0;
    e->kind = (uint16_t) kind;
    e->flags = 0;

    return e;
}


/*
 * Is the cursor in an object, and not in an array?
 */

static bool
kvr_tape_in_object(const kvr_tape_scan_t *s)
{
    return s->json.depth
           && s->tape->entries[s->parents[s->json.depth - 1]].kind
              == KVR_TAPE_OBJECT;
}


/* Ends the value of entry i at the cursor. */

static void
kvr_tape_ended(kvr_tape_scan_t *s, uint32_t i)
{
    kvr_tape_entry_t  *e;

    e = &s->tape->entries[i];

    e->end = (uint32_t) (s->json.pos - s->json.start);
    e->next = s->tape->n;

    if (kvr_tape_in_object(s)) {
        e[-1].next = e->next;
    }
}


/* Keeps a string or a key that the cursor has read. */

static bool
kvr_tape_string(kvr_tape_scan_t *s, kvr_tape_kind_t kind,
    const kvr_json_text_t *text)
{
    size_t             n;
    const char        *lone;
    kvr_tape_entry_t  *e;

    if (text->wide) {
        n = kvr_utf8_valid(text->data, text->len);

        if (n < text->len) {
            return kvr_json_fail(&s->json, text->data + n,
                                 "ill-formed UTF-8 in a string");
        }
    }

    if (text->surrogates) {
        lone = kvr_json_lone(text);

        if (lone) {
            return kvr_json_fail(&s->json, lone,
                                 "a surrogate without its other half");
        }
    }

    e = kvr_tape_put(s->tape, kind, text->data - 1 - s->json.start);

    e->len = (uint32_t) text->len;
    e->end = e->at + e->len + 2;
    e->flags = text->escaped ? KVR_TAPE_ESCAPED : 0;

    return true;
}


static void
kvr_tape_number(kvr_tape_scan_t *s)
{
    size_t             i;
    kvr_json_text_t    text;
    kvr_tape_entry_t  *e;

    if (!kvr_json_number(&s->json, &text)) {
        return;
    }

    e = kvr_tape_put(s->tape, KVR_TAPE_INT, text.data - s->json.start);
    e->len = (uint32_t) text.len;

    for (i = 0; i < text.len; i++) {
        if (text.data[i] == '.' || (text.data[i] | 0x20) == 'e') {
            e->kind = KVR_TAPE_FLOAT;
            break;
        }
    }
}


static void
kvr_tape_literal(kvr_tape_scan_t *s, int c)
{
    bool               value;
    kvr_tape_kind_t    kind;
    kvr_tape_entry_t  *e;

    if (c == 'n') {
        kind = KVR_TAPE_NULL;
        (void) kvr_json_null(&s->json);

    } else {
        kind = (c == 't') ? KVR_TAPE_TRUE : KVR_TAPE_FALSE;
        (void) kvr_json_bool(&s->json, &value);
    }

    if (s->json.error == NULL) {
        e = kvr_tape_put(s->tape, kind, 0);

        e->len = (kind == KVR_TAPE_FALSE) ? 5 : 4;
        e->at = (uint32_t) (s->json.pos - s->json.start) - e->len;
    }
}


/*
 * If the array at the cursor consists of ids, keeps it; if not, the cursor
 * stays: the array is read element by element, once more.
 */

static bool
kvr_tape_ids_array(kvr_tape_scan_t *s)
{
    size_t             n, room, at;
    kvr_json_t         saved;
    kvr_tape_t        *t;
    kvr_tape_entry_t  *e;

    t = s->tape;
    saved = s->json;
    at = saved.pos - saved.start;
    room = t->ids_cap - t->nids;

    if (!kvr_json_ids(&s->json, room ? t->ids + t->nids : NULL, room, &n)
        || n == 0)
    {
        s->json = saved;
        return false;
    }

    e = kvr_tape_put(t, KVR_TAPE_IDS, at);

    e->len = (uint32_t) n;

    if (n > room) {
        e->flags = KVR_TAPE_CUT;

    } else {
        e->first = (uint32_t) t->nids;
        t->nids += n;
    }

    return true;
}


/* Reads one value; of an object or an array only the bracket. */

static void
kvr_tape_value(kvr_tape_scan_t *s)
{
    int              c;
    uint32_t         i;
    kvr_json_text_t  text;

    c = kvr_json_peek(&s->json);
    i = s->tape->n;

    switch (c) {

    case '[':
        if (kvr_tape_ids_array(s)) {
            break;
        }

        /* fall through */

    case '{':
        if (kvr_json_open(&s->json, c)) {
            s->parents[s->json.depth - 1] = i;
            kvr_tape_put(s->tape,
                         (c == '{') ? KVR_TAPE_OBJECT : KVR_TAPE_ARRAY,
                         s->json.pos - 1 - s->json.start);
        }

        return;

    case '"':
        if (kvr_json_string(&s->json, &text)) {
            (void) kvr_tape_string(s, KVR_TAPE_STRING, &text);
        }

        break;

    case 't':
    case 'f':
    case 'n':
        kvr_tape_literal(s, c);
        break;

    default:
        kvr_tape_number(s);
    }

    if (s->json.error == NULL) {
        kvr_tape_ended(s, i);
    }
}


/*
 * Makes room when the array of entries is full: the member of the top value in
 * which the cursor is loses its entries and is skipped.  The cursor must be in
 * front of a value.
 */

static void
kvr_tape_cut(kvr_tape_scan_t *s)
{
    uint32_t           member;
    kvr_tape_entry_t  *e;

    if (s->json.depth < 2) {
        (void) kvr_json_fail(&s->json, s->json.pos, kvr_tape_full);
        return;
    }

    member = s->parents[1];
    e = &s->tape->entries[member];

    s->tape->n = member + 1;
    e->flags = KVR_TAPE_CUT;
    e->len = 0;

    if (kvr_json_skip(&s->json) && kvr_json_leave(&s->json, 1)) {
        kvr_tape_ended(s, member);
    }
}


/*
 * Goes to the next value, over the ends of objects and arrays; false: the
 * value at the top has ended.
 */

static bool
kvr_tape_go_on(kvr_tape_scan_t *s)
{
    uint32_t           parent, full;
    kvr_json_text_t    key;
    kvr_tape_t        *t;

    t = s->tape;

    while (s->json.depth && s->json.error == NULL) {

        parent = s->parents[s->json.depth - 1];

        /* a key and its value are the most that are written at once */

        full = t->cap - t->n < 2;

        if (t->entries[parent].kind == KVR_TAPE_ARRAY) {

            if (kvr_json_next(&s->json)) {

                if (full) {
                    kvr_tape_cut(s);
                    continue;
                }

                t->entries[parent].len++;
                return true;
            }

        } else if (kvr_json_key(&s->json, &key)) {

            if (full) {
                kvr_tape_cut(s);

            } else if (kvr_tape_string(s, KVR_TAPE_KEY, &key)) {
                t->entries[parent].len++;
                return true;
            }

            continue;
        }

        if (s->json.error == NULL) {
            kvr_tape_ended(s, parent);
        }
    }

    return false;
}


kvr_rc_t
kvr_tape_scan(kvr_tape_t *t, const char *text, size_t len)
{
    kvr_tape_scan_t  s;

    t->text = text;
    t->text_len = len;
    t->n = 0;
    t->nids = 0;
    t->error = NULL;
    t->error_at = 0;

    (void) kvr_tape_put(t, KVR_TAPE_NONE, 0);

    if (len > UINT32_MAX - 1) {
        t->error = "the text has over 4 GB";
        return KVR_INVALID;
    }

    s.tape = t;
    kvr_json_init(&s.json, text, len);
    s.json.way = t->way;

    do {
        kvr_tape_value(&s);
    } while (s.json.error == NULL && kvr_tape_go_on(&s));

    if (!kvr_json_end(&s.json)) {
        t->error = s.json.error;
        t->error_at = s.json.error_at;

        return (t->error == kvr_tape_full) ? KVR_FULL : KVR_INVALID;
    }

    return KVR_OK;
}


/* ---- look-ups ----------------------------------------------------------- */

uint32_t
kvr_tape_get(const kvr_tape_t *t, uint32_t object, const char *name)
{
    uint32_t         i, found;
    kvr_json_text_t  key;

    found = 0;

    if (kvr_tape_kind(t, object) != KVR_TAPE_OBJECT) {
        return 0;
    }

    for (i = kvr_tape_first(t, object); i; i = kvr_tape_next(t, object, i)) {
        key = kvr_tape_text(t, i);

        if (kvr_json_is(&key, name)) {
            found = i + 1;
        }
    }

    return found;
}


uint32_t
kvr_tape_first(const kvr_tape_t *t, uint32_t parent)
{
    return kvr_tape_next(t, parent, parent);
}


uint32_t
kvr_tape_next(const kvr_tape_t *t, uint32_t parent, uint32_t i)
{
    uint32_t  next;

    next = (i == parent) ? i + 1 : t->entries[i].next;

    return next < t->entries[parent].next ? next : 0;
}


kvr_json_text_t
kvr_tape_text(const kvr_tape_t *t, uint32_t i)
{
    kvr_json_text_t          text;
    const kvr_tape_entry_t  *e;

    e = &t->entries[i];

    memset(&text, 0, sizeof(kvr_json_text_t));

    /* a quote on either side, or none */

    text.data = t->text + e->at + (e->end - e->at - e->len) / 2;
    text.len = e->len;
    text.escaped = (e->flags & KVR_TAPE_ESCAPED) != 0;

    return text;
}


kvr_json_text_t
kvr_tape_raw(const kvr_tape_t *t, uint32_t i)
{
    kvr_json_text_t          text;
    const kvr_tape_entry_t  *e;

    e = &t->entries[i];

    memset(&text, 0, sizeof(kvr_json_text_t));

    text.data = t->text + e->at;
    text.len = e->end - e->at;

    return text;
}


bool
kvr_tape_is(const kvr_tape_t *t, uint32_t i, const char *with)
{
    kvr_json_text_t  text;

    if (kvr_tape_kind(t, i) != KVR_TAPE_STRING) {
        return false;
    }

    text = kvr_tape_text(t, i);

    return kvr_json_is(&text, with);
}


bool
kvr_tape_u64(const kvr_tape_t *t, uint32_t i, uint64_t *value)
{
    kvr_json_text_t  text;

    if (kvr_tape_kind(t, i) != KVR_TAPE_INT) {
        return false;
    }

    text = kvr_tape_text(t, i);

    return kvr_json_digits(text.data, text.len, value);
}


kvr_rc_t
kvr_tape_ids(kvr_tape_t *t, uint32_t i, const uint32_t **ids, size_t *n)
{
    kvr_json_t               j;
    const kvr_tape_entry_t  *e;

    if (kvr_tape_kind(t, i) != KVR_TAPE_IDS) {
        return KVR_DECLINED;
    }

    e = &t->entries[i];

    *n = e->len;
    *ids = t->ids + e->first;

    if (e->flags & KVR_TAPE_CUT) {
        *ids = t->ids;

        kvr_json_init(&j, t->text + e->at, e->end - e->at);
        (void) kvr_json_ids(&j, t->ids, t->ids_cap, n);
    }

    return *n > t->ids_cap ? KVR_FULL : KVR_OK;
}
