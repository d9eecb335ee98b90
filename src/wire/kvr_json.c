/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decoder.h"
#include "kvr_json_ways.h"
#include "kvr_json_word.h"
#include "kvr_utf8.h"


static inline void
kvr_json_space(kvr_json_t *j)
{
    while (j->pos < j->end
           && (*j->pos == ' ' || *j->pos == '\n' || *j->pos == '\r'
               || *j->pos == '\t'))
    {
        j->pos++;
    }
}


bool
kvr_json_fail(kvr_json_t *j, const char *at, const char *error)
{
    if (j->error == NULL) {
        j->error = error;
        j->error_at = at - j->start;
    }

    return false;
}


/* Sets the error for a missing character, or for the end of the text. */

static bool
kvr_json_unexpected(kvr_json_t *j, const char *error)
{
    return kvr_json_fail(j, j->pos, (j->pos == j->end) ? "unexpected end"
                                                       : error);
}


void
kvr_json_init(kvr_json_t *j, const char *text, size_t len)
{
    j->way = kvr_json_way(0);
    j->start = text;
    j->pos = text;
    j->end = text + len;
    j->maps = 0;
    j->depth = 0;
    j->first = true;
    j->utf8 = false;
    j->error = NULL;
    j->error_at = 0;
}


int
kvr_json_peek(kvr_json_t *j)
{
    if (j->error) {
        return 0;
    }

    kvr_json_space(j);

    return (j->pos < j->end) ? (unsigned char) *j->pos : 0;
}


/* ---- objects and arrays ------------------------------------------------- */

bool
kvr_json_open(kvr_json_t *j, int bracket)
{
    uint64_t  bit;

    if (kvr_json_peek(j) != bracket) {
        return kvr_json_unexpected(j, (bracket == '{')
                                      ? "an object was expected"
                                      : "an array was expected");
    }

    if (j->depth == KVR_JSON_DEPTH) {
        return kvr_json_fail(j, j->pos, "nested too deep");
    }

    bit = 1ull << j->depth++;
    j->maps = (bracket == '{') ? (j->maps | bit) : (j->maps & ~bit);
    j->first = true;
    j->pos++;

    return true;
}


static bool
kvr_json_close(kvr_json_t *j)
{
    j->pos++;
    j->depth--;
    j->first = false;

    return false;
}


bool
kvr_json_key(kvr_json_t *j, kvr_json_text_t *key)
{
    int  c;

    c = kvr_json_peek(j);

    if (j->error) {
        return false;
    }

    if (c == '}') {
        return kvr_json_close(j);
    }

    if (!j->first) {
        if (c != ',') {
            return kvr_json_unexpected(j, "a comma or } was expected");
        }

        j->pos++;
        c = kvr_json_peek(j);
    }

    if (c != '"') {
        return kvr_json_unexpected(j, "a key was expected");
    }

    if (!kvr_json_string(j, key)) {
        return false;
    }

    if (kvr_json_peek(j) != ':') {
        return kvr_json_unexpected(j, "a colon was expected");
    }

    j->pos++;
    j->first = false;

    return true;
}


bool
kvr_json_next(kvr_json_t *j)
{
    int  c;

    c = kvr_json_peek(j);

    if (j->error) {
        return false;
    }

    if (c == ']') {
        return kvr_json_close(j);
    }

    if (!j->first) {
        if (c != ',') {
            return kvr_json_unexpected(j, "a comma or ] was expected");
        }

        j->pos++;
    }

    j->first = false;

    return true;
}


bool
kvr_json_leave(kvr_json_t *j, uint32_t depth)
{
    bool             more;
    kvr_json_text_t  key;

    while (j->error == NULL && j->depth > depth) {

        more = ((j->maps >> (j->depth - 1)) & 1) ? kvr_json_key(j, &key)
                                                 : kvr_json_next(j);

        if (more) {
            (void) kvr_json_skip(j);
        }
    }

    return j->error == NULL;
}


bool
kvr_json_skip(kvr_json_t *j)
{
    bool  deep;

    return kvr_json_skip_levels(j, KVR_JSON_DEPTH, &deep);
}


bool
kvr_json_skip_levels(kvr_json_t *j, uint32_t levels, bool *deep)
{
    bool             b;
    uint32_t         base;
    kvr_json_text_t  text;

    base = j->depth;

    for ( ;; ) {

        switch (kvr_json_peek(j)) {

        case '{':
            kvr_json_open(j, '{');
            break;

        case '[':
            kvr_json_open(j, '[');
            break;

        case '"':
            kvr_json_string(j, &text);
            break;

        case 't':
        case 'f':
            kvr_json_bool(j, &b);
            break;

        case 'n':
            kvr_json_null(j);
            break;

        default:
            kvr_json_number(j, &text);
        }

        if (j->depth - base > levels) {
            *deep = true;
        }

        /* go on to the next value; objects and arrays may end first */

        for ( ;; ) {

            if (j->error) {
                return false;
            }

            if (j->depth == base) {
                return true;
            }

            if ((j->maps >> (j->depth - 1)) & 1) {
                if (kvr_json_key(j, &text)) {
                    break;
                }

            } else if (kvr_json_next(j)) {
                break;
            }
        }
    }
}


bool
kvr_json_end(kvr_json_t *j)
{
    (void) kvr_json_peek(j);

    if (j->error) {
        return false;
    }

    if (j->pos != j->end) {
        return kvr_json_fail(j, j->pos, "nothing more was expected");
    }

    return true;
}


/* ---- scalars ------------------------------------------------------------ */

static bool
kvr_json_escape(kvr_json_t *j, const char **pos, bool *surrogates)
{
    int          i;
    const char  *p;

    p = *pos + 1;

    if (p == j->end) {
        return kvr_json_fail(j, p, "unexpected end");
    }

    switch (*p++) {

    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r':
    case 't':
        break;

    case 'u':
        for (i = 0; i < 4; i++, p++) {
            if (p == j->end) {
                return kvr_json_fail(j, p, "unexpected end");
            }

            if (!kvr_json_is_digit(*p)
                && (unsigned) (*p | 0x20) - 'a' >= 6)
            {
                return kvr_json_fail(j, p, "four hex digits were expected");
            }
        }

        /* \ud800 .. \udfff: only these begin with d and a digit over 7 */

        *surrogates |= (p[-4] | 0x20) == 'd' && p[-3] > '7';
        break;

    default:
        return kvr_json_fail(j, p - 1, "unknown escape");
    }

    *pos = p;

    return true;
}


bool
kvr_json_string(kvr_json_t *j, kvr_json_text_t *s)
{
    bool         escaped, surrogates, wide;
    const char  *p;

    if (kvr_json_peek(j) != '"') {
        return kvr_json_unexpected(j, "a string was expected");
    }

    p = j->pos + 1;
    escaped = false;
    surrogates = false;
    wide = false;

    for ( ;; ) {
        p = j->way->plain(p, j->end, &wide);

        if (p == j->end) {
            return kvr_json_fail(j, p, "unexpected end");
        }

        if (*p == '"') {
            break;
        }

        if (*p == '\\') {
            escaped = true;

            if (!kvr_json_escape(j, &p, &surrogates)) {
                return false;
            }

            continue;
        }

        return kvr_json_fail(j, p, "a control character in a string");
    }

    s->data = j->pos + 1;
    s->len = p - s->data;

    if (wide && j->utf8 && kvr_utf8_valid(s->data, s->len) != s->len) {
        return kvr_json_fail(j, j->pos, "a string that is not UTF-8");
    }

    s->escaped = escaped;
    s->wide = wide;
    s->surrogates = surrogates;

    j->pos = p + 1;

    return true;
}


/* Skips digits: there must be at least one. */

static const char *
kvr_json_run_of_digits(kvr_json_t *j, const char *p)
{
    const char  *start;

    start = p;

    while (p < j->end && kvr_json_is_digit(*p)) {
        p++;
    }

    if (p == start) {
        kvr_json_fail(j, p, (p == j->end) ? "unexpected end"
                                          : "a digit was expected");
        return NULL;
    }

    return p;
}


bool
kvr_json_number(kvr_json_t *j, kvr_json_text_t *n)
{
    int          c;
    const char  *p;

    c = kvr_json_peek(j);

    if (c != '-' && !kvr_json_is_digit(c)) {
        return kvr_json_unexpected(j, "a value was expected");
    }

    p = j->pos;

    if (c == '-') {
        p++;
    }

    if (p < j->end && *p == '0') {
        p++;

        if (p < j->end && kvr_json_is_digit(*p)) {
            return kvr_json_fail(j, j->pos, "a number begins with 0");
        }

    } else {
        p = kvr_json_run_of_digits(j, p);
        if (p == NULL) {
            return false;
        }
    }

    if (p < j->end && *p == '.') {
        p = kvr_json_run_of_digits(j, p + 1);
        if (p == NULL) {
            return false;
        }
    }

    if (p < j->end && (*p == 'e' || *p == 'E')) {
        p++;

        if (p < j->end && (*p == '+' || *p == '-')) {
            p++;
        }

        p = kvr_json_run_of_digits(j, p);
        if (p == NULL) {
            return false;
        }
    }

    n->data = j->pos;
    n->len = p - j->pos;
    n->escaped = false;
    n->wide = false;
    n->surrogates = false;

    j->pos = p;

    return true;
}


static bool
kvr_json_literal(kvr_json_t *j, const char *word)
{
    size_t  i;

    for (i = 0; word[i]; i++) {

        if (j->pos + i == j->end) {
            return kvr_json_fail(j, j->end, "unexpected end");
        }

        if (j->pos[i] != word[i]) {
            return kvr_json_fail(j, j->pos, "a value was expected");
        }
    }

    j->pos += i;

    return true;
}


bool
kvr_json_bool(kvr_json_t *j, bool *value)
{
    int  c;

    c = kvr_json_peek(j);

    if (c != 't' && c != 'f') {
        return kvr_json_unexpected(j, "true or false was expected");
    }

    if (!kvr_json_literal(j, (c == 't') ? "true" : "false")) {
        return false;
    }

    *value = (c == 't');

    return true;
}


bool
kvr_json_null(kvr_json_t *j)
{
    if (kvr_json_peek(j) != 'n') {
        return kvr_json_unexpected(j, "null was expected");
    }

    return kvr_json_literal(j, "null");
}


bool
kvr_json_digits(const char *s, size_t len, uint64_t *value)
{
    return len <= 20 && (len < 2 || s[0] != '0')
           && kvr_u64_parse(s, len, value);
}


bool
kvr_json_u64(kvr_json_t *j, uint64_t *value)
{
    int              c;
    bool             ok;
    const char      *at;
    kvr_json_text_t  text;

    c = kvr_json_peek(j);
    at = j->pos;

    ok = (c == '"') ? kvr_json_string(j, &text) : kvr_json_number(j, &text);

    if (!ok) {
        return false;
    }

    if (!kvr_json_digits(text.data, text.len, value)) {
        return kvr_json_fail(j, at, "an integer 0..18446744073709551615 "
                                    "was expected");
    }

    return true;
}
