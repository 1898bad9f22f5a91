
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Between mcp_rpc.c, which knows JSON, mcp_rpc_reader.c, which collects the
 * bytes of answers, and mcp_rpc_subject.c.  Not for others.
 */


#ifndef _MCP_RPC_JSON_H_INCLUDED_
#define _MCP_RPC_JSON_H_INCLUDED_


#include <stddef.h>
#include <jansson.h>

#include "mcp_rpc.h"


/* Parses one JSON text, with or without a BOM.  NULL: broken or no memory. */
json_t *mcp_rpc_json_load(const unsigned char *data, size_t len);

/*
 * Looks at one message or an array of them and keeps in "a" the best response
 * so far; all else is counted in a->others.  True if a better one was found.
 */
int mcp_rpc_json_judge(json_t *root, const char *id, int stream,
    mcp_rpc_answer_t *a);

/*
 * True if a message may be taken as the response.  On a stream only one with
 * our id may, or an error that has none.
 */
int mcp_rpc_json_counts(mcp_rpc_kind_t kind, mcp_rpc_id_t id, int jsonrpc,
    long long code, int stream);


#endif /* _MCP_RPC_JSON_H_INCLUDED_ */
