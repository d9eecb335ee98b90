/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Answers of Redis by hand, and what a machine of src/follow logs and counts,
 * for the tests that drive such a machine through its states.
 *
 *     reply = answer("['0' ['a' 'b']]");   an array of a string and an array
 *
 *     'text'   a string                 +OK      a status
 *     @1       the string blobs[1]      !ERR x   an error, up to the end
 *     :12      an integer               [ … ]    an array
 *     ~        nil                      ?        another type
 *     BIG      the reply is too big     LOST     the connection is lost
 */


#ifndef ANSWERS_H_INCLUDED
#define ANSWERS_H_INCLUDED


#include "follow/kvr_ask.h"
#include "follow/kvr_reply.h"
#include "follow/kvr_tell.h"

#include <stdio.h>
#include <stdlib.h>


#define BLOBS  512


typedef struct node_s  node_t;

struct node_s {
    kvr_reply_t   reply;
    char         *text;
    node_t       *elements[512];
};


typedef struct {
    const char   *bytes;
    size_t        len;
} blob_t;


static blob_t      blobs[BLOBS];
static uint32_t    unreleased;          /* answers that nobody released yet */

static char        told[16384];         /* what was logged, a line each */
static uint32_t    counted[KVR_COUNTS];
static kvr_tell_t  tell;


/* ---- answers ------------------------------------------------------------ */

static inline void
node_free(void *data)
{
    size_t   i;
    node_t  *node;

    node = data;

    for (i = 0; i < node->reply.len && node->reply.type == KVR_REPLY_ARRAY;
         i++)
    {
        node_free(node->elements[i]);
    }

    free(node->text);
    free(node);
}


static inline void
node_release(void *data)
{
    unreleased--;
    node_free(data);
}


static inline void
node_element(const void *array, size_t i, kvr_reply_t *out)
{
    const node_t  *node;

    node = array;
    *out = node->elements[i]->reply;
}


static inline void
node_text(node_t *node, kvr_reply_type_t type, const char *text, size_t len)
{
    node->text = malloc(len + 1);
    memcpy(node->text, text, len);
    node->text[len] = '\0';

    node->reply.type = type;
    node->reply.text = node->text;
    node->reply.len = len;
}


static inline node_t *
node_parse(const char **p)
{
    char     *end;
    node_t   *node;
    size_t    i;

    node = calloc(1, sizeof(node_t));

    while (**p == ' ') {
        (*p)++;
    }

    switch (*(*p)++) {

    case '\'':
        end = strchr(*p, '\'');
        node_text(node, KVR_REPLY_STRING, *p, end - *p);
        *p = end + 1;
        break;

    case '@':
        i = strtoul(*p, &end, 10);
        *p = end;
        node_text(node, KVR_REPLY_STRING, blobs[i].bytes, blobs[i].len);
        break;

    case '+':
        i = strcspn(*p, " ]");
        node_text(node, KVR_REPLY_STATUS, *p, i);
        *p += i;
        break;

    case '!':
        node_text(node, KVR_REPLY_ERROR, *p, strlen(*p));
        *p += strlen(*p);
        break;

    case ':':
        node->reply.type = KVR_REPLY_INTEGER;
        node->reply.integer = strtoll(*p, &end, 10);
        *p = end;
        break;

    case '~':
        node->reply.type = KVR_REPLY_NIL;
        break;

    case '?':
        node->reply.type = KVR_REPLY_OTHER;
        break;

    case '[':
        node->reply.type = KVR_REPLY_ARRAY;
        node->reply.array = node;
        node->reply.element = node_element;

        for ( ;; ) {
            *p += strspn(*p, " ");

            if (**p == ']') {
                (*p)++;
                break;
            }

            node->elements[node->reply.len] = node_parse(p);
            node->reply.len++;
        }

        break;

    default:
        printf("Bail out! no answer: \"%s\"\n", *p - 1);
        exit(1);
    }

    return node;
}


static inline kvr_reply_t
answer(const char *text)
{
    node_t       *node;
    kvr_reply_t   reply;

    memset(&reply, 0, sizeof(kvr_reply_t));

    if (strcmp(text, "BIG") == 0) {
        reply.type = KVR_REPLY_TOO_BIG;
        return reply;
    }

    if (strcmp(text, "LOST") == 0) {
        reply.type = KVR_REPLY_LOST;
        return reply;
    }

    node = node_parse(&text);
    unreleased++;

    reply = node->reply;
    reply.owned = node;
    reply.release = node_release;

    return reply;
}


/* ---- questions ---------------------------------------------------------- */

/* The arguments of a command, with spaces between them. */

static inline const char *
command(const kvr_ask_t *ask)
{
    int     i;
    size_t  n;

    static char  text[1024];

    for (i = 0, n = 0; i < ask->argc; i++) {
        n += snprintf(text + n, sizeof(text) - n, "%s%.*s", i ? " " : "",
                      (int) ask->len[i], ask->argv[i]);
    }

    return text;
}


/* ---- log ---------------------------------------------------------------- */

static inline void
tell_log(void *data, kvr_level_t level, const char *text)
{
    size_t  n;

    static const char *const  names[] = {
        "alert", "error", "warn", "notice", "info", "debug"
    };

    n = strlen(told);
    snprintf(told + n, sizeof(told) - n, "%s: %s\n", names[level], text);
}


static inline void
tell_count(void *data, kvr_count_t what)
{
    counted[what]++;
}


/* Nothing is logged or counted yet. */

static inline void
tell_reset(void)
{
    told[0] = '\0';
    memset(counted, 0, sizeof(counted));

    tell = (kvr_tell_t) { NULL, tell_log, tell_count, false };
}


#endif /* ANSWERS_H_INCLUDED */
