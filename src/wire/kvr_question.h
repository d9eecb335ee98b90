/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Questions to engines for the token ids of a request's text, and the ids in
 * their answers.  There are two ways to ask:
 *
 *     render    POST <path>/render with the body as it came: vLLM
 *     remote    POST /tokenize with the fields of the body that the engine's
 *               tokenizer knows.  vLLM takes some fields of a chat only inside
 *               of "chat_template_kwargs".  SGLang takes those of a chat as
 *               they are, but renders other text if it is given
 *               "add_generation_prompt", which its chats ignore, and refuses
 *               "stream".  TensorRT-LLM has no such path
 *
 * Pieces of the body are copied byte by byte, as the client wrote them.
 */


#ifndef KVR_QUESTION_H_INCLUDED
#define KVR_QUESTION_H_INCLUDED


#include "kvr_forms.h"
#include "kvr_tape.h"


#define KVR_QUESTION_ROOM    512     /* bytes by which a question can be
                                        longer than the body */


typedef enum {
    KVR_ASK_RENDER = 0,
    KVR_ASK_REMOTE
} kvr_ask_t;


/*
 * The path of the question about a request of that form; NULL: engines can't
 * be asked about it in this way.
 */
const char *kvr_question_path(kvr_ask_t ask, kvr_form_t form);

/*
 * Writes the body of the question for POST /tokenize to out; *len: its bytes,
 * at most those of the body and KVR_QUESTION_ROOM.  t: the tape of the body.
 * An engine of an unknown kind is asked as vLLM is.
 *
 * KVR_DECLINED: there is nothing to ask, or, if *field is set, the answer
 * would be of other tokens because of that field (a static name).  KVR_FULL:
 * more than cap bytes.
 */
kvr_rc_t kvr_question(const kvr_tape_t *t, kvr_form_t form,
    kvr_engine_kind_t engine, char *out, size_t cap, size_t *len,
    const char **field);

/*
 * The ids in an answer: "tokens" or "token_ids" of an object, or of the first
 * object of an array.  The answer is scanned onto the tape, whose ids *ids
 * points to.
 *
 * KVR_INVALID: no ids, and *err says why not, a static sentence.  KVR_FULL:
 * more ids than the tape has room for; *n is their number.
 */
kvr_rc_t kvr_answer_ids(kvr_tape_t *t, const char *text, size_t len,
    const uint32_t **ids, size_t *n, const char **err);


#endif /* KVR_QUESTION_H_INCLUDED */
