
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Facts about one answer or failure in, one verdict out.  The table in
 * mcp_classify.c is the rule book, a row per rule.  Pure.
 */


#ifndef _MCP_CLASSIFY_H_INCLUDED_
#define _MCP_CLASSIFY_H_INCLUDED_


#include <stddef.h>

#include "mcp_rpc.h"


#define MCP_REASON_MAX  192             /* of a root-cause text, with NUL */


typedef enum {
    MCP_VERDICT_OK = 0,
    MCP_VERDICT_UNSUPPORTED,
    MCP_VERDICT_SESSION_LOST,
    MCP_VERDICT_SESSION_SUSPECT,
    MCP_VERDICT_AUTH,
    MCP_VERDICT_LIMITED,
    MCP_VERDICT_MISROUTE,
    MCP_VERDICT_BROKEN_REPLY,
    MCP_VERDICT_TIMEOUT,
    MCP_VERDICT_PEER_DOWN,
    MCP_VERDICT_LOCAL,
    MCP_VERDICT_N
} mcp_verdict_t;


typedef enum {
    MCP_EFFECT_NOTHING = 0,
    MCP_EFFECT_PROOF,           /* the peer answers MCP */
    MCP_EFFECT_REACH,           /* something answers there */
    MCP_EFFECT_FAILURE
} mcp_effect_t;


typedef enum {
    MCP_STAGE_DONE = 0,         /* a whole answer, or headers at least */
    MCP_STAGE_LOCAL,            /* nothing left our side */
    MCP_STAGE_CONNECT,
    MCP_STAGE_TLS,
    MCP_STAGE_HEADER,           /* connected, no response header yet */
    MCP_STAGE_BODY              /* broke off inside the body */
} mcp_stage_t;


typedef struct {
    mcp_stage_t                 stage;      /* where it ended */
    unsigned                    session:1;  /* a session id was sent */
    unsigned                    ready:1;    /* ... that had been ready before */
    unsigned                    timedout:1; /* our deadline or nginx's passed */
    unsigned                    pooled:1;   /* on a reused connection */
    unsigned                    encoded:1;  /* Content-Encoding, not identity */
    unsigned                    retry_after:1;
    unsigned                    ping:1;     /* the method asked was "ping" */

    int                         status;     /* HTTP status, 0 if none came */
    mcp_media_t                 media;
    const mcp_rpc_answer_t     *answer;     /* NULL if no body was read */

    const char                 *head;       /* raw head of the body */
    size_t                      head_len;

    const char                 *error;      /* what nginx logged, NUL-ended:
                                             * errno or TLS verify text; NULL */
    const char *const          *phrases;    /* mcp_session_lost_text, lower
                                             * case, NULL-ended; or NULL */
} mcp_facts_t;


/*
 * Judges one answer or failure.  Writes the root cause, never empty, to
 * "reason" (MCP_REASON_MAX bytes): the lowest layer that failed first (socket <
 * TLS < HTTP < JSON-RPC); for ok it is the evidence.  It is safe to log: no
 * session id, credential, control character or double quote.
 *
 * With "answer" NULL a 2xx of an MCP media type is ok by its headers alone, as
 * a client's answer is.
 */
mcp_verdict_t mcp_classify(const mcp_facts_t *f, char *reason);

/* What a verdict means to the peer. */
mcp_effect_t mcp_verdict_effect(mcp_verdict_t v);

/* The verdict's word, as in the status page. */
const char *mcp_verdict_name(mcp_verdict_t v);


#endif /* _MCP_CLASSIFY_H_INCLUDED_ */
