/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Where the output begins in a stream of events (text/event-stream).  What an
 * engine sends before it has prefilled the prompt is known, and has no output:
 *
 *     : a comment
 *
 *     event: response.created
 *     data: {"type":"response.created", ...}
 *
 * Any other event is the first output, even if its text is empty: vLLM and
 * SGLang send the role of a chat when they have the first token.  Only the
 * beginning of a line is kept, in any cut of the stream.
 */


#ifndef KVR_OUTPUT_H_INCLUDED
#define KVR_OUTPUT_H_INCLUDED


#include "../kvr.h"


/* at least the length of the longest line that is known */
#define KVR_OUTPUT_LINE  32


/* The state of the search; all zero at first. */
typedef struct {
    char        line[KVR_OUTPUT_LINE];  /* the first bytes of the last line */
    uint8_t     len;
    bool        silent;         /* the event has no output */
    bool        begun;          /* the output has begun */
} kvr_output_t;


/*
 * Searches the next piece of the stream.  True from the end of the first line
 * on that belongs to the output.
 */
bool kvr_output_add(kvr_output_t *o, const void *data, size_t len);


#endif /* KVR_OUTPUT_H_INCLUDED */
