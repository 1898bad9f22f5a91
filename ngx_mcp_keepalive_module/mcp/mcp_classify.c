
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <stdio.h>
#include <string.h>

#include "mcp_classify.h"
#include "mcp_phrases.h"
#include "mcp_text.h"


#define CLASSIFY_HEAD_MAX  8192         /* of a body searched for texts */


/* what a row may ask for, worked out from the facts once; T_: mcp_phrases.h */

#define F_SESSION   0x00000001          /* a session id was sent */
#define F_READY     0x00000002          /* ... which had been ready */
#define F_TIMEOUT   0x00000004
#define F_RETRY     0x00000008          /* Retry-After */
#define F_HTML      0x00000010
#define F_BARE      0x00000020          /* no JSON-RPC and no text to judge */
#define F_RPC       0x00000040          /* JSON-RPC of any kind */
#define F_RESULT    0x00000080
#define F_ERROR     0x00000100
#define F_OURS      0x00000200          /* ... with our id */
#define F_WHOLE     0x00000400          /* the response is in */
#define F_NOMETHOD  0x00000800          /* -32601 */
#define F_INVALID   0x00001000          /* -32600 */
#define F_VERSION   0x00002000          /* -32020, -32022 */
#define F_EMPTY     0x00004000          /* no byte of a body */
#define F_ENCODED   0x00008000
#define F_UNREAD    0x00010000          /* nobody looked at the body */
#define F_MCP       0x00020000          /* JSON or an event stream */


#define S_DONE      (1 << MCP_STAGE_DONE)
#define S_LOCAL     (1 << MCP_STAGE_LOCAL)
#define S_CONNECT   (1 << MCP_STAGE_CONNECT)
#define S_TLS       (1 << MCP_STAGE_TLS)
#define S_HEADER    (1 << MCP_STAGE_HEADER)
#define S_BODY      (1 << MCP_STAGE_BODY)
#define S_SILENT    (S_CONNECT|S_TLS|S_HEADER)
#define S_ANSWER    (S_DONE|S_BODY)


typedef struct {
    unsigned            stages;
    int                 low;            /* status, both ends included */
    int                 high;
    unsigned            with;           /* flags that must be there */
    unsigned            without;        /* flags that must not */
    mcp_verdict_t       verdict;
    const char         *why;            /* after "HTTP nnn" if no JSON-RPC
                                         * error says more; NULL: the stage */
} mcp_rule_t;


static unsigned mcp_classify_flags(const mcp_facts_t *f);
static unsigned mcp_classify_rpc(const mcp_facts_t *f, unsigned flags);
static unsigned mcp_classify_texts(const mcp_facts_t *f, unsigned flags);
static void mcp_classify_reason(const mcp_facts_t *f, const mcp_rule_t *rule,
    unsigned flags, char *reason);
static void mcp_classify_stage(const mcp_facts_t *f, char *reason);
static size_t mcp_classify_cut(const char *error);


/*
 * The rule book: the first row that fits is the verdict.  Texts count only in
 * the message of a JSON-RPC error, or in the body of an HTTP error that is not
 * JSON-RPC.  What each group is for is told in the design of the module; the
 * code of a JSON-RPC error alone decides nothing but "no such method".
 */

static const mcp_rule_t  mcp_rules[] = {

    /* nothing left our side */

    { S_LOCAL,    0, 999, 0, 0,
      MCP_VERDICT_LOCAL, NULL },

    /* the server understood: judged before all that follows */

    { S_ANSWER, 200, 999, F_NOMETHOD, 0,
      MCP_VERDICT_UNSUPPORTED, ", no such method" },
    { S_ANSWER, 405, 405, 0, 0,
      MCP_VERDICT_MISROUTE, ", method not allowed" },
    { S_ANSWER, 200, 999, T_NOMETHOD, 0,
      MCP_VERDICT_UNSUPPORTED, ", no such method" },

    /* no answer at all */

    { S_SILENT,   0, 999, F_TIMEOUT, 0,
      MCP_VERDICT_TIMEOUT, NULL },
    { S_SILENT,   0, 999, 0, 0,
      MCP_VERDICT_PEER_DOWN, NULL },
    { S_ANSWER,   0,  99, F_TIMEOUT, 0,
      MCP_VERDICT_TIMEOUT, NULL },
    { S_BODY,     0,  99, 0, 0,
      MCP_VERDICT_PEER_DOWN, NULL },
    { S_DONE,     0,  99, 0, 0,
      MCP_VERDICT_LOCAL, NULL },

    /* credentials and limits; 401 also when its text is about a session, as
     * logins have sessions, too */

    { S_ANSWER, 401, 401, 0, 0,
      MCP_VERDICT_AUTH, ", credentials refused" },
    { S_ANSWER, 429, 429, 0, 0,
      MCP_VERDICT_LIMITED, ", too many requests" },

    /* texts about the session, and those that only look so */

    { S_ANSWER, 400, 400, T_EXISTS, 0,
      MCP_VERDICT_MISROUTE, ", it exists already" },
    { S_ANSWER, 403, 403, T_EXISTS, 0,
      MCP_VERDICT_MISROUTE, ", it exists already" },
    { S_ANSWER, 200, 999, F_SESSION|T_LOST, T_EXISTS,
      MCP_VERDICT_SESSION_LOST, ", the text says the session is lost" },
    { S_ANSWER, 200, 999, F_SESSION|F_READY|T_NOTINIT, T_EXISTS,
      MCP_VERDICT_SESSION_LOST, ", a ready session is not initialized" },
    { S_ANSWER, 200, 999, F_SESSION|T_NOTINIT, T_EXISTS,
      MCP_VERDICT_SESSION_SUSPECT, ", the session is not initialized" },

    /* our request is wrong, or the address */

    { S_ANSWER, 300, 399, 0, 0,
      MCP_VERDICT_MISROUTE, ", a redirect" },
    { S_ANSWER, 400, 400, F_VERSION, 0,
      MCP_VERDICT_MISROUTE, ", headers or version refused" },
    { S_ANSWER, 400, 400, T_ROUTE, 0,
      MCP_VERDICT_MISROUTE, ", headers or version refused" },
    { S_ANSWER, 403, 403, T_ROUTE, 0,
      MCP_VERDICT_MISROUTE, ", host or origin refused" },
    { S_ANSWER, 406, 406, 0, 0,
      MCP_VERDICT_MISROUTE, ", not acceptable" },
    { S_ANSWER, 409, 409, 0, 0,
      MCP_VERDICT_MISROUTE, ", a conflict" },
    { S_ANSWER, 415, 415, 0, 0,
      MCP_VERDICT_MISROUTE, ", unsupported media type" },
    { S_ANSWER, 421, 421, 0, 0,
      MCP_VERDICT_MISROUTE, ", misdirected request" },

    /* 403: bare, or about the session in words we do not know */

    { S_ANSWER, 403, 403, F_SESSION|F_BARE, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", without a reason" },
    { S_ANSWER, 403, 403, F_SESSION|T_SESSION, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", about the session" },
    { S_ANSWER, 403, 403, 0, 0,
      MCP_VERDICT_AUTH, ", forbidden" },

    /* 404 is how MCP says that a session is lost, but not only */

    { S_ANSWER, 404, 404, F_SESSION|F_RPC, 0,
      MCP_VERDICT_SESSION_LOST, ", JSON-RPC" },
    { S_ANSWER, 404, 404, F_SESSION|F_HTML, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", an HTML page" },
    { S_ANSWER, 404, 404, F_SESSION, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", no JSON-RPC" },

    /* the road ends at a gateway */

    { S_ANSWER, 503, 503, F_RETRY, 0,
      MCP_VERDICT_LIMITED, ", retry later" },
    { S_ANSWER, 502, 502, 0, F_RPC,
      MCP_VERDICT_PEER_DOWN, " from the server" },
    { S_ANSWER, 503, 503, 0, F_RPC,
      MCP_VERDICT_PEER_DOWN, " from the server" },
    { S_ANSWER, 504, 504, 0, F_RPC,
      MCP_VERDICT_PEER_DOWN, " from the server" },

    /* 2xx of the wrong kind, or cut off */

    { S_ANSWER, 200, 299, F_RESULT|F_WHOLE, 0,
      MCP_VERDICT_OK, ", JSON-RPC result" },
    { S_DONE,   200, 299, F_UNREAD|F_MCP, 0,
      MCP_VERDICT_OK, ", of an MCP media type" },
    { S_BODY,   200, 299, F_TIMEOUT, F_ERROR,
      MCP_VERDICT_TIMEOUT, NULL },
    { S_BODY,   200, 299, 0, F_ERROR,
      MCP_VERDICT_PEER_DOWN, NULL },
    { S_DONE,   200, 299, F_HTML, 0,
      MCP_VERDICT_MISROUTE, ", an HTML page" },
    { S_DONE,   200, 299, F_ENCODED, 0,
      MCP_VERDICT_BROKEN_REPLY, ", an encoded body" },
    { S_DONE,   200, 299, F_EMPTY, 0,
      MCP_VERDICT_BROKEN_REPLY, ", an empty body" },
    { S_DONE,   200, 299, 0, F_ERROR,
      MCP_VERDICT_BROKEN_REPLY, ", no JSON-RPC response" },

    /* a JSON-RPC error that is about the session, perhaps */

    { S_ANSWER, 200, 999, F_SESSION|T_SESSION, T_EXISTS,
      MCP_VERDICT_SESSION_SUSPECT, ", about the session" },
    { S_ANSWER, 200, 499, F_SESSION|F_INVALID, F_OURS,
      MCP_VERDICT_SESSION_SUSPECT, ", an invalid request" },

    /* any other error: the server answered */

    { S_ANSWER, 200, 299, F_ERROR, 0,
      MCP_VERDICT_OK, ", JSON-RPC error" },
    { S_ANSWER, 400, 400, F_SESSION|F_ERROR|F_OURS, 0,
      MCP_VERDICT_OK, ", JSON-RPC error" },
    { S_ANSWER, 400, 400, F_SESSION, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", bad request" },
    { S_ANSWER, 400, 400, 0, 0,
      MCP_VERDICT_MISROUTE, ", bad request" },
    { S_ANSWER, 401, 999, F_ERROR|F_OURS, 0,
      MCP_VERDICT_OK, ", JSON-RPC error" },
    { S_ANSWER, 503, 503, F_ERROR, 0,
      MCP_VERDICT_LIMITED, ", JSON-RPC error" },

    /* no word from MCP */

    { S_ANSWER, 401, 499, F_SESSION|F_RPC, 0,
      MCP_VERDICT_SESSION_SUSPECT, ", JSON-RPC" },
    { S_ANSWER, 400, 499, 0, 0,
      MCP_VERDICT_MISROUTE, ", no JSON-RPC" },
    { S_ANSWER, 500, 599, F_SESSION, 0,
      MCP_VERDICT_SESSION_SUSPECT, " from the server" },

    { S_ANSWER,   0, 999, 0, 0,
      MCP_VERDICT_BROKEN_REPLY, " from the server" }
};


static const struct {
    const char         *name;
    mcp_effect_t        effect;
} mcp_verdicts[MCP_VERDICT_N] = {
    { "ok",              MCP_EFFECT_PROOF   },
    { "unsupported",     MCP_EFFECT_PROOF   },
    { "session_lost",    MCP_EFFECT_REACH   },
    { "session_suspect", MCP_EFFECT_REACH   },
    { "auth",            MCP_EFFECT_REACH   },
    { "limited",         MCP_EFFECT_REACH   },
    { "misroute",        MCP_EFFECT_REACH   },
    { "broken_reply",    MCP_EFFECT_REACH   },
    { "timeout",         MCP_EFFECT_FAILURE },
    { "peer_down",       MCP_EFFECT_FAILURE },
    { "local",           MCP_EFFECT_NOTHING }
};


/* how a cut-off road is told, by stage: with the deadline passed, without */

static const char *const  mcp_stages[][2] = {
    { "timed out",
      "not sent: no connection was made on our side" },
    { "timed out on our side",
      "not sent: no connection was made on our side" },
    { "timed out while connecting",
      "connection failed" },
    { "timed out in the TLS handshake",
      "TLS handshake failed" },
    { "timed out while waiting for the response header",
      "connection closed before the response header" },
    { "timed out while reading the body",
      "connection closed inside the body" }
};


/* where nginx begins to tell the context, addresses and request included */

static const char *const  mcp_contexts[] = {
    " while ",
    ", client:",
    ", server:",
    ", request:",
    ", subrequest:",
    ", upstream:",
    ", host:",
    ", referrer:",
    ": \"",                         /* the peer's own bytes are quoted */
    NULL
};


mcp_verdict_t
mcp_classify(const mcp_facts_t *f, char *reason)
{
    unsigned           flags, stage;
    const mcp_rule_t  *rule, *last;

    flags = mcp_classify_flags(f);
    stage = 1u << f->stage;

    /* the last row fits anything */

    last = mcp_rules + sizeof(mcp_rules) / sizeof(mcp_rules[0]) - 1;

    for (rule = mcp_rules; rule < last; rule++) {

        if ((rule->stages & stage)
            && f->status >= rule->low && f->status <= rule->high
            && (flags & rule->with) == rule->with
            && (flags & rule->without) == 0)
        {
            break;
        }
    }

    mcp_classify_reason(f, rule, flags, reason);

    return rule->verdict;
}


mcp_effect_t
mcp_verdict_effect(mcp_verdict_t v)
{
    return ((unsigned) v < MCP_VERDICT_N) ? mcp_verdicts[v].effect
                                          : MCP_EFFECT_NOTHING;
}


const char *
mcp_verdict_name(mcp_verdict_t v)
{
    return ((unsigned) v < MCP_VERDICT_N) ? mcp_verdicts[v].name : "unknown";
}


static unsigned
mcp_classify_flags(const mcp_facts_t *f)
{
    unsigned  flags;

    flags = (f->session ? F_SESSION : 0)
            | (f->ready ? F_READY : 0)
            | (f->timedout ? F_TIMEOUT : 0)
            | (f->retry_after ? F_RETRY : 0)
            | (f->encoded ? F_ENCODED : 0);

    if (f->media == MCP_MEDIA_HTML) {
        flags |= F_HTML;
    }

    if (f->media == MCP_MEDIA_JSON || f->media == MCP_MEDIA_SSE) {
        flags |= F_MCP;
    }

    if (f->answer == NULL) {
        flags |= F_UNREAD;

    } else if (f->answer->empty) {
        flags |= F_EMPTY;
    }

    flags |= mcp_classify_rpc(f, flags);

    return flags | mcp_classify_texts(f, flags);
}


static unsigned
mcp_classify_rpc(const mcp_facts_t *f, unsigned flags)
{
    unsigned                 rpc;
    const mcp_rpc_answer_t  *a;

    a = f->answer;

    /* a 2xx answer has to come as what MCP says it is */

    if (a == NULL || f->encoded || (f->status < 300 && !(flags & F_MCP))) {
        return 0;
    }

    rpc = (a->object || a->kind != MCP_RPC_NOTHING) ? F_RPC : 0;

    if (a->kind == MCP_RPC_NOTHING) {
        return rpc;
    }

    if (a->id == MCP_RPC_ID_OURS) {
        rpc |= F_OURS;
    }

    if (a->kind == MCP_RPC_RESULT) {
        rpc |= F_RESULT;

        /*
         * A long result is good by its head, also if it is still flowing when
         * our time is up, but not if the peer broke it off.
         */

        if (!a->too_big || f->stage == MCP_STAGE_DONE || f->timedout) {
            rpc |= F_WHOLE;
        }

        return rpc;
    }

    switch (a->code) {

    case -32601:
        rpc |= F_NOMETHOD;
        break;

    case -32600:
        rpc |= F_INVALID;
        break;

    case -32020:
    case -32022:
        rpc |= F_VERSION;
        break;
    }

    return rpc | F_ERROR;
}


static unsigned
mcp_classify_texts(const mcp_facts_t *f, unsigned flags)
{
    size_t       len;
    unsigned     found;
    const char  *text;

    if (flags & F_ERROR) {
        text = f->answer->message;
        len = strlen(text);

    } else if ((flags & (F_RPC|F_HTML|F_ENCODED)) || f->head == NULL
               || f->head_len == 0 || f->head[0] == '<')
    {
        return (flags & F_RPC) ? 0 : F_BARE;

    } else if (f->status >= 400) {
        text = f->head;
        len = f->head_len < CLASSIFY_HEAD_MAX ? f->head_len
                                              : CLASSIFY_HEAD_MAX;
    } else {
        return 0;
    }

    found = mcp_phrases_find(text, len);

    /* a web server's own page may say so as well */

    if (!(flags & F_ERROR)) {
        found &= ~T_NOMETHOD;
    }

    if (f->phrases != NULL && mcp_text_find_any(text, len, f->phrases)) {
        found |= T_LOST;
    }

    return found;
}


static void
mcp_classify_reason(const mcp_facts_t *f, const mcp_rule_t *rule,
    unsigned flags, char *reason)
{
    int   n;
    char  message[MCP_RPC_MESSAGE_MAX];

    if (rule->why == NULL) {
        mcp_classify_stage(f, reason);
        return;
    }

    if (f->answer == NULL || !(flags & F_ERROR)) {
        n = snprintf(reason, MCP_REASON_MAX, "HTTP %d%s", f->status,
                     rule->why);

        if (rule->verdict == MCP_VERDICT_OK && f->answer != NULL) {
            (void) snprintf(reason + n, MCP_REASON_MAX - n, "%s%s",
                            (flags & F_OURS) ? "" : ", not with our id",
                            f->answer->too_big ? ", seen by its head" : "");
        }

        return;
    }

    mcp_text_redact(message, sizeof(message), f->answer->message,
                    strlen(f->answer->message));

    (void) snprintf(reason, MCP_REASON_MAX, "HTTP %d, JSON-RPC error %lld%s%s",
                    f->status, f->answer->code,
                    message[0] == '\0' ? "" : ": ", message);
}


/* The road broke: what nginx knows about it, else what the stage tells. */

static void
mcp_classify_stage(const mcp_facts_t *f, char *reason)
{
    size_t       len;
    const char  *error;

    error = f->timedout ? NULL : f->error;

    len = (error == NULL) ? 0 : mcp_classify_cut(error);

    if (len == 0) {
        error = mcp_stages[f->stage][!f->timedout];
        len = strlen(error);
    }

    mcp_text_clean(reason, MCP_REASON_MAX, error, len);
}


/* How much of a line of nginx's error log is the error itself. */

static size_t
mcp_classify_cut(const char *error)
{
    size_t             len, n;
    const char        *p;
    const char *const *c;

    len = strlen(error);

    for (c = mcp_contexts; *c != NULL; c++) {

        p = strstr(error, *c);
        n = (p == NULL) ? len : (size_t) (p - error);

        if (n < len) {
            len = n;
        }
    }

    while (len != 0 && (error[len - 1] == ' ' || error[len - 1] == ',')) {
        len--;
    }

    return len;
}
