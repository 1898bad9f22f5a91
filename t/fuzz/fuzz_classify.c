
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Facts and verdicts.  A few bytes of facts, then three texts that a zero byte
 * ends: the message of an error, the head of the body, nginx's own line.
 * Control characters stand for words.
 */


#include "fuzz.h"
#include "mcp_classify.h"


#define TEXT_MAX  10000
#define SECRET    "0e285a32-5e48-4180-991d-b721777c00e1"


static const fuzz_word_t  words[] = {
    { 0x01, SECRET, 0 },
    { 0x02, "Bearer " SECRET, 0 },
    { 0x03, "session", 0 },
    { 0x04, " not found", 0 },
    { 0x05, "Session ID is required", 0 },
    { 0x06, "not initialized", 0 },
    { 0x07, "already exists", 0 },
    { 0x08, "host or origin", 0 },
    { 0x0b, "Unsupported protocol version", 0 },
    { 0x0c, "Method not found", 0 },
    { 0x0e, "unknown or expired session", 0 },
    { 0x0f, "no longer valid", 0 },
    { 0x10, "<html>", 0 },
    { 0x11, " while connecting to upstream, client: 127.0.0.1", 0 },
    { 0x12, "connect() failed (111: Connection refused)", 0 },
    { 0x13, "upstream sent invalid header: \"", 0 },
    { 0x14, "SSL_do_handshake() failed (SSL: error:0A000086)", 0 },
    { 0x15, "\xe5\x8c\x97", 0 },
    { 0x16, "teapot gone", 0 },
    { 0x17, "", 200 },
    { 0x18, "", 8200 },
    { 0x19, "\x01\x7f", 0 },
    { 0x1a, "invalid ", 0 },
    { 0x00, NULL, 0 }
};


static const int  statuses[] = {
    0, 99, 200, 202, 204, 299, 301, 400, 401, 403, 404, 405, 406, 409, 410,
    415, 421, 429, 499, 500, 501, 502, 503, 504, 599, 999
};


static const long long  codes[] = {
    0, -32601, -32600, -32001, -32002, -32000, -32020, -32022, -32602, -32603,
    404, 9007199254740992LL, -9007199254740992LL
};


static const char *const  phrases[] = { "teapot*gone", "unknown or", NULL };


static char *
next_text(fuzz_input_t *in, size_t *len)
{
    char           *text;
    const uint8_t  *end;

    static char     buf[TEXT_MAX];

    end = memchr(in->p, '\0', in->last - in->p);
    if (end == NULL) {
        end = in->last;
    }

    *len = fuzz_expand(buf, TEXT_MAX - 1, in->p, end - in->p, words);
    buf[*len] = '\0';

    text = fuzz_copy(buf, *len + 1);

    in->p = (end < in->last) ? end + 1 : end;

    return text;
}


static void
check_reason(const char *reason, int secrets)
{
    const char  *p;

    FUZZ_CHECK(memchr(reason, '\0', MCP_REASON_MAX) != NULL);
    FUZZ_CHECK(reason[0] != '\0');

    for (p = reason; *p != '\0'; p++) {
        FUZZ_CHECK(*p >= 0x20 && *p <= 0x7e && *p != '"');
    }

    /* never the bare status */

    FUZZ_CHECK(strncmp(reason, "HTTP ", 5) != 0
               || reason[5 + strspn(reason + 5, "0123456789")] != '\0');

    /* nginx's own line holds none, or they stand in what is cut off */

    FUZZ_CHECK(secrets || strstr(reason, SECRET) == NULL);
}


static void
check_verdict(const mcp_facts_t *f, mcp_verdict_t v)
{
    mcp_effect_t  effect;

    FUZZ_CHECK((unsigned) v < MCP_VERDICT_N);
    FUZZ_CHECK(strcmp(mcp_verdict_name(v), "unknown") != 0);

    effect = mcp_verdict_effect(v);

    FUZZ_CHECK((effect == MCP_EFFECT_FAILURE)
               == (v == MCP_VERDICT_TIMEOUT || v == MCP_VERDICT_PEER_DOWN));
    FUZZ_CHECK((effect == MCP_EFFECT_PROOF)
               == (v == MCP_VERDICT_OK || v == MCP_VERDICT_UNSUPPORTED));

    if (!f->session) {
        FUZZ_CHECK(v != MCP_VERDICT_SESSION_LOST);
        FUZZ_CHECK(v != MCP_VERDICT_SESSION_SUSPECT);
    }

    switch (f->stage) {

    case MCP_STAGE_LOCAL:
        FUZZ_CHECK(v == MCP_VERDICT_LOCAL);
        break;

    case MCP_STAGE_CONNECT:
    case MCP_STAGE_TLS:
    case MCP_STAGE_HEADER:
        FUZZ_CHECK(v == (f->timedout ? MCP_VERDICT_TIMEOUT
                                     : MCP_VERDICT_PEER_DOWN));
        break;

    default:
        FUZZ_CHECK(v != MCP_VERDICT_LOCAL || f->status < 100);

        /* without a word of MCP only the headers of a 2xx are a proof */

        if (f->answer == NULL || f->answer->kind == MCP_RPC_NOTHING) {
            FUZZ_CHECK(effect != MCP_EFFECT_PROOF
                       || (f->status >= 200 && f->status <= 299)
                       || (f->status == 405 || f->status == 501
                           || f->status == 404));
        }

        /* a failure is never charged to a peer that gave a whole answer */

        if (f->status >= 200 && f->status < 500
            && f->stage == MCP_STAGE_DONE)
        {
            FUZZ_CHECK(effect != MCP_EFFECT_FAILURE);
        }
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char              *message, *head, *error, *exact, *reason, *again;
    size_t             len, head_len;
    unsigned           flags, n;
    mcp_facts_t        f;
    mcp_verdict_t      v;
    fuzz_input_t       in;
    mcp_rpc_answer_t   a;

    in.p = data;
    in.last = data + size;

    memset(&f, 0, sizeof(f));
    memset(&a, 0, sizeof(a));

    f.stage = (mcp_stage_t) (fuzz_number(&in, 1) % (MCP_STAGE_BODY + 1));

    flags = (unsigned) fuzz_number(&in, 2);
    f.session = flags & 1;
    f.ready = (flags >> 1) & 1;
    f.timedout = (flags >> 2) & 1;
    f.pooled = (flags >> 3) & 1;
    f.encoded = (flags >> 4) & 1;
    f.retry_after = (flags >> 5) & 1;
    f.ping = (flags >> 6) & 1;
    a.json = (flags >> 7) & 1;
    a.object = (flags >> 8) & 1;
    a.too_big = (flags >> 9) & 1;
    a.empty = (flags >> 10) & 1;

    n = (unsigned) fuzz_number(&in, 1);
    f.status = (n < sizeof(statuses) / sizeof(statuses[0]))
               ? statuses[n] : (int) (n * 5 % 1000);

    n = (unsigned) fuzz_number(&in, 1);
    f.media = (mcp_media_t) (n % (MCP_MEDIA_OTHER + 1));

    n = (unsigned) fuzz_number(&in, 1);
    a.kind = (mcp_rpc_kind_t) (n % (MCP_RPC_ERROR + 1));
    a.id = (mcp_rpc_id_t) (n / 3 % (MCP_RPC_ID_FOREIGN + 1));
    a.code = codes[fuzz_number(&in, 1) % (sizeof(codes) / sizeof(codes[0]))];

    message = next_text(&in, &len);
    head = next_text(&in, &head_len);
    error = next_text(&in, &len);

    /* as the reader leaves it */

    if (a.kind == MCP_RPC_ERROR) {
        len = strlen(message);
        len = (len < MCP_RPC_MESSAGE_MAX) ? len : MCP_RPC_MESSAGE_MAX - 1;
        memcpy(a.message, message, len);

    } else {
        a.code = 0;
    }

    exact = fuzz_copy(head, head_len);
    reason = fuzz_copy(NULL, MCP_REASON_MAX);
    again = fuzz_copy(NULL, MCP_REASON_MAX);

    f.answer = (flags & 0x800) ? NULL : &a;
    f.head = (flags & 0x1000) ? NULL : exact;
    f.head_len = (flags & 0x1000) ? 0 : head_len;
    f.error = (flags & 0x2000) ? NULL : error;
    f.phrases = (flags & 0x4000) ? phrases : NULL;

    v = mcp_classify(&f, reason);

    check_verdict(&f, v);
    check_reason(reason, f.error != NULL && strstr(error, SECRET) != NULL);

    FUZZ_CHECK(mcp_classify(&f, again) == v && strcmp(reason, again) == 0);

    /* how the connection came about is for the caller to know */

    f.pooled = !f.pooled;
    FUZZ_CHECK(mcp_classify(&f, again) == v && strcmp(reason, again) == 0);

    free(again);
    free(reason);
    free(exact);
    free(error);
    free(head);
    free(message);

    return 0;
}
