
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Answers, and the bodies of clients.  The first byte tells the media type and
 * the length announced, the second one seeds the splits, the rest is the body
 * (control characters stand for words).
 */


#include <jansson.h>

#include "fuzz.h"
#include "mcp_accept.h"
#include "mcp_modern.h"
#include "mcp_rpc.h"
#include "mcp_rpc_head.h"
#include "mcp_rpc_subject.h"


#define ID        "mcpka-7f"
#define BODY_MAX  (100 * 1024)


typedef struct {
    mcp_rpc_answer_t    answer;
    mcp_rpc_rc_t        rc;
    size_t              head_len;
    char                head[2048];
} outcome_t;


static const fuzz_word_t  words[] = {
    { 0x01, "\"jsonrpc\":\"2.0\",", 0 },
    { 0x02, "\"id\":\"" ID "\"", 0 },
    { 0x03, "\"id\":", 0 },
    { 0x04, "\"result\":", 0 },
    { 0x05, "\"error\":{\"code\":", 0 },
    { 0x06, "-32001", 0 },
    { 0x07, "-32601", 0 },
    { 0x08, "\"message\":\"", 0 },
    { 0x0b, "Session not found", 0 },
    { 0x0c, "\"method\":\"initialize\"", 0 },
    { 0x0e, "\"method\":\"", 0 },
    { 0x0f, "null", 0 },
    { 0x10, "{\"jsonrpc\":\"2.0\",\"id\":\"" ID "\",\"result\":{", 0 },
    { 0x11, "{\"jsonrpc\":\"2.0\",\"method\":\"n\"}", 0 },
    { 0x12, "data: ", 0 },
    { 0x13, "\r\n\r\n", 0 },
    { 0x14, "\n\n", 0 },
    { 0x15, "\xef\xbb\xbf", 0 },
    { 0x16, "\xe5\x8c\x97", 0 },
    { 0x17, "\\u0000", 0 },
    { 0x18, "\\\"", 0 },
    { 0x19, "[[[[[[[[[[[[[[[[", 0 },
    { 0x1a, "]]]]]]]]]]]]]]]]", 0 },
    { 0x1b, "18446744073709551615", 0 },
    { 0x1c, "Bearer eyJhbGciOiJIUzI1NiJ9", 0 },
    { 0x1d, "", 5000 },
    { 0x1e, "", 33000 },
    { 0x1f, "\x01", 0 },
    { 0x00, NULL, 0 }
};


static void
read_in_pieces(outcome_t *o, mcp_media_t media, long long length,
    const char *body, size_t len, uint32_t seed, uint32_t step)
{
    char              *piece;
    size_t             n, at;
    const char        *head;
    mcp_rpc_rc_t       rc;
    mcp_rpc_reader_t  *r;

    o->rc = MCP_RPC_AGAIN;

    r = mcp_rpc_reader_create(media, ID, length);
    FUZZ_CHECK(r != NULL);

    for (at = 0; at < len; at += n) {

        n = step ? 1 + fuzz_random(&seed) % step : len;
        n = (n < len - at) ? n : len - at;

        piece = fuzz_copy(body + at, n);
        rc = mcp_rpc_reader_feed(r, (unsigned char *) piece, n);
        free(piece);

        FUZZ_CHECK(rc == MCP_RPC_AGAIN || rc == MCP_RPC_DONE);
        FUZZ_CHECK(rc == MCP_RPC_DONE || o->rc == MCP_RPC_AGAIN);
        o->rc = rc;
    }

    mcp_rpc_reader_finish(r, &o->answer);

    o->head_len = sizeof(o->head);
    head = mcp_rpc_reader_head(r, &o->head_len);

    FUZZ_CHECK(head != NULL && o->head_len <= sizeof(o->head));
    FUZZ_CHECK(o->head_len <= len);
    FUZZ_CHECK(memcmp(head, body, o->head_len) == 0);
    memcpy(o->head, head, o->head_len);

    mcp_rpc_reader_destroy(r);
}


static void
check_same(const outcome_t *x, const outcome_t *y, int stream)
{
    const mcp_rpc_answer_t  *a, *b;

    a = &x->answer;
    b = &y->answer;

    FUZZ_CHECK(x->rc == y->rc);
    FUZZ_CHECK(a->kind == b->kind && a->id == b->id && a->code == b->code);
    FUZZ_CHECK(strcmp(a->message, b->message) == 0);
    FUZZ_CHECK(a->others == b->others && a->json == b->json);
    FUZZ_CHECK(a->object == b->object && a->too_big == b->too_big);
    FUZZ_CHECK(a->empty == b->empty);

    /* the head of a stream ends somewhere after the answer */

    FUZZ_CHECK(stream || x->head_len == y->head_len);
}


static void
check_answer(const outcome_t *o, int stream, size_t len)
{
    const char              *p;
    const mcp_rpc_answer_t  *a;

    a = &o->answer;

    FUZZ_CHECK(a->empty == (len == 0));
    FUZZ_CHECK(!a->object || a->json || a->too_big || stream);
    FUZZ_CHECK(a->kind != MCP_RPC_NOTHING
               || (a->id == MCP_RPC_ID_MISSING && a->code == 0));
    FUZZ_CHECK(a->kind == MCP_RPC_ERROR
               || (a->code == 0 && a->message[0] == '\0'));
    FUZZ_CHECK((o->rc == MCP_RPC_DONE)
               == (stream && a->kind != MCP_RPC_NOTHING));
    FUZZ_CHECK(!stream || a->kind == MCP_RPC_NOTHING
               || a->id != MCP_RPC_ID_FOREIGN);

    FUZZ_CHECK(memchr(a->message, '\0', MCP_RPC_MESSAGE_MAX) != NULL);

    for (p = a->message; *p != '\0'; p++) {
        FUZZ_CHECK(*p >= 0x20 && *p <= 0x7e && *p != '"' && *p != '\\');
    }

    FUZZ_CHECK(strstr(a->message, "eyJhbGciOiJIUzI1NiJ9") == NULL);
}


/*
 * The walk over a message's head finds the same members that a parser does,
 * if the whole message is there.  Escapes in names it leaves alone.
 */

static void
check_head(const char *body, size_t len)
{
    size_t           n;
    json_t          *root, *msg, *id;
    mcp_rpc_head_t   h;

    mcp_rpc_head_scan(&h, (unsigned char *) body, len, ID);

    if (h.whole) {
        for (n = len; strchr(" \t\r\n", body[n - 1]) != NULL; n--) {
            /* void */
        }

        FUZZ_CHECK(body[n - 1] == '}');
    }

    if (memchr(body, '\\', len) != NULL) {
        return;
    }

    root = json_loadb(body, len, JSON_REJECT_DUPLICATES|JSON_DECODE_INT_AS_REAL,
                      NULL);
    if (root == NULL) {
        return;
    }

    msg = json_is_array(root) ? json_array_get(root, 0) : root;

    FUZZ_CHECK(h.whole == (json_object_size(root) != 0));
    FUZZ_CHECK(h.jsonrpc == (json_object_get(msg, "jsonrpc") != NULL));
    FUZZ_CHECK(h.result == (json_object_get(msg, "result") != NULL));
    FUZZ_CHECK(h.method == (json_object_get(msg, "method") != NULL));

    id = json_object_get(msg, "error");
    FUZZ_CHECK(h.error == (id != NULL && !json_is_null(id)));

    id = json_object_get(msg, "id");

    if (id == NULL) {
        FUZZ_CHECK(h.id == MCP_RPC_ID_MISSING);

    } else if (json_is_null(id)) {
        FUZZ_CHECK(h.id == MCP_RPC_ID_NULL);

    } else if (json_is_string(id) && strcmp(json_string_value(id), ID) == 0) {
        FUZZ_CHECK(h.id == MCP_RPC_ID_OURS);

    } else {
        FUZZ_CHECK(h.id == MCP_RPC_ID_FOREIGN);
    }

    json_decref(root);
}


/* What is built is one JSON text, whatever the id. */

static void
check_build(const char *body, size_t len)
{
    char    *id, *buf;
    size_t   n, size;
    json_t  *msg;

    n = (len < MCP_RPC_ID_MAX) ? len : MCP_RPC_ID_MAX - 1;
    id = fuzz_copy(NULL, n + 1);
    memcpy(id, body, n);
    id[n] = '\0';

    size = 512 - len % 512;
    buf = fuzz_copy(NULL, size);

    n = mcp_rpc_build(buf, size, "ping", id, (len % 2) ? "2026-07-28" : NULL);
    FUZZ_CHECK(n <= size);

    if (n != 0) {
        msg = json_loadb(buf, n, 0, NULL);
        FUZZ_CHECK(msg != NULL);
        FUZZ_CHECK(strcmp(json_string_value(json_object_get(msg, "id")), id)
                   == 0);
        json_decref(msg);
    }

    free(buf);
    free(id);
}


/* Words are words, of a whole body and of one that is cut. */

static void
check_subject(const char *body, size_t len)
{
    size_t             i, n;
    mcp_rpc_subject_t  s, word;

    for (i = 0; i < 2; i++) {
        mcp_rpc_subject(&s, (const unsigned char *) body, len, i);

        n = strlen(s.method);
        FUZZ_CHECK(n <= MCP_RPC_WORD_MAX);
        FUZZ_CHECK(mcp_rpc_word(word.method, s.method, n) == n);

        n = strlen(s.name);
        FUZZ_CHECK(n <= MCP_RPC_WORD_MAX);
        FUZZ_CHECK(mcp_rpc_word(word.name, s.name, n) == n);
        FUZZ_CHECK(n == 0 || s.method[0] != '\0');
    }

    (void) mcp_modern_is(body, len);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int               stream;
    char             *body;
    size_t            len;
    uint32_t          seed;
    unsigned          mode;
    long long         length;
    mcp_media_t       media;
    fuzz_input_t      in;

    static char       text[BODY_MAX];
    static outcome_t  whole, parts;

    in.p = data;
    in.last = data + size;

    mode = (unsigned) fuzz_number(&in, 1);
    seed = 1 + (uint32_t) fuzz_number(&in, 1);

    len = fuzz_expand(text, BODY_MAX, in.p, in.last - in.p, words);
    body = fuzz_copy(text, len);

    media = (mode & 1) ? MCP_MEDIA_SSE : MCP_MEDIA_JSON;
    stream = (mode & 1);
    length = (mode & 2) ? (long long) len : (mode & 4) ? 100 : -1;

    read_in_pieces(&whole, media, length, body, len, seed, 0);
    check_answer(&whole, stream, len);

    read_in_pieces(&parts, media, length, body, len, seed,
                   (len < 2000) ? 5 : 3000);
    check_answer(&parts, stream, len);
    check_same(&whole, &parts, stream);

    /* announced, it is read whole; else it costs 64 KiB at most */

    if (!stream && (mode & 2)) {
        FUZZ_CHECK(!whole.answer.too_big);
    }

    if (!stream && !(mode & 2)) {
        FUZZ_CHECK(whole.answer.too_big || len < MCP_RPC_HEAD_MAX);
    }

    check_head(body, len);
    check_build(body, len);
    check_subject(body, len);

    (void) mcp_accept(body, len);

    (void) mcp_rpc_media(body, len);

    if (mcp_rpc_is_initialize((unsigned char *) body, len)) {
        FUZZ_CHECK(len <= MCP_RPC_HEAD_MAX);
        FUZZ_CHECK(whole.answer.kind == MCP_RPC_NOTHING);
    }

    free(body);

    return 0;
}
