
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#ifndef _GNU_SOURCE
#define _GNU_SOURCE     /* memmem(), which BSD has as well */
#endif

#include <string.h>
#include <jansson.h>

#include "mcp_rpc.h"
#include "mcp_rpc_json.h"
#include "mcp_text.h"


#define RPC_CLIENT_NAME     "ngx_mcp_keepalive_module"
#define RPC_CLIENT_VERSION  "0.1.0"
#define RPC_META            "io.modelcontextprotocol/"

#define RPC_BAD_VERSION     -32022


typedef struct {
    const char         *type;
    size_t              len;
    mcp_media_t         media;
} mcp_rpc_type_t;


#define rpc_type(type, media)  { type, sizeof(type) - 1, media }
#define rpc_has(data, len, text)                                              \
    (memmem(data, len, text, sizeof(text) - 1) != NULL)


static int mcp_rpc_lower(int c);
static int mcp_rpc_type_is(const char *value, size_t len,
    const mcp_rpc_type_t *t);
static json_t *mcp_rpc_params(const char *version);
static int mcp_rpc_judge_one(json_t *msg, const char *id, int stream,
    mcp_rpc_answer_t *a);
static mcp_rpc_id_t mcp_rpc_id(json_t *msg, const char *id);
static int mcp_rpc_rank(mcp_rpc_kind_t kind, mcp_rpc_id_t id);
static long long mcp_rpc_code(json_t *error);
static void mcp_rpc_version(json_t *error, char *version);


/* the first row that fits; a type that ends in a slash is a prefix */

static const mcp_rpc_type_t  mcp_rpc_types[] = {
    rpc_type("application/json",       MCP_MEDIA_JSON),
    rpc_type("text/event-stream",      MCP_MEDIA_SSE),
    rpc_type("text/html",              MCP_MEDIA_HTML),
    rpc_type("application/xhtml+xml",  MCP_MEDIA_HTML),
    rpc_type("text/",                  MCP_MEDIA_TEXT),
    { NULL, 0,                         MCP_MEDIA_OTHER }
};


mcp_media_t
mcp_rpc_media(const char *value, size_t len)
{
    const char            *end;
    const mcp_rpc_type_t  *t;

    if (value == NULL) {
        return MCP_MEDIA_NONE;
    }

    while (len != 0 && (*value == ' ' || *value == '\t')) {
        value++;
        len--;
    }

    end = (len == 0) ? NULL : memchr(value, ';', len);
    if (end != NULL) {
        len = end - value;
    }

    while (len != 0 && (value[len - 1] == ' ' || value[len - 1] == '\t')) {
        len--;
    }

    if (len == 0) {
        return MCP_MEDIA_NONE;
    }

    for (t = mcp_rpc_types; t->type != NULL; t++) {
        if (mcp_rpc_type_is(value, len, t)) {
            break;
        }
    }

    return t->media;
}


static int
mcp_rpc_type_is(const char *value, size_t len, const mcp_rpc_type_t *t)
{
    size_t  i;

    if (len < t->len || (len > t->len && t->type[t->len - 1] != '/')) {
        return 0;
    }

    if (memcmp(value, t->type, t->len) == 0) {
        return 1;
    }

    for (i = 0; i < t->len; i++) {
        if (mcp_rpc_lower(value[i]) != t->type[i]) {
            return 0;
        }
    }

    return 1;
}


static int
mcp_rpc_lower(int c)
{
    return (c >= 'A' && c <= 'Z') ? c | 0x20 : c;
}


size_t
mcp_rpc_build(char *buf, size_t size, const char *method, const char *id,
    const char *version)
{
    size_t   len;
    json_t  *msg;

    msg = json_pack("{s:s, s:s, s:s}", "jsonrpc", "2.0", "id", id,
                    "method", method);
    if (msg == NULL) {
        return 0;
    }

    if (version != NULL
        && json_object_set_new(msg, "params", mcp_rpc_params(version)) == -1)
    {
        json_decref(msg);
        return 0;
    }

    len = json_dumpb(msg, buf, size, JSON_COMPACT);

    json_decref(msg);

    return (len > size) ? 0 : len;
}


/* 2026-07-28: every request says who asks, and in which version */

static json_t *
mcp_rpc_params(const char *version)
{
    return json_pack("{s:{s:s, s:{s:s, s:s}, s:{}}}", "_meta",
                     RPC_META "protocolVersion", version,
                     RPC_META "clientInfo",
                         "name", RPC_CLIENT_NAME,
                         "version", RPC_CLIENT_VERSION,
                     RPC_META "clientCapabilities");
}


int
mcp_rpc_is_initialize(const unsigned char *data, size_t len)
{
    int          yes;
    json_t      *msg, *id;
    const char  *method;

    if (data == NULL || len > MCP_RPC_HEAD_MAX
        || !rpc_has(data, len, "\"initialize\""))
    {
        return 0;
    }

    msg = mcp_rpc_json_load(data, len);

    method = json_string_value(json_object_get(msg, "method"));
    id = json_object_get(msg, "id");

    yes = method != NULL && strcmp(method, "initialize") == 0
          && (json_is_string(id) || json_is_number(id));

    json_decref(msg);

    return yes;
}


int
mcp_rpc_is_message(const unsigned char *data, size_t len)
{
    const unsigned char  *p, *last;

    if (data == NULL) {
        return 0;
    }

    last = data + len;

    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
    }

    for (p = data; p < last; p++) {
        if (*p != ' ' && *p != '\t' && *p != '\n' && *p != '\r') {
            break;
        }
    }

    return p < last && (*p == '{' || *p == '[')
           && rpc_has(p, last - p, "\"jsonrpc\"");
}


json_t *
mcp_rpc_json_load(const unsigned char *data, size_t len)
{
    if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        data += 3;
        len -= 3;
    }

    /*
     * Tool schemas hold numbers beyond 64 bits and strings with U+0000; neither
     * makes the answer a broken one.
     */

    return json_loadb((const char *) data, len,
                      JSON_DECODE_ANY|JSON_DECODE_INT_AS_REAL|JSON_ALLOW_NUL,
                      NULL);
}


int
mcp_rpc_json_judge(json_t *root, const char *id, int stream,
    mcp_rpc_answer_t *a)
{
    int     found;
    size_t  i;

    a->json = 1;

    if (!json_is_array(root)) {
        return mcp_rpc_judge_one(root, id, stream, a);
    }

    found = 0;

    for (i = 0; i < json_array_size(root); i++) {
        found |= mcp_rpc_judge_one(json_array_get(root, i), id, stream, a);
    }

    return found;
}


static int
mcp_rpc_judge_one(json_t *msg, const char *id, int stream,
    mcp_rpc_answer_t *a)
{
    json_t          *error;
    mcp_rpc_id_t     mid;
    mcp_rpc_kind_t   kind;

    if (json_object_get(msg, "jsonrpc") != NULL) {
        a->object = 1;
    }

    mid = mcp_rpc_id(msg, id);
    error = json_object_get(msg, "error");

    if (json_object_get(msg, "method") != NULL) {
        kind = MCP_RPC_NOTHING;

    } else if (json_is_object(error) || json_is_string(error)) {
        kind = MCP_RPC_ERROR;

    } else if (json_object_get(msg, "result") != NULL) {
        kind = MCP_RPC_RESULT;

    } else {
        kind = MCP_RPC_NOTHING;
    }

    if (!mcp_rpc_json_counts(kind, mid,
                             json_object_get(msg, "jsonrpc") != NULL,
                             mcp_rpc_code(error), stream)
        || mcp_rpc_rank(kind, mid) <= mcp_rpc_rank(a->kind, a->id))
    {
        a->others++;
        return 0;
    }

    a->others += (a->kind != MCP_RPC_NOTHING);
    a->kind = kind;
    a->id = mid;
    a->code = 0;
    a->message[0] = '\0';
    a->version[0] = '\0';

    if (kind == MCP_RPC_ERROR) {
        a->code = mcp_rpc_code(error);

        if (a->code == RPC_BAD_VERSION) {
            mcp_rpc_version(error, a->version);
        }

        if (json_is_object(error)) {
            error = json_object_get(error, "message");
        }

        mcp_text_redact(a->message, MCP_RPC_MESSAGE_MAX,
                        json_string_value(error), json_string_length(error));
    }

    return 1;
}


int
mcp_rpc_json_counts(mcp_rpc_kind_t kind, mcp_rpc_id_t id, int jsonrpc,
    long long code, int stream)
{
    if (kind == MCP_RPC_NOTHING) {
        return 0;
    }

    if (id == MCP_RPC_ID_OURS) {
        return 1;
    }

    /* a stream carries other conversations, too */

    if (stream && (kind != MCP_RPC_ERROR || id == MCP_RPC_ID_FOREIGN)) {
        return 0;
    }

    /*
     * APIs that are no MCP servers have members "result" and "error", too; some
     * servers forget "jsonrpc" in errors, but then the code is a reserved one.
     */

    return jsonrpc || (code >= -32768 && code <= -32000);
}


static mcp_rpc_id_t
mcp_rpc_id(json_t *msg, const char *id)
{
    json_t  *value;

    value = json_object_get(msg, "id");

    if (value == NULL) {
        return MCP_RPC_ID_MISSING;
    }

    if (json_is_null(value)) {
        return MCP_RPC_ID_NULL;
    }

    if (json_is_string(value) && strcmp(json_string_value(value), id) == 0
        && json_string_length(value) == strlen(id))
    {
        return MCP_RPC_ID_OURS;
    }

    return MCP_RPC_ID_FOREIGN;
}


/* ours first, then any result, then an error */

static int
mcp_rpc_rank(mcp_rpc_kind_t kind, mcp_rpc_id_t id)
{
    if (kind == MCP_RPC_NOTHING) {
        return 0;
    }

    if (id == MCP_RPC_ID_OURS) {
        return 3;
    }

    return (kind == MCP_RPC_RESULT) ? 2 : 1;
}


static long long
mcp_rpc_code(json_t *error)
{
    double  code;

    code = json_number_value(json_object_get(error, "code"));

    /* beyond 2^53 a double names no integer */

    if (code < -9007199254740992.0 || code > 9007199254740992.0) {
        return 0;
    }

    return (long long) code;
}


/* 2026-07-28: "data":{"supported":["..."],"requested":"..."} */

static void
mcp_rpc_version(json_t *error, char *version)
{
    size_t       i;
    json_t      *supported;
    const char  *value;

    supported = json_object_get(json_object_get(error, "data"), "supported");

    for (i = 0; i < json_array_size(supported); i++) {

        value = json_string_value(json_array_get(supported, i));

        if (value != NULL && mcp_modern_speaks(value)
            && strcmp(value, version) > 0)
        {
            strcpy(version, value);
        }
    }
}
