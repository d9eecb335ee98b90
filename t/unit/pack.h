/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Writes msgpack for tests, from JSON as people read it:
 *
 *     len = pack(bytes, size, "[1.5, [['AllBlocksCleared']], 3]");
 *
 * Apostrophes stand for quotation marks; {'$bin': '0a0b'} is a byte string
 * and {'$hex': '93c0'} bytes to be put in as they are.  A number with a point
 * is a double.
 */


#ifndef PACK_H_INCLUDED
#define PACK_H_INCLUDED


#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_tree.h>


typedef struct {
    uint8_t  *pos;
    uint8_t  *end;
} pack_t;


static inline void
pack_bytes(pack_t *out, const void *bytes, size_t len)
{
    if (len > (size_t) (out->end - out->pos)) {
        fprintf(stderr, "pack: out of space\n");
        abort();
    }

    if (len != 0) {
        memcpy(out->pos, bytes, len);
        out->pos += len;
    }
}


static inline void
pack_tag(pack_t *out, uint8_t tag, uint64_t value, unsigned bytes)
{
    unsigned  i;
    uint8_t   head[9];

    head[0] = tag;

    for (i = 0; i < bytes; i++) {
        head[1 + i] = (uint8_t) (value >> (8 * (bytes - 1 - i)));
    }

    pack_bytes(out, head, 1 + bytes);
}


static inline void
pack_u64(pack_t *out, uint64_t n)
{
    if (n < 0x80) {
        pack_tag(out, (uint8_t) n, 0, 0);

    } else if (n <= UINT8_MAX) {
        pack_tag(out, 0xcc, n, 1);

    } else if (n <= UINT16_MAX) {
        pack_tag(out, 0xcd, n, 2);

    } else if (n <= UINT32_MAX) {
        pack_tag(out, 0xce, n, 4);

    } else {
        pack_tag(out, 0xcf, n, 8);
    }
}


static inline void
pack_i64(pack_t *out, int64_t n)
{
    if (n >= 0) {
        pack_u64(out, (uint64_t) n);

    } else if (n >= -32) {
        pack_tag(out, (uint8_t) n, 0, 0);

    } else if (n >= INT8_MIN) {
        pack_tag(out, 0xd0, (uint64_t) n, 1);

    } else if (n >= INT16_MIN) {
        pack_tag(out, 0xd1, (uint64_t) n, 2);

    } else if (n >= INT32_MIN) {
        pack_tag(out, 0xd2, (uint64_t) n, 4);

    } else {
        pack_tag(out, 0xd3, (uint64_t) n, 8);
    }
}


static inline void
pack_f64(pack_t *out, double n)
{
    uint64_t  bits;

    memcpy(&bits, &n, 8);
    pack_tag(out, 0xcb, bits, 8);
}


static inline void
pack_str(pack_t *out, const char *text, size_t len)
{
    if (len < 32) {
        pack_tag(out, (uint8_t) (0xa0 | len), 0, 0);

    } else if (len <= UINT8_MAX) {
        pack_tag(out, 0xd9, len, 1);

    } else {
        pack_tag(out, 0xda, len, 2);
    }

    pack_bytes(out, text, len);
}


static inline void
pack_bin(pack_t *out, const void *bytes, size_t len)
{
    if (len <= UINT8_MAX) {
        pack_tag(out, 0xc4, len, 1);

    } else if (len <= UINT16_MAX) {
        pack_tag(out, 0xc5, len, 2);

    } else {
        pack_tag(out, 0xc6, len, 4);
    }

    pack_bytes(out, bytes, len);
}


static inline void
pack_array(pack_t *out, size_t n)
{
    if (n < 16) {
        pack_tag(out, (uint8_t) (0x90 | n), 0, 0);

    } else if (n <= UINT16_MAX) {
        pack_tag(out, 0xdc, n, 2);

    } else {
        pack_tag(out, 0xdd, n, 4);
    }
}


static inline void
pack_map(pack_t *out, size_t n)
{
    if (n < 16) {
        pack_tag(out, (uint8_t) (0x80 | n), 0, 0);

    } else {
        pack_tag(out, 0xde, n, 2);
    }
}


/* A removal, as a normalised batch has it. */
static inline void
pack_remove(pack_t *out, uint32_t rank, uint32_t tier, const uint64_t *handles,
    uint32_t n)
{
    pack_array(out, 4);
    pack_str(out, "r", 1);
    pack_u64(out, rank);
    pack_u64(out, tier);
    pack_bin(out, handles, n * sizeof(uint64_t));
}


/* Bytes from hexadecimal; returns how many. */
static inline size_t
unhex(uint8_t *out, const char *hex)
{
    size_t    n;
    unsigned  byte;

    for (n = 0; hex[2 * n] != '\0'; n++) {
        sscanf(hex + 2 * n, "%2x", &byte);
        out[n] = (uint8_t) byte;
    }

    return n;
}


static inline void
pack_tree(pack_t *out, yajl_val v)
{
    size_t       i;
    uint8_t     *bytes;
    const char  *text;

    switch (v->type) {

    case yajl_t_null:
        pack_tag(out, 0xc0, 0, 0);
        return;

    case yajl_t_true:
    case yajl_t_false:
        pack_tag(out, v->type == yajl_t_true ? 0xc3 : 0xc2, 0, 0);
        return;

    case yajl_t_string:
        pack_str(out, v->u.string, strlen(v->u.string));
        return;

    case yajl_t_number:
        text = v->u.number.r;

        if (strpbrk(text, ".eE") != NULL) {
            pack_f64(out, strtod(text, NULL));

        } else if (text[0] == '-') {
            pack_i64(out, strtoll(text, NULL, 10));

        } else {
            pack_u64(out, strtoull(text, NULL, 10));
        }

        return;

    case yajl_t_array:
        pack_array(out, v->u.array.len);

        for (i = 0; i < v->u.array.len; i++) {
            pack_tree(out, v->u.array.values[i]);
        }

        return;

    default:
        break;
    }

    if (v->u.object.len == 1 && v->u.object.keys[0][0] == '$') {
        text = YAJL_GET_STRING(v->u.object.values[0]);
        bytes = malloc(strlen(text) / 2 + 1);
        i = unhex(bytes, text);

        if (strcmp(v->u.object.keys[0], "$bin") == 0) {
            pack_bin(out, bytes, i);

        } else {
            pack_bytes(out, bytes, i);
        }

        free(bytes);
        return;
    }

    pack_map(out, v->u.object.len);

    for (i = 0; i < v->u.object.len; i++) {
        pack_str(out, v->u.object.keys[i], strlen(v->u.object.keys[i]));
        pack_tree(out, v->u.object.values[i]);
    }
}


/* Makes quotation marks of apostrophes; the caller frees it. */
static inline char *
quoted(const char *json)
{
    char  *p, *text;

    text = malloc(strlen(json) + 1);
    strcpy(text, json);

    for (p = text; *p != '\0'; p++) {
        if (*p == '\'') {
            *p = '"';
        }
    }

    return text;
}


static inline size_t
pack(uint8_t *bytes, size_t size, const char *json)
{
    char      *text, error[256];
    pack_t     out;
    yajl_val   tree;

    text = quoted(json);
    tree = yajl_tree_parse(text, error, sizeof(error));

    if (tree == NULL) {
        fprintf(stderr, "pack: %s in %s\n", error, text);
        abort();
    }

    out.pos = bytes;
    out.end = bytes + size;

    pack_tree(&out, tree);

    yajl_tree_free(tree);
    free(text);

    return (size_t) (out.pos - bytes);
}


#endif /* PACK_H_INCLUDED */
