/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Strings of well-formed UTF-8 as Python's str methods see them: characters
 * are code points, and white space is what str.isspace() takes for it.
 * Lengths and offsets are bytes, unless a comment says characters.
 */


#ifndef KVR_STRING_H_INCLUDED
#define KVR_STRING_H_INCLUDED


#include "../kvr.h"


/* "not there", of the functions that find something */
#define KVR_STRING_NONE   ((size_t) -1)


/* The number of characters. */
size_t kvr_string_chars(const char *s, size_t len);

/* The offset of character i, counted from 0; len: there are not so many. */
size_t kvr_string_offset(const char *s, size_t len, size_t i);

/* The offset of the first byte over 0x7f; len: none. */
size_t kvr_string_wide(const char *s, size_t len);

/*
 * The offset of the first byte that repr() may write in another way: a control
 * character, a quote, a backslash, a byte over 0x7e; len: none.
 */
size_t kvr_string_odd(const char *s, size_t len);

/* The length of the white space at the start. */
size_t kvr_string_lstrip(const char *s, size_t len);

/* The length without the white space at the end. */
size_t kvr_string_rstrip(const char *s, size_t len);

/* The offset of the first white space at or behind an offset; len: none. */
size_t kvr_string_space_at(const char *s, size_t len, size_t from);

/*
 * The offset of the first character at or behind an offset that ends a line
 * for str.splitlines(); len: none.
 */
size_t kvr_string_line_end(const char *s, size_t len, size_t from);

/*
 * The offset of the first place of a part at or behind the offset from, or of
 * its last place; KVR_STRING_NONE: it is not there.  The time for the first
 * grows with the sum of the lengths, for the last with their product.
 */
size_t kvr_string_find(const char *s, size_t len, const char *part,
    size_t part_len, size_t from);
size_t kvr_string_rfind(const char *s, size_t len, const char *part,
    size_t part_len);


#endif /* KVR_STRING_H_INCLUDED */
