
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_rpc_json.h"
#include "mcp_rpc_listen.h"


#define RPC_SUBSCRIPTION  "io.modelcontextprotocol/subscriptionId"

/* As far as a double tells one whole number from the next. */
#define RPC_ID_MAX        9007199254740991.0


static json_t *mcp_rpc_complete_message(json_t *request);
static json_t *mcp_rpc_complete_id(json_t *id);
static size_t mcp_rpc_complete_event(char *buf, size_t size, json_t *msg);


size_t
mcp_rpc_complete(char *buf, size_t size, const unsigned char *data, size_t len)
{
    size_t   n;
    json_t  *request, *msg;

    if (data == NULL || len > MCP_RPC_HEAD_MAX) {
        return 0;
    }

    request = mcp_rpc_json_load(data, len);
    msg = mcp_rpc_complete_message(request);

    n = msg ? mcp_rpc_complete_event(buf, size, msg) : 0;

    json_decref(msg);
    json_decref(request);

    return n;
}


static json_t *
mcp_rpc_complete_message(json_t *request)
{
    json_t      *id;
    const char  *method;

    method = json_string_value(json_object_get(request, "method"));

    if (method == NULL || strcmp(method, "subscriptions/listen") != 0) {
        return NULL;
    }

    id = mcp_rpc_complete_id(json_object_get(request, "id"));

    if (id == NULL) {
        return NULL;
    }

    /* takes the one reference, and another one */

    return json_pack("{s:s, s:O, s:{s:s, s:{s:o}}}", "jsonrpc", "2.0",
                     "id", id, "result", "resultType", "complete",
                     "_meta", RPC_SUBSCRIPTION, id);
}


/* Numbers are read as reals, but an id of 40 is not 40.0 to every client. */

static json_t *
mcp_rpc_complete_id(json_t *id)
{
    double  n;

    if (json_is_string(id)) {
        return json_incref(id);
    }

    n = json_number_value(id);

    if (!json_is_number(id) || n > RPC_ID_MAX || n < -RPC_ID_MAX
        || n != (double) (json_int_t) n)
    {
        return NULL;
    }

    return json_integer((json_int_t) n);
}


static size_t
mcp_rpc_complete_event(char *buf, size_t size, json_t *msg)
{
    size_t             len;
    static const char  head[] = "event: message\ndata: ";

    if (size < sizeof(head) + 2) {
        return 0;
    }

    size -= sizeof(head) - 1 + 2;

    len = json_dumpb(msg, buf + sizeof(head) - 1, size, JSON_COMPACT);

    if (len == 0 || len > size) {
        return 0;
    }

    memcpy(buf, head, sizeof(head) - 1);
    len += sizeof(head) - 1;

    memcpy(buf + len, "\n\n", 2);

    return len + 2;
}
