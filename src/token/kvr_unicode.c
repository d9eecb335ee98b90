/*
 * Copyright (C) the nginx-kv-router authors
 */


#define PCRE2_CODE_UNIT_WIDTH  8

#include "kvr_unicode.h"
#include "kvr_unicode_repair.h"
#include "../wire/kvr_utf8.h"

#include <pcre2.h>
#include <stdio.h>
#include <utf8proc.h>


#define KVR_UNICODE_MAX      0x110000
#define KVR_UNICODE_FAR      0x30000    /* of a stand-in, at most */
#define KVR_UNICODE_PLAIN    0x30000    /* from here on no character has a
                                           normal form, or a lower case */
#define KVR_UNICODE_PARTS    18         /* of one character, at most */
#define KVR_UNICODE_KNOWN    17         /* newest version that the lists of
                                           newer characters are made for */

/* flags of a character: bits 0 to 3, by form: no text can be cut before it */
#define KVR_UNICODE_REPAIR   0x10       /* for KVR_UNICODE_16 */
#define KVR_UNICODE_ALWAYS   0x20       /* for KVR_UNICODE_14, too */
#define KVR_UNICODE_UPPER    0x40       /* lower case differs */
#define KVR_UNICODE_NEWER    0x80       /* no normal form touches it */

/* of a key that marks are sorted by: class, place, character */
#define KVR_UNICODE_CLASS    56
#define KVR_UNICODE_PLACE    21
#define KVR_UNICODE_CHAR     0x1fffff


/* One segment: keys while it is sorted, then characters. */
typedef struct {
    uint64_t  *keys;
    int32_t   *chars;
    size_t     n;
    size_t     cap;
    bool       failed;
} kvr_unicode_marks_t;


/*
 * Characters that are newer than Unicode 9, in ranges that no older one is in:
 * those with a decomposition, a combining class, or a composition.
 */

static const struct {
    uint32_t  first;
    uint32_t  last;
} kvr_unicode_newer[] = {
    {0x558,0x558}, {0x58b,0x58c}, {0x5c8,0x5c9}, {0x7fd,0x7fd}, {0x897,0x89f},
    {0x8ca,0x8d3}, {0x9fe,0x9fe}, {0xc3c,0xc3c}, {0xd3b,0xd3c}, {0xeba,0xeba},
    {0x1715,0x1715}, {0x1abf,0x1af0}, {0x1df6,0x1dfa}, {0x209d,0x209f},
    {0x32ff,0x32ff}, {0xa7f1,0xa7f4}, {0xa82c,0xa82c}, {0xab69,0xab69},
    {0x105c9,0x105e4}, {0x10781,0x107bf}, {0x10d24,0x10d6d},
    {0x10eab,0x10f85}, {0x11070,0x11070}, {0x1133b,0x1133b},
    {0x11383,0x113d0}, {0x1145e,0x1145e}, {0x11839,0x1183a},
    {0x11930,0x11a99}, {0x11d42,0x11f42}, {0x1611e,0x1612f},
    {0x16d67,0x16d6a}, {0x16ff0,0x16ff1}, {0x1b123,0x1b126},
    {0x1ccd6,0x1ccf9}, {0x1d127,0x1d128}, {0x1d250,0x1d281},
    {0x1d6a6,0x1d6a6}, {0x1df95,0x1dfff}, {0x1e030,0x1e6f5},
    {0x1f16c,0x1f16c}, {0x1fbf0,0x1fbf9},
};


/* Lower case that the library does not have: later than Unicode 15. */

static const struct {
    uint32_t  first;
    uint32_t  last;
    uint32_t  to;               /* of the first */
} kvr_unicode_lowers[] = {
    {0x1c89,0x1c89,0x1c8a}, {0xa7cb,0xa7cb,0x264}, {0xa7cc,0xa7cc,0xa7cd},
    {0xa7ce,0xa7ce,0xa7cf}, {0xa7d2,0xa7d2,0xa7d3}, {0xa7d4,0xa7d4,0xa7d5},
    {0xa7da,0xa7da,0xa7db}, {0xa7dc,0xa7dc,0x19b},
    {0x10d50,0x10d65,0x10d70}, {0x16ea0,0x16eb8,0x16ebb},
};


static bool kvr_unicode_stand_in(uint32_t at, const char *category, int han,
    uint32_t *found);
static uint32_t kvr_unicode_small(uint32_t c);


static uint8_t   *kvr_unicode_flags;
static uint32_t   kvr_unicode_instead[kvr_nelts(kvr_unicode_repairs)];


static inline uint8_t
kvr_unicode_repair_flag(kvr_unicode_age_t age)
{
    return age == KVR_UNICODE_14 ? KVR_UNICODE_ALWAYS : KVR_UNICODE_REPAIR;
}


/* The parts of a character; composed again in the forms that compose. */

static utf8proc_ssize_t
kvr_unicode_parts(kvr_unicode_form_t form, uint32_t c, int32_t *parts)
{
    int               bound;
    utf8proc_ssize_t  n;

    bound = 0;
    n = utf8proc_decompose_char(c, parts, KVR_UNICODE_PARTS,
                                form >= KVR_NFKC
                                ? UTF8PROC_DECOMPOSE|UTF8PROC_COMPAT
                                : UTF8PROC_DECOMPOSE, &bound);

    return kvr_min(n, KVR_UNICODE_PARTS);
}


static utf8proc_ssize_t
kvr_unicode_join(kvr_unicode_form_t form, int32_t *chars, utf8proc_ssize_t n)
{
    return form == KVR_NFC || form == KVR_NFKC
           ? utf8proc_normalize_utf32(chars, n,
                                      UTF8PROC_COMPOSE|UTF8PROC_STABLE)
           : n;
}


/* The flags of a character, and of the last part that composes to it. */

static void
kvr_unicode_flag(uint8_t *flags, uint32_t c)
{
    int32_t             parts[KVR_UNICODE_PARTS], last;
    uint32_t            form;
    utf8proc_ssize_t    n;

    if (flags[c] & KVR_UNICODE_NEWER) {
        return;
    }

    if (utf8proc_get_property(c)->combining_class) {
        flags[c] |= 0x0f;
    }

    for (form = 0; form < 4; form++) {
        n = kvr_unicode_parts(form, c, parts);
        last = parts[n - 1];

        if (kvr_unicode_join(form, parts, n) > 1 || parts[0] != (int32_t) c) {
            flags[c] |= 1 << form;

        } else if (n > 1) {
            flags[last] |= 1 << KVR_NFC | 1 << KVR_NFKC;
        }
    }
}


bool
kvr_unicode_init(void)
{
    uint8_t    *flags;
    uint32_t    i, c;

    if (kvr_unicode_flags) {
        return true;
    }

    if (atoi(utf8proc_unicode_version()) > KVR_UNICODE_KNOWN) {
        return false;
    }

    flags = calloc(KVR_UNICODE_MAX, 1);
    if (flags == NULL) {
        return false;
    }

    for (i = 0; i < kvr_nelts(kvr_unicode_newer); i++) {
        memset(flags + kvr_unicode_newer[i].first, KVR_UNICODE_NEWER,
               kvr_unicode_newer[i].last - kvr_unicode_newer[i].first + 1);
    }

    for (c = 0; c < KVR_UNICODE_PLAIN; c++) {

        if (utf8proc_get_property(c)->decomp_seqindex != UINT16_MAX
            || utf8proc_get_property(c)->combining_class
            || (c >= 0xac00 && c < 0xd7a4))
        {
            kvr_unicode_flag(flags, c);
        }

        if (kvr_unicode_small(c) != c) {
            flags[c] |= KVR_UNICODE_UPPER;
        }
    }

    /* a newer PCRE2 may know a character: its stand-in is as good */

    for (i = 0; i < kvr_nelts(kvr_unicode_repairs); i++) {

        if (!kvr_unicode_stand_in(kvr_unicode_repairs[i].first,
                                  kvr_unicode_repairs[i].category,
                                  kvr_unicode_repairs[i].han,
                                  &kvr_unicode_instead[i]))
        {
            continue;
        }

        for (c = kvr_unicode_repairs[i].first;
             c <= kvr_unicode_repairs[i].last;
             c++)
        {
            flags[c] |= KVR_UNICODE_REPAIR
                        | (kvr_unicode_repairs[i].always ? KVR_UNICODE_ALWAYS
                                                         : 0);
        }
    }

    kvr_unicode_flags = flags;

    return true;
}


/*
 * The nearest character that this PCRE2 knows with a category.  A stand-in is
 * white space only where its category is that of separators.
 */

static bool
kvr_unicode_stand_in(uint32_t at, const char *category, int han,
    uint32_t *found)
{
    int                ec;
    char               pattern[64], text[4];
    uint32_t           c, d, k, len, n;
    pcre2_code        *re;
    PCRE2_SIZE         eo;
    pcre2_match_data  *md;

    (void) snprintf(pattern, sizeof(pattern),
                    "(?%c\\p{sc:Han})\\p{%s}(?<%c\\s)", han ? '=' : '!',
                    category, category[0] == 'Z' ? '=' : '!');

    re = pcre2_compile((PCRE2_SPTR) pattern, PCRE2_ZERO_TERMINATED,
                       PCRE2_UTF|PCRE2_UCP|PCRE2_ANCHORED, &ec, &eo, NULL);
    if (re == NULL) {
        return false;
    }

    md = pcre2_match_data_create(1, NULL);
    len = kvr_utf8_put(at, text);
    *found = 0;

    for (d = 1; md && d < KVR_UNICODE_FAR && *found == 0; d++) {
        for (k = 0; k < 2 && *found == 0; k++) {
            c = k ? at - d : at + d;

            if (c >= KVR_UNICODE_MAX || (c >= 0xd800 && c < 0xe000)) {
                continue;
            }

            n = kvr_utf8_put(c, text);

            if (n == len
                && pcre2_match(re, (PCRE2_SPTR) text, n, 0, 0, md, NULL) > 0)
            {
                *found = c;
            }
        }
    }

    pcre2_match_data_free(md);
    pcre2_code_free(re);

    return *found != 0;
}


bool
kvr_unicode_white(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0
           || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028
           || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}


/* ---- repair ------------------------------------------------------------- */

uint32_t
kvr_unicode_repaired(kvr_unicode_age_t age, uint32_t c)
{
    uint32_t  low, high, i;

    if (!(kvr_unicode_flags[c] & kvr_unicode_repair_flag(age))) {
        return c;
    }

    low = 0;
    high = kvr_nelts(kvr_unicode_repairs);

    while (low + 1 < high) {
        i = (low + high) / 2;

        if (kvr_unicode_repairs[i].first <= c) {
            low = i;

        } else {
            high = i;
        }
    }

    return kvr_unicode_instead[low];
}


/* Below U+0800, three bytes long, no character differs. */

size_t
kvr_unicode_broken(kvr_unicode_age_t age, const char *text, size_t from,
    size_t len)
{
    uint8_t   flag;
    uint32_t  n;

    flag = kvr_unicode_repair_flag(age);

    while (from < len) {

        if ((uint8_t) text[from] < 0x80) {
            from = kvr_unicode_ascii(text, from, len);
            continue;
        }

        if (kvr_unicode_flags[kvr_unicode_get(text + from, &n)] & flag) {
            return from;
        }

        from += n;
    }

    return len;
}


void
kvr_unicode_repair(kvr_unicode_age_t age, char *text, size_t from, size_t len)
{
    uint32_t  c, n;

    for ( ;; ) {
        from = kvr_unicode_broken(age, text, from, len);

        if (from >= len) {
            return;
        }

        c = kvr_unicode_get(text + from, &n);
        (void) kvr_utf8_put(kvr_unicode_repaired(age, c), text + from);
        from += n;
    }
}


bool
kvr_unicode_respects(kvr_unicode_age_t age, uint32_t a, uint32_t b)
{
    bool      in;
    uint32_t  i, first, last;

    for (i = 0; i < kvr_nelts(kvr_unicode_repairs); i++) {

        first = kvr_unicode_repairs[i].first;
        last = kvr_unicode_repairs[i].last;

        if (!(kvr_unicode_flags[first] & kvr_unicode_repair_flag(age))) {
            continue;
        }

        in = kvr_unicode_instead[i] >= a && kvr_unicode_instead[i] <= b;

        if ((first >= a && first <= b) != in || (last >= a && last <= b) != in)
        {
            return false;
        }
    }

    return true;
}


/* ---- normal forms ------------------------------------------------------- */

bool
kvr_unicode_starts(kvr_unicode_form_t form, uint32_t c)
{
    return !(kvr_unicode_flags[c] & 1 << form);
}


bool
kvr_unicode_quick(kvr_unicode_form_t form, const char *text, size_t len)
{
    size_t    i;
    uint32_t  n;

    for (i = 0; i < len; i += n) {
        i = kvr_unicode_ascii(text, i, len);

        if (i == len) {
            return true;
        }

        if (!kvr_unicode_starts(form, kvr_unicode_get(text + i, &n))) {
            return false;
        }
    }

    return true;
}


static bool
kvr_unicode_room(kvr_unicode_marks_t *m)
{
    size_t     cap;
    int32_t   *chars;
    uint64_t  *keys;

    if (m->n + KVR_UNICODE_PARTS <= m->cap) {
        return true;
    }

    cap = 2 * m->cap + 64;

    keys = realloc(m->keys, cap * sizeof(uint64_t));
    if (keys) {
        m->keys = keys;
    }

    chars = realloc(m->chars, cap * sizeof(int32_t));
    if (chars) {
        m->chars = chars;
    }

    if (keys == NULL || chars == NULL) {
        m->failed = true;
        return false;
    }

    m->cap = cap;

    return true;
}


static int
kvr_unicode_before_mark(const void *a, const void *b)
{
    uint64_t  x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return (x > y) - (x < y);
}


/*
 * Each run of marks is sorted by class, then by place.  The library would take
 * the square of the run's length.
 */

static void
kvr_unicode_segment(kvr_unicode_form_t form, const char *text, size_t len,
    kvr_bytes_t *out, kvr_unicode_marks_t *m)
{
    size_t    i, run;
    int32_t   parts[KVR_UNICODE_PARTS];
    uint32_t  n, k, count;
    uint64_t  class;

    m->n = 0;
    run = 0;

    for (i = 0; i < len && kvr_unicode_room(m); i += n) {
        count = kvr_unicode_parts(form, kvr_unicode_get(text + i, &n), parts);

        for (k = 0; k < count; k++) {
            class = utf8proc_get_property(parts[k])->combining_class;

            if (class == 0) {
                if (m->n > run + 1) {
                    qsort(m->keys + run, m->n - run, sizeof(uint64_t),
                          kvr_unicode_before_mark);
                }

                run = m->n + 1;
            }

            m->keys[m->n] = class << KVR_UNICODE_CLASS
                            | (uint64_t) m->n << KVR_UNICODE_PLACE | parts[k];
            m->n++;
        }
    }

    if (m->n > run + 1) {
        qsort(m->keys + run, m->n - run, sizeof(uint64_t),
              kvr_unicode_before_mark);
    }

    for (i = 0; i < m->n; i++) {
        m->chars[i] = m->keys[i] & KVR_UNICODE_CHAR;
    }

    m->n = kvr_unicode_join(form, m->chars, m->n);

    for (i = 0; i < m->n; i++) {
        if (kvr_bytes_room(out, 4)) {
            out->n += kvr_utf8_put(m->chars[i], out->data + out->n);
        }
    }
}


/*
 * A segment begins at the last character before which a text can be cut, and
 * ends before the next one.  A newer character is in none.
 */

void
kvr_unicode_normalize(kvr_unicode_form_t form, const char *text, size_t len,
    kvr_bytes_t *out)
{
    size_t               i, end, done, start;
    uint32_t             c, n;
    kvr_unicode_marks_t  m;

    memset(&m, 0, sizeof(kvr_unicode_marks_t));

    done = 0;
    start = 0;

    for (i = 0; i < len; /* void */ ) {

        c = kvr_unicode_get(text + i, &n);

        if (kvr_unicode_starts(form, c)) {
            start = kvr_unicode_flags[c] & KVR_UNICODE_NEWER ? i + n : i;
            i += n;
            continue;
        }

        kvr_bytes_add(out, text + done, start - done);

        for (end = i + n; end < len; end += n) {
            if (kvr_unicode_starts(form, kvr_unicode_get(text + end, &n))) {
                break;
            }
        }

        kvr_unicode_segment(form, text + start, end - start, out, &m);

        done = end;
        start = end;
        i = end;
    }

    kvr_bytes_add(out, text + done, len - done);

    out->failed = out->failed || m.failed;
    free(m.keys);
    free(m.chars);
}


/* U+0130 has two characters in lower case: the first of them. */

static uint32_t
kvr_unicode_small(uint32_t c)
{
    uint32_t  i;

    for (i = 0; i < kvr_nelts(kvr_unicode_lowers); i++) {
        if (c >= kvr_unicode_lowers[i].first
            && c <= kvr_unicode_lowers[i].last)
        {
            return kvr_unicode_lowers[i].to + c - kvr_unicode_lowers[i].first;
        }
    }

    return utf8proc_tolower(c);
}


void
kvr_unicode_lower(const char *text, size_t len, kvr_bytes_t *out)
{
    size_t    i;
    uint32_t  c, n;

    for (i = 0; i < len; i += n) {

        c = kvr_unicode_get(text + i, &n);

        if (!(kvr_unicode_flags[c] & KVR_UNICODE_UPPER)) {
            kvr_bytes_add(out, text + i, n);
            continue;
        }

        if (kvr_bytes_room(out, 4)) {
            out->n += kvr_utf8_put(kvr_unicode_small(c),
                                   out->data + out->n);
        }

        if (c == 0x130) {
            kvr_bytes_add(out, "\xcc\x87", 2);
        }
    }
}
