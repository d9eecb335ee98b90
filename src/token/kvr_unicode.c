/*
 * Copyright (C) the nginx-kv-router authors
 */


#define PCRE2_CODE_UNIT_WIDTH  8

#include "kvr_unicode.h"
#include "kvr_unicode_repair.h"
#include "kvr_unicode_table.h"

#include <pcre2.h>
#include <stdio.h>


#define KVR_UNICODE_MAX      0x110000
#define KVR_UNICODE_PAIRS    4096       /* slots for compositions */
#define KVR_UNICODE_FAR      0x30000    /* of a stand-in, at most */
#define KVR_UNICODE_SHORT    32         /* marks that insertion sorts */

#define KVR_UNICODE_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* flags of a character: bits 0 to 3, by form: no text can be cut before it */
#define KVR_UNICODE_REPAIR   0x10       /* for KVR_UNICODE_16 */
#define KVR_UNICODE_ALWAYS   0x20       /* for KVR_UNICODE_14, too */
#define KVR_UNICODE_UPPER    0x40       /* lower case differs */

/* Hangul syllables are composed by arithmetic, see chapter 3.12 of Unicode. */
#define KVR_HANGUL_S         0xac00
#define KVR_HANGUL_L         0x1100
#define KVR_HANGUL_V         0x1161
#define KVR_HANGUL_T         0x11a7
#define KVR_HANGUL_COUNT     11172


typedef struct {
    uint32_t    c;
    uint32_t    class;                  /* canonical combining class */
} kvr_unicode_mark_t;


typedef struct {
    kvr_unicode_mark_t  *marks;
    size_t               n;
    size_t               cap;
    bool                 failed;
} kvr_unicode_marks_t;


static bool kvr_unicode_stand_in(uint32_t at, const char *category, int han,
    uint32_t *found);
static uint32_t kvr_unicode_compose(uint32_t a, uint32_t b);
static void kvr_unicode_decompose(uint32_t c, kvr_unicode_form_t form,
    kvr_unicode_marks_t *m);
static void kvr_unicode_order(kvr_unicode_mark_t *marks, size_t n);
static size_t kvr_unicode_join(kvr_unicode_mark_t *marks, size_t n);
static void kvr_unicode_segment(kvr_unicode_form_t form, const char *text,
    size_t len, kvr_bytes_t *out, kvr_unicode_marks_t *m);


static uint16_t  *kvr_unicode_index;    /* of the decomposition, + 1 */
static uint8_t   *kvr_unicode_flags;
static uint16_t   kvr_unicode_pairs[KVR_UNICODE_PAIRS];
static uint32_t   kvr_unicode_instead[KVR_UNICODE_COUNT(kvr_unicode_repairs)];


static uint32_t
kvr_unicode_slot(uint32_t a, uint32_t b)
{
    return (((uint64_t) a << 21 | b) * UINT64_C(0x9e3779b97f4a7c15) >> 40)
           % KVR_UNICODE_PAIRS;
}


static inline uint8_t
kvr_unicode_repair_flag(kvr_unicode_age_t age)
{
    return age == KVR_UNICODE_14 ? KVR_UNICODE_ALWAYS : KVR_UNICODE_REPAIR;
}


bool
kvr_unicode_init(void)
{
    uint16_t   *index;
    uint8_t    *flags;
    uint32_t    i, c, slot;

    if (kvr_unicode_index) {
        return true;
    }

    index = calloc(KVR_UNICODE_MAX, sizeof(uint16_t));
    flags = calloc(KVR_UNICODE_MAX, 1);

    if (index == NULL || flags == NULL) {
        free(index);
        free(flags);
        return false;
    }

    for (i = 0; i < KVR_UNICODE_COUNT(kvr_unicode_decompositions); i++) {

        c = kvr_unicode_decompositions[i].c;
        index[c] = i + 1;

        if (kvr_unicode_decompositions[i].class) {
            flags[c] |= 0x0f;
        }

        if (kvr_unicode_decompositions[i].no & 1) {
            flags[c] |= 1 << KVR_NFC;
        }

        if (kvr_unicode_decompositions[i].no & 2) {
            flags[c] |= 1 << KVR_NFKC;
        }

        if (kvr_unicode_decompositions[i].canonical_len) {
            flags[c] |= 1 << KVR_NFD | 1 << KVR_NFKD;
        }

        if (kvr_unicode_decompositions[i].compatible_len) {
            flags[c] |= 1 << KVR_NFKD;
        }
    }

    for (c = KVR_HANGUL_S; c < KVR_HANGUL_S + KVR_HANGUL_COUNT; c++) {
        flags[c] |= 1 << KVR_NFD | 1 << KVR_NFKD;
    }

    /* vowels and finals join what is before them */

    for (c = KVR_HANGUL_V; c < KVR_HANGUL_V + 21; c++) {
        flags[c] |= 0x0f;
    }

    for (c = KVR_HANGUL_T + 1; c < KVR_HANGUL_T + 28; c++) {
        flags[c] |= 0x0f;
    }

    for (i = 0; i < KVR_UNICODE_COUNT(kvr_unicode_compositions); i++) {

        slot = kvr_unicode_slot(kvr_unicode_compositions[i].a,
                                kvr_unicode_compositions[i].b);

        while (kvr_unicode_pairs[slot]) {
            slot = (slot + 1) % KVR_UNICODE_PAIRS;
        }

        kvr_unicode_pairs[slot] = i + 1;
        flags[kvr_unicode_compositions[i].b] |= 1 << KVR_NFC | 1 << KVR_NFKC;
    }

    for (i = 0; i < KVR_UNICODE_COUNT(kvr_unicode_lowers); i++) {
        flags[kvr_unicode_lowers[i].c] |= KVR_UNICODE_UPPER;
    }

    /* a newer PCRE2 may know a character: its stand-in is as good */

    for (i = 0; i < KVR_UNICODE_COUNT(kvr_unicode_repairs); i++) {

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
    kvr_unicode_index = index;

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
    len = kvr_unicode_put(at, text);
    *found = 0;

    for (d = 1; md && d < KVR_UNICODE_FAR && *found == 0; d++) {
        for (k = 0; k < 2 && *found == 0; k++) {
            c = k ? at - d : at + d;

            if (c >= KVR_UNICODE_MAX || (c >= 0xd800 && c < 0xe000)) {
                continue;
            }

            n = kvr_unicode_put(c, text);

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


uint32_t
kvr_unicode_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }

    if (c < 0x800) {
        out[0] = (char) (0xc0 | c >> 6);
        out[1] = (char) (0x80 | (c & 0x3f));
        return 2;
    }

    if (c < 0x10000) {
        out[0] = (char) (0xe0 | c >> 12);
        out[1] = (char) (0x80 | (c >> 6 & 0x3f));
        out[2] = (char) (0x80 | (c & 0x3f));
        return 3;
    }

    out[0] = (char) (0xf0 | c >> 18);
    out[1] = (char) (0x80 | (c >> 12 & 0x3f));
    out[2] = (char) (0x80 | (c >> 6 & 0x3f));
    out[3] = (char) (0x80 | (c & 0x3f));

    return 4;
}


bool
kvr_unicode_white(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0
           || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028
           || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}


/* The offset behind the ASCII characters that begin at `at`. */

static size_t
kvr_unicode_ascii(const char *text, size_t at, size_t len)
{
    uint64_t  word;

    while (at + 8 <= len) {
        memcpy(&word, text + at, 8);

        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }

        at += 8;
    }

    while (at < len && (uint8_t) text[at] < 0x80) {
        at++;
    }

    return at;
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
    high = KVR_UNICODE_COUNT(kvr_unicode_repairs);

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
        (void) kvr_unicode_put(kvr_unicode_repaired(age, c), text + from);
        from += n;
    }
}


bool
kvr_unicode_respects(kvr_unicode_age_t age, uint32_t a, uint32_t b)
{
    bool      in;
    uint32_t  i, first, last;

    for (i = 0; i < KVR_UNICODE_COUNT(kvr_unicode_repairs); i++) {

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


static uint32_t
kvr_unicode_compose(uint32_t a, uint32_t b)
{
    uint32_t  slot, i;

    if (a - KVR_HANGUL_L < 19 && b - KVR_HANGUL_V < 21) {
        return KVR_HANGUL_S
               + ((a - KVR_HANGUL_L) * 21 + b - KVR_HANGUL_V) * 28;
    }

    if (a - KVR_HANGUL_S < KVR_HANGUL_COUNT && (a - KVR_HANGUL_S) % 28 == 0
        && b - KVR_HANGUL_T - 1 < 27)
    {
        return a + b - KVR_HANGUL_T;
    }

    slot = kvr_unicode_slot(a, b);

    while (kvr_unicode_pairs[slot]) {
        i = kvr_unicode_pairs[slot] - 1;

        if (kvr_unicode_compositions[i].a == a
            && kvr_unicode_compositions[i].b == b)
        {
            return kvr_unicode_compositions[i].c;
        }

        slot = (slot + 1) % KVR_UNICODE_PAIRS;
    }

    return 0;
}


static void
kvr_unicode_decompose(uint32_t c, kvr_unicode_form_t form,
    kvr_unicode_marks_t *m)
{
    size_t               cap;
    uint32_t             i, s, n, hangul[3];
    const uint32_t      *to;
    kvr_unicode_mark_t  *marks;

    to = &c;
    n = 1;
    s = c - KVR_HANGUL_S;

    if (s < KVR_HANGUL_COUNT) {
        hangul[0] = KVR_HANGUL_L + s / 588;
        hangul[1] = KVR_HANGUL_V + s % 588 / 28;
        hangul[2] = KVR_HANGUL_T + s % 28;

        to = hangul;
        n = s % 28 ? 3 : 2;

    } else if (kvr_unicode_index[c]) {
        i = kvr_unicode_index[c] - 1;

        if (form >= KVR_NFKC && kvr_unicode_decompositions[i].compatible_len) {
            to = kvr_unicode_pool + kvr_unicode_decompositions[i].compatible;
            n = kvr_unicode_decompositions[i].compatible_len;

        } else if (kvr_unicode_decompositions[i].canonical_len) {
            to = kvr_unicode_pool + kvr_unicode_decompositions[i].canonical;
            n = kvr_unicode_decompositions[i].canonical_len;
        }
    }

    if (m->n + n > m->cap) {
        cap = 2 * m->cap + 64;

        marks = realloc(m->marks, cap * sizeof(kvr_unicode_mark_t));
        if (marks == NULL) {
            m->failed = true;
            return;
        }

        m->marks = marks;
        m->cap = cap;
    }

    for (i = 0; i < n; i++) {
        s = kvr_unicode_index[to[i]];
        m->marks[m->n].c = to[i];
        m->marks[m->n].class = s ? kvr_unicode_decompositions[s - 1].class : 0;
        m->n++;
    }
}


/*
 * Canonical order: each run of marks is sorted by class, stably.  A flood of
 * marks is sorted by counting, in place of the square of its length.
 */

static void
kvr_unicode_order(kvr_unicode_mark_t *marks, size_t n)
{
    size_t               i, j, k, at, count[257];
    kvr_unicode_mark_t   mark, *sorted;

    for (i = 0; i < n; i = j) {

        for (j = i; j < n && marks[j].class; j++) { /* void */ }

        if (j == i) {
            j++;
            continue;
        }

        sorted = j - i > KVR_UNICODE_SHORT
                 ? malloc((j - i) * sizeof(kvr_unicode_mark_t)) : NULL;

        if (sorted == NULL) {

            for (k = i + 1; k < j; k++) {
                mark = marks[k];

                for (at = k; at > i && marks[at - 1].class > mark.class; at--)
                {
                    marks[at] = marks[at - 1];
                }

                marks[at] = mark;
            }

            continue;
        }

        memset(count, 0, sizeof(count));

        for (k = i; k < j; k++) {
            count[marks[k].class + 1]++;
        }

        for (k = 1; k < 257; k++) {
            count[k] += count[k - 1];
        }

        for (k = i; k < j; k++) {
            sorted[count[marks[k].class]++] = marks[k];
        }

        memcpy(&marks[i], sorted, (j - i) * sizeof(kvr_unicode_mark_t));
        free(sorted);
    }
}


/* Composes what can be composed; returns how many are left. */

static size_t
kvr_unicode_join(kvr_unicode_mark_t *marks, size_t n)
{
    int       last;                     /* class between starter and mark */
    size_t    i, to, starter;
    uint32_t  c;

    starter = n;
    last = -1;

    for (i = 0, to = 0; i < n; i++) {

        if (starter < n && last < (int) marks[i].class) {
            c = kvr_unicode_compose(marks[starter].c, marks[i].c);

            if (c) {
                marks[starter].c = c;
                continue;
            }
        }

        if (marks[i].class == 0) {
            starter = to;
            last = -1;

        } else {
            last = (int) marks[i].class;
        }

        marks[to++] = marks[i];
    }

    return to;
}


static void
kvr_unicode_segment(kvr_unicode_form_t form, const char *text, size_t len,
    kvr_bytes_t *out, kvr_unicode_marks_t *m)
{
    size_t    i;
    uint32_t  n;

    m->n = 0;

    for (i = 0; i < len; i += n) {
        kvr_unicode_decompose(kvr_unicode_get(text + i, &n), form, m);
    }

    kvr_unicode_order(m->marks, m->n);

    if (form == KVR_NFC || form == KVR_NFKC) {
        m->n = kvr_unicode_join(m->marks, m->n);
    }

    for (i = 0; i < m->n; i++) {
        if (kvr_bytes_room(out, 4)) {
            out->n += kvr_unicode_put(m->marks[i].c, out->data + out->n);
        }
    }
}


/*
 * A segment begins at the last character before which a text can be cut, and
 * ends before the next one.
 */

void
kvr_unicode_normalize(kvr_unicode_form_t form, const char *text, size_t len,
    kvr_bytes_t *out)
{
    size_t               i, end, done, start;
    uint32_t             n;
    kvr_unicode_marks_t  m;

    memset(&m, 0, sizeof(kvr_unicode_marks_t));

    done = 0;
    start = 0;

    for (i = 0; i < len; /* void */ ) {

        if (kvr_unicode_starts(form, kvr_unicode_get(text + i, &n))) {
            start = i;
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
    free(m.marks);
}


void
kvr_unicode_lower(const char *text, size_t len, kvr_bytes_t *out)
{
    size_t    i;
    uint32_t  c, k, n, low, high, middle;

    for (i = 0; i < len; i += n) {

        c = kvr_unicode_get(text + i, &n);

        if (!(kvr_unicode_flags[c] & KVR_UNICODE_UPPER)) {
            kvr_bytes_add(out, text + i, n);
            continue;
        }

        low = 0;
        high = KVR_UNICODE_COUNT(kvr_unicode_lowers);

        while (low + 1 < high) {
            middle = (low + high) / 2;

            if (kvr_unicode_lowers[middle].c <= c) {
                low = middle;

            } else {
                high = middle;
            }
        }

        for (k = 0; k < kvr_unicode_lowers[low].len; k++) {
            if (kvr_bytes_room(out, 4)) {
                out->n += kvr_unicode_put(
                              kvr_unicode_pool[kvr_unicode_lowers[low].at + k],
                              out->data + out->n);
            }
        }
    }
}
