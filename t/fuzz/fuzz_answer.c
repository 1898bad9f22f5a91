
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Whole answers of servers, from the bytes to the verdict.  Three bytes: the
 * circumstances, the status, a seed of the splits; then the media type, up to a
 * zero byte; then the body.  Control characters stand for words.
 */


#include "fuzz.h"
#include "mcp_classify.h"


#define ID        "mcpka-7f"
#define SECRET    "0e285a32-5e48-4180-991d-b721777c00e1"
#define BODY_MAX  (100 * 1024)
#define NOISE     ": hi\n\n"


typedef struct {
    mcp_verdict_t       verdict;
    mcp_rpc_answer_t    answer;
    mcp_stage_t         stage;
    char                reason[MCP_REASON_MAX];
} outcome_t;


static const fuzz_word_t  words[] = {
    { 0x01, "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":{", 0 },
    { 0x02, "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"error\":{\"code\":", 0 },
    { 0x03, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":", 0 },
    { 0x04, ",\"message\":\"", 0 },
    { 0x05, "}}", 0 },
    { 0x06, "\"}}", 0 },
    { 0x07, "-32600", 0 },
    { 0x08, "-32601", 0 },
    { 0x0b, "-32001", 0 },
    { 0x0c, "Session not found", 0 },
    { 0x0e, "session", 0 },
    { 0x0f, "Method not found", 0 },
    { 0x10, "already exists", 0 },
    { 0x11, "not initialized", 0 },
    { 0x12, "data: ", 0 },
    { 0x13, "event: message\n", 0 },
    { 0x14, "\n\n", 0 },
    { 0x15, "\xef\xbb\xbf", 0 },
    { 0x16, "{\"jsonrpc\":\"2.0\",\"method\":\"n\"}", 0 },
    { 0x17, "<!doctype html><html><body>", 0 },
    { 0x18, SECRET, 0 },
    { 0x19, "Bearer " SECRET, 0 },
    { 0x1a, "application/json", 0 },
    { 0x1b, "text/event-stream", 0 },
    { 0x1c, "text/html", 0 },
    { 0x1d, "", 5000 },
    { 0x1e, "", 33000 },
    { 0x1f, "teapot gone", 0 },
    { 0x00, NULL, 0 }
};


static const int  statuses[] = {
    200, 404, 400, 403, 401, 405, 406, 409, 410, 415, 421, 429, 500, 501, 502,
    503, 504, 202, 204, 301, 0, 99, 599, 999
};


static const char *const  phrases[] = { "teapot*gone", NULL };


/* One answer, in pieces of at most "step" bytes (0: whole), to its verdict. */

static void
answer(outcome_t *o, mcp_facts_t f, long long length, const char *before,
    const char *body, size_t len, uint32_t seed, uint32_t step)
{
    char              *piece;
    size_t             n, at;
    mcp_rpc_rc_t       rc;
    mcp_rpc_reader_t  *r;

    rc = MCP_RPC_AGAIN;

    r = mcp_rpc_reader_create(f.media, ID, length);
    FUZZ_CHECK(r != NULL);

    if (before[0] != '\0') {
        (void) mcp_rpc_reader_feed(r, (const unsigned char *) before,
                                   strlen(before));
    }

    /* as the module does, nothing is read after the answer */

    for (at = 0; at < len && rc != MCP_RPC_DONE; at += n) {

        n = step ? 1 + fuzz_random(&seed) % step : len;
        n = (n < len - at) ? n : len - at;

        piece = fuzz_copy(body + at, n);
        rc = mcp_rpc_reader_feed(r, (unsigned char *) piece, n);
        free(piece);
    }

    mcp_rpc_reader_finish(r, &o->answer);

    if (rc == MCP_RPC_DONE) {
        f.stage = MCP_STAGE_DONE;
        f.timedout = 0;
    }

    f.answer = &o->answer;
    f.head_len = MCP_RPC_HEAD_MAX;
    f.head = mcp_rpc_reader_head(r, &f.head_len);

    o->stage = f.stage;
    o->verdict = mcp_classify(&f, o->reason);

    mcp_rpc_reader_destroy(r);
}


static void
check_outcome(const outcome_t *o, const mcp_facts_t *f)
{
    int           success, typed;
    const char   *p;
    mcp_effect_t  effect;

    success = (f->status >= 200 && f->status <= 299);
    typed = (f->media == MCP_MEDIA_JSON || f->media == MCP_MEDIA_SSE);
    effect = mcp_verdict_effect(o->verdict);

    for (p = o->reason; *p != '\0'; p++) {
        FUZZ_CHECK(*p >= 0x20 && *p <= 0x7e && *p != '"');
        FUZZ_CHECK(p < o->reason + MCP_REASON_MAX);
    }

    FUZZ_CHECK(p != o->reason);
    FUZZ_CHECK(strstr(o->reason, SECRET) == NULL);

    /* a result of the right type is one, whatever stands in it */

    if (success && typed && o->answer.kind == MCP_RPC_RESULT
        && o->answer.id == MCP_RPC_ID_OURS && o->stage == MCP_STAGE_DONE)
    {
        FUZZ_CHECK(o->verdict == MCP_VERDICT_OK);
    }

    /* ... and nothing else is a proof but a word of MCP */

    FUZZ_CHECK(o->verdict != MCP_VERDICT_OK
               || o->answer.kind != MCP_RPC_NOTHING);

    /* a body of 2xx that is no JSON-RPC says nothing about the session */

    if (success && o->answer.kind == MCP_RPC_NOTHING) {
        FUZZ_CHECK(effect != MCP_EFFECT_PROOF);
        FUZZ_CHECK(o->verdict != MCP_VERDICT_SESSION_LOST);
        FUZZ_CHECK(o->verdict != MCP_VERDICT_SESSION_SUSPECT);
    }

    if (!f->session) {
        FUZZ_CHECK(o->verdict != MCP_VERDICT_SESSION_LOST);
        FUZZ_CHECK(o->verdict != MCP_VERDICT_SESSION_SUSPECT);
    }

    /* who gave a whole answer is not down, but gateways */

    if (o->stage == MCP_STAGE_DONE && f->status >= 200 && f->status < 500) {
        FUZZ_CHECK(effect == MCP_EFFECT_PROOF || effect == MCP_EFFECT_REACH);
    }

    /* only 404 and texts tell of a lost session */

    if (o->verdict == MCP_VERDICT_SESSION_LOST && f->status != 404
        && o->answer.kind == MCP_RPC_ERROR)
    {
        FUZZ_CHECK(o->answer.message[0] != '\0');
    }

    if (o->answer.kind == MCP_RPC_ERROR && o->answer.code == -32601
        && f->status >= (typed ? 200 : 300))
    {
        FUZZ_CHECK(o->verdict == MCP_VERDICT_UNSUPPORTED);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int               stream;
    char             *body;
    size_t            len, n;
    uint32_t          seed;
    unsigned          flags;
    long long         length;
    mcp_facts_t       f;
    const uint8_t    *end;
    fuzz_input_t      in;

    static char       text[BODY_MAX], type[256];
    static outcome_t  whole, parts, noisy;

    in.p = data;
    in.last = data + size;

    memset(&f, 0, sizeof(f));

    flags = (unsigned) fuzz_number(&in, 1);
    f.session = flags & 1;
    f.ready = (flags >> 1) & 1;
    f.timedout = (flags >> 2) & 1;
    f.retry_after = (flags >> 3) & 1;
    f.ping = (flags >> 4) & 1;
    f.stage = (flags & 0x20) ? MCP_STAGE_BODY : MCP_STAGE_DONE;
    f.phrases = (flags & 0x40) ? phrases : NULL;

    n = (unsigned) fuzz_number(&in, 1);
    f.status = (n < sizeof(statuses) / sizeof(statuses[0]))
               ? statuses[n] : (int) (n * 5 % 1000);

    seed = 1 + (uint32_t) fuzz_number(&in, 1);

    end = memchr(in.p, '\0', in.last - in.p);
    if (end == NULL) {
        end = in.last;
    }

    n = fuzz_expand(type, sizeof(type), in.p, end - in.p, words);
    in.p = (end < in.last) ? end + 1 : end;

    f.media = mcp_rpc_media(type, n);
    stream = (f.media == MCP_MEDIA_SSE);

    len = fuzz_expand(text, BODY_MAX, in.p, in.last - in.p, words);
    body = fuzz_copy(text, len);

    length = (flags & 0x80) ? (long long) len : -1;

    answer(&whole, f, length, "", body, len, seed, 0);
    check_outcome(&whole, &f);

    /* the cuts of the network change nothing */

    answer(&parts, f, length, "", body, len, seed, (len < 2000) ? 5 : 3000);
    check_outcome(&parts, &f);

    FUZZ_CHECK(parts.verdict == whole.verdict);
    FUZZ_CHECK(strcmp(parts.reason, whole.reason) == 0);

    /* nor does what stands before the answer and means nothing */

    if (whole.answer.kind != MCP_RPC_NOTHING && len < 60000
        && (len < 3 || memcmp(body, "\xef\xbb\xbf", 3) != 0))
    {
        n = stream ? strlen(NOISE) : 2;

        answer(&noisy, f, (length < 0) ? -1 : length + (long long) n,
               stream ? NOISE : "\r\n", body, len, seed, 0);

        FUZZ_CHECK(noisy.verdict == whole.verdict);
        FUZZ_CHECK(strcmp(noisy.reason, whole.reason) == 0);
    }

    free(body);

    return 0;
}
