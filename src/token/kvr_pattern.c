/*
 * Copyright (C) the nginx-kv-router authors
 */


#define PCRE2_CODE_UNIT_WIDTH  8

#include "kvr_ascii.h"
#include "kvr_pattern.h"
#include "../wire/kvr_utf8.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>


#define KVR_PATTERN_DEPTH    64         /* groups within groups */
#define KVR_PATTERN_LIMIT    20000000   /* steps of one match */
#define KVR_PATTERN_STACK    (32 << 10)
#define KVR_PATTERN_STACKS   (1 << 20)

/* general categories, each with a space on both sides */
#define KVR_PATTERN_CATEGORIES                                                \
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po "         \
    "S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co "

/* Unicode's definition of a word's characters (UTS 18, annex C) */
#define KVR_PATTERN_WORD                                                      \
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]"


struct kvr_pattern_s {
    pcre2_code           *code;
    uint32_t              digits;       /* of kvr_ascii_match(); 0: PCRE2 does
                                           all matches */
};


struct kvr_matcher_s {
    pcre2_match_data     *data;
    pcre2_match_context  *context;
    pcre2_jit_stack      *stack;
    pcre2_code           *word;
};


/* The gate: what is left of the pattern, and what passed. */
typedef struct {
    const char         *p;
    const char         *end;
    kvr_bytes_t         out;
    kvr_unicode_age_t   age;
    char               *why;
} kvr_gate_t;


static bool kvr_gate_group(kvr_gate_t *g, bool *folds);
static bool kvr_gate_times(kvr_gate_t *g);
static bool kvr_gate_escape(kvr_gate_t *g);
static bool kvr_gate_property(kvr_gate_t *g);
static bool kvr_gate_class(kvr_gate_t *g);
static bool kvr_gate_members(kvr_gate_t *g, kvr_bytes_t *without);
static bool kvr_gate_without(kvr_gate_t *g, kvr_bytes_t *without);
static pcre2_code *kvr_pattern_code(const char *text, size_t len,
    char why[KVR_PATTERN_WHY]);


static bool
kvr_gate_refuse(kvr_gate_t *g, const char *what)
{
    (void) snprintf(g->why, KVR_PATTERN_WHY,
                    "regular expression: %s at \"%.*s\"", what,
                    (int) kvr_min(g->end - g->p, 12), g->p);

    return false;
}


static void
kvr_gate_pass(kvr_gate_t *g, size_t n)
{
    kvr_bytes_add(&g->out, g->p, n);
    g->p += n;
}


static bool
kvr_gate_all(kvr_gate_t *g)
{
    bool      fold, folds[KVR_PATTERN_DEPTH];
    uint32_t  depth;

    depth = 0;
    fold = false;

    while (g->p < g->end) {

        switch (*g->p) {

        case '\\':
            if (!kvr_gate_escape(g)) {
                return false;
            }
            continue;

        case '[':
            if (!kvr_gate_class(g)) {
                return false;
            }
            continue;

        case '{':
            if (!kvr_gate_times(g)) {
                return false;
            }
            continue;

        case '^':
        case '$':
            return kvr_gate_refuse(g, "an anchor of lines");

        case '(':
            if (depth == KVR_PATTERN_DEPTH) {
                return kvr_gate_refuse(g, "too many groups in groups");
            }

            folds[depth++] = fold;

            if (!kvr_gate_group(g, &fold)) {
                return false;
            }
            continue;

        case ')':
            if (depth == 0) {
                return kvr_gate_refuse(g, "a parenthesis too many");
            }

            fold = folds[--depth];
            break;
        }

        /* "ss" would match one character, too: there are several such pairs */

        if (fold && g->end - g->p > 1 && strchr("fsFS", *g->p)
            && strchr("sStTfFiIlL", g->p[1]))
        {
            return kvr_gate_refuse(g, "letters that fold to one character");
        }

        if (fold && (uint8_t) *g->p >= 0x80) {
            return kvr_gate_refuse(g, "case folding beyond ASCII");
        }

        kvr_gate_pass(g, 1);
    }

    return depth == 0 || kvr_gate_refuse(g, "a group without an end");
}


static bool
kvr_gate_group(kvr_gate_t *g, bool *folds)
{
    size_t    len;
    uint32_t  i;

    static const char *const  known[] = { "(?:", "(?=", "(?!", "(?<=", "(?<!",
                                          "(?>", "(?i:" };

    if (g->end - g->p < 2 || g->p[1] != '?') {
        kvr_gate_pass(g, 1);
        return true;
    }

    for (i = 0; i < kvr_nelts(known); i++) {
        len = strlen(known[i]);

        if ((size_t) (g->end - g->p) >= len
            && memcmp(g->p, known[i], len) == 0)
        {
            *folds = *folds || i == 6;
            kvr_gate_pass(g, len);
            return true;
        }
    }

    return kvr_gate_refuse(g, "a group of an unknown kind");
}


/* {n}, {n,} and {n,m}, not followed by + or ? */

static bool
kvr_gate_times(kvr_gate_t *g)
{
    const char  *p;

    p = g->p + 1;

    while (p < g->end && (isdigit((unsigned char) *p) || *p == ',')) {
        p++;
    }

    if (p == g->end || *p != '}' || !isdigit((unsigned char) g->p[1])) {
        return kvr_gate_refuse(g, "a brace that is no repetition");
    }

    if (p + 1 < g->end && (p[1] == '+' || p[1] == '?')) {
        return kvr_gate_refuse(g, "a repetition of a repetition");
    }

    kvr_gate_pass(g, p + 1 - g->p);

    return true;
}


static bool
kvr_gate_escape(kvr_gate_t *g)
{
    char         text[16];
    int          n;
    uint32_t     i;
    const char  *p, *end;

    p = g->p + 1;

    if (p == g->end) {
        return kvr_gate_refuse(g, "a backslash without a character");
    }

    if (*p && (strchr("rntsSdD ", *p)
               || ((uint8_t) *p < 0x80 && ispunct((unsigned char) *p))))
    {
        kvr_gate_pass(g, 2);
        return true;
    }

    if (*p == 'p' || *p == 'P') {
        return kvr_gate_property(g);
    }

    if (*p == 'u' && g->end - p >= 5) {

        for (i = 1; i < 5; i++) {
            if (!isxdigit((unsigned char) p[i])) {
                return kvr_gate_refuse(g, "an escape without four digits");
            }
        }

        n = snprintf(text, sizeof(text), "\\x{%.4s}", p + 1);
        kvr_bytes_add(&g->out, text, n);
        g->p += 6;

        return true;
    }

    if (*p == 'x' && g->end - p >= 3) {
        end = p[1] == '{' ? memchr(p, '}', g->end - p) : p + 2;

        if (end) {
            kvr_gate_pass(g, end + 1 - g->p);
            return true;
        }
    }

    return kvr_gate_refuse(g, "an escape that means other things in PCRE2");
}


/* Plain \p{Han} is the script's extensions in PCRE2 10.40 and newer. */

static bool
kvr_gate_property(kvr_gate_t *g)
{
    char         name[16];
    const char  *end;

    end = memchr(g->p, '}', g->end - g->p);

    if (g->end - g->p < 4 || g->p[2] != '{' || end == NULL || end - g->p > 12)
    {
        return kvr_gate_refuse(g, "a property that is not known");
    }

    (void) snprintf(name, sizeof(name), " %.*s ", (int) (end - g->p - 3),
                    g->p + 3);

    if (strcmp(name, " Han ") == 0) {
        kvr_bytes_add(&g->out, g->p, 2);
        kvr_bytes_add(&g->out, "{sc:Han}", 8);
        g->p = end + 1;
        return true;
    }

    if (strstr(KVR_PATTERN_CATEGORIES, name) == NULL) {
        return kvr_gate_refuse(g, "a property that is not known");
    }

    kvr_gate_pass(g, end + 1 - g->p);

    return true;
}


/* [A&&[^B]] becomes (?:(?=[^B])[A]). */

static bool
kvr_gate_class(kvr_gate_t *g)
{
    bool         good;
    kvr_bytes_t  out, without;

    memset(&without, 0, sizeof(kvr_bytes_t));

    out = g->out;
    memset(&g->out, 0, sizeof(kvr_bytes_t));

    good = kvr_gate_members(g, &without);

    if (good && without.n) {
        kvr_bytes_add(&out, "(?:(?=", 6);
        kvr_bytes_add(&out, without.data, without.n);
        kvr_bytes_add(&out, ")", 1);
    }

    if (good) {
        kvr_bytes_add(&out, g->out.data, g->out.n);
    }

    if (good && without.n) {
        kvr_bytes_add(&out, ")", 1);
    }

    out.failed = out.failed || g->out.failed || without.failed;

    kvr_bytes_free(&without);
    kvr_bytes_free(&g->out);
    g->out = out;

    return good;
}


static bool
kvr_gate_members(kvr_gate_t *g, kvr_bytes_t *without)
{
    bool      negated, range;
    uint32_t  c, n, last;

    last = 0;
    range = false;
    negated = g->end - g->p > 1 && g->p[1] == '^';

    kvr_gate_pass(g, negated ? 2 : 1);

    if (g->p < g->end && *g->p == ']') {
        return kvr_gate_refuse(g, "a class without members");
    }

    while (g->p < g->end && *g->p != ']') {

        if (*g->p == '[') {
            return kvr_gate_refuse(g, "a class in a class");
        }

        if (*g->p == '&' && g->end - g->p > 1 && g->p[1] == '&') {

            if (negated || g->end - g->p < 4 || g->p[2] != '['
                || g->p[3] != '^')
            {
                return kvr_gate_refuse(g, "an intersection of classes");
            }

            if (!kvr_gate_without(g, without)) {
                return false;
            }

            break;
        }

        if (*g->p == '\\') {
            if (!kvr_gate_escape(g)) {
                return false;
            }

            last = 0;
            range = false;
            continue;
        }

        c = kvr_unicode_get(g->p, &n);

        if (*g->p == '-' && last && g->end - g->p > 1 && g->p[1] != ']') {
            range = true;

        } else if (!kvr_unicode_respects(g->age, range ? last : c, c)) {
            return kvr_gate_refuse(g, "a range that divides characters which "
                                      "PCRE2 does not know");

        } else {
            last = c;
            range = false;
        }

        kvr_gate_pass(g, n);
    }

    if (g->p >= g->end) {
        return kvr_gate_refuse(g, "a class without an end");
    }

    kvr_gate_pass(g, 1);

    return true;
}


static bool
kvr_gate_without(kvr_gate_t *g, kvr_bytes_t *without)
{
    bool         good;
    kvr_bytes_t  out;

    out = g->out;
    memset(&g->out, 0, sizeof(kvr_bytes_t));
    g->p += 2;

    good = kvr_gate_class(g);

    *without = g->out;
    g->out = out;

    if (good && (g->p >= g->end || *g->p != ']')) {
        return kvr_gate_refuse(g, "an intersection of classes");
    }

    return good;
}


/* ---- patterns ----------------------------------------------------------- */

kvr_pattern_t *
kvr_pattern_compile(const char *text, size_t len, kvr_unicode_age_t age,
    char why[KVR_PATTERN_WHY])
{
    kvr_gate_t      g;
    kvr_pattern_t  *p;

    memset(&g, 0, sizeof(kvr_gate_t));
    g.p = text;
    g.end = text + len;
    g.age = age;
    g.why = why;

    p = calloc(1, sizeof(kvr_pattern_t));

    if (p && kvr_gate_all(&g) && !g.out.failed) {
        p->code = kvr_pattern_code(g.out.data ? g.out.data : "", g.out.n, why);

    } else if (p == NULL || g.out.failed) {
        (void) snprintf(why, KVR_PATTERN_WHY, "no memory");
    }

    kvr_bytes_free(&g.out);

    if (p && p->code == NULL) {
        free(p);
        return NULL;
    }

    if (p) {
        p->digits = kvr_ascii_digits(text, len);
    }

    return p;
}


static pcre2_code *
kvr_pattern_code(const char *text, size_t len, char why[KVR_PATTERN_WHY])
{
    int                     ec;
    char                    said[100];
    uint32_t                empty;
    pcre2_code             *code;
    PCRE2_SIZE              eo;
    pcre2_compile_context  *context;

    context = pcre2_compile_context_create(NULL);

    if (context == NULL) {
        (void) snprintf(why, KVR_PATTERN_WHY, "no memory");
        return NULL;
    }

    (void) pcre2_set_newline(context, PCRE2_NEWLINE_LF);

    code = pcre2_compile((PCRE2_SPTR) text, len,
                         PCRE2_UTF|PCRE2_UCP|PCRE2_NO_AUTO_CAPTURE, &ec, &eo,
                         context);
    pcre2_compile_context_free(context);

    if (code == NULL) {
        (void) pcre2_get_error_message(ec, (PCRE2_UCHAR *) said, sizeof(said));
        (void) snprintf(why, KVR_PATTERN_WHY, "regular expression: %s", said);
        return NULL;
    }

    if (pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty) != 0 || empty)
    {
        (void) snprintf(why, KVR_PATTERN_WHY,
                        "regular expression: it can match nothing");

    } else if (pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) != 0) {
        (void) snprintf(why, KVR_PATTERN_WHY, "regular expression: PCRE2 was "
                        "built without a compiler (JIT) for this machine");

    } else {
        return code;
    }

    pcre2_code_free(code);

    return NULL;
}


void
kvr_pattern_free(kvr_pattern_t *p)
{
    if (p) {
        pcre2_code_free(p->code);
        free(p);
    }
}


size_t
kvr_pattern_bytes(const kvr_pattern_t *p)
{
    size_t  size, jit;

    size = 0;
    jit = 0;
    (void) pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &size);
    (void) pcre2_pattern_info(p->code, PCRE2_INFO_JITSIZE, &jit);

    return sizeof(kvr_pattern_t) + size + jit;
}


kvr_matcher_t *
kvr_matcher_new(void)
{
    int             ec;
    PCRE2_SIZE      eo;
    kvr_matcher_t  *m;

    m = calloc(1, sizeof(kvr_matcher_t));
    if (m == NULL) {
        return NULL;
    }

    m->data = pcre2_match_data_create(2, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(KVR_PATTERN_STACK, KVR_PATTERN_STACKS,
                                      NULL);
    m->word = pcre2_compile((PCRE2_SPTR) KVR_PATTERN_WORD,
                            PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF|PCRE2_UCP|PCRE2_ANCHORED, &ec, &eo,
                            NULL);

    if (m->data == NULL || m->context == NULL || m->stack == NULL
        || m->word == NULL)
    {
        kvr_matcher_free(m);
        return NULL;
    }

    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    (void) pcre2_set_match_limit(m->context, KVR_PATTERN_LIMIT);

    return m;
}


void
kvr_matcher_free(kvr_matcher_t *m)
{
    if (m) {
        pcre2_match_data_free(m->data);
        pcre2_match_context_free(m->context);
        pcre2_jit_stack_free(m->stack);
        pcre2_code_free(m->word);
        free(m);
    }
}


kvr_rc_t
kvr_pattern_match(const kvr_pattern_t *p, kvr_matcher_t *m, const char *text,
    size_t len, size_t from, size_t *a, size_t *b)
{
    int          rc;
    size_t       end;
    PCRE2_SIZE  *found;

    if (p->digits && from < len) {
        end = kvr_ascii_match(p->digits, text, len, from);

        if (end) {
            *a = from;
            *b = end;
            return KVR_OK;
        }
    }

    rc = pcre2_jit_match(p->code, (PCRE2_SPTR) text, len, from,
                         PCRE2_NO_UTF_CHECK, m->data, m->context);

    if (rc == PCRE2_ERROR_NOMATCH) {
        return KVR_DECLINED;
    }

    if (rc < 0) {
        return KVR_ERROR;
    }

    found = pcre2_get_ovector_pointer(m->data);
    *a = found[0];
    *b = found[1];

    return KVR_OK;
}


bool
kvr_pattern_word(kvr_matcher_t *m, kvr_unicode_age_t age, uint32_t c)
{
    char      text[4];
    uint32_t  n;

    n = kvr_utf8_put(kvr_unicode_repaired(age, c), text);

    return pcre2_match(m->word, (PCRE2_SPTR) text, n, 0, PCRE2_NO_UTF_CHECK,
                       m->data, NULL) > 0;
}
