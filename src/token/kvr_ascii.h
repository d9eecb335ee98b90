/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The regular expressions that most models split a text by, for matches that
 * are ASCII: words, numbers, signs and white space by a table of classes.
 * That takes about a third of PCRE2's time.
 */


#ifndef KVR_ASCII_H_INCLUDED
#define KVR_ASCII_H_INCLUDED


#include "../kvr.h"


/*
 * The most digits of a number in one match of this regular expression;
 * 0: it is none of those that are known here.
 */
uint32_t kvr_ascii_digits(const char *text, size_t len);

/*
 * The end of the match that begins at `from`, which is below len.  0: the
 * match depends on a character beyond ASCII.
 */
size_t kvr_ascii_match(uint32_t digits, const char *text, size_t len,
    size_t from);


#endif /* KVR_ASCII_H_INCLUDED */
