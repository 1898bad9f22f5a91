
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What a JSON-RPC message tells, or its beginning, if it is too long to be
 * parsed: which members stand at its top level.  Pure, no allocation.
 */


#ifndef _MCP_RPC_HEAD_H_INCLUDED_
#define _MCP_RPC_HEAD_H_INCLUDED_


#include <stddef.h>

#include "mcp_rpc.h"


typedef struct {
    mcp_rpc_id_t                id;         /* missing if not seen whole */
    unsigned                    jsonrpc:1;
    unsigned                    result:1;
    unsigned                    error:1;
    unsigned                    method:1;
    unsigned                    whole:1;    /* one object up to its end,
                                             * nothing after it, and no name
                                             * of a member with an escape */
} mcp_rpc_head_t;


/*
 * Walks "len" bytes of a message that may be cut anywhere.  Members of nested
 * values and text inside strings do not count; of an array the first message is
 * looked at.  "id" is our own.  What is not JSON ends the walk.
 */
void mcp_rpc_head_scan(mcp_rpc_head_t *h, const unsigned char *data,
    size_t len, const char *id);


#endif /* _MCP_RPC_HEAD_H_INCLUDED_ */
