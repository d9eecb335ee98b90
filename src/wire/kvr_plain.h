/*
 * Copyright (C) the nginx-kv-router authors
 *
 * The plain text of a prompt, for workers of which neither events nor token
 * ids are known: what the request says, in the order in which a chat template
 * would say it, with little of JSON left.
 *
 *     {"messages": [{"role": "user", "content": "Hi \u0041"}]}
 *
 *     RS user US Hi A
 *
 * Two requests of which one goes on where the other one ends have texts of
 * which one goes on where the other one ends.  The text is no prompt of any
 * engine: blocks of it are compared with blocks of it alone.
 */


#ifndef KVR_PLAIN_H_INCLUDED
#define KVR_PLAIN_H_INCLUDED


#include "kvr_forms.h"
#include "kvr_tape.h"


/*
 * Writes the text of the first prompt in a body of that form, at most size
 * bytes.  Returns the number of bytes written.  A buffer of the body's length
 * is always large enough. 0: there is no text.
 */
size_t kvr_plain_text(const kvr_tape_t *t, kvr_form_t form, char *out,
    size_t size);


#endif /* KVR_PLAIN_H_INCLUDED */
