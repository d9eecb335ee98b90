/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Is a text well-formed UTF-8?  And one character, as it is written.
 */


#ifndef KVR_UTF8_H_INCLUDED
#define KVR_UTF8_H_INCLUDED


#include "../kvr.h"


/*
 * The number of bytes at the start of the text that are well-formed UTF-8 by
 * RFC 3629: len, or the offset of the first character which is not: overlong,
 * a surrogate, above U+10FFFF, cut off by the end of the text.
 */
size_t kvr_utf8_valid(const char *text, size_t len);

/* Writes a character, of four bytes at most; returns their number. */
uint32_t kvr_utf8_put(uint32_t c, char *out);


#endif /* KVR_UTF8_H_INCLUDED */
