
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What a client's request is about: its method, and the tool, resource or
 * prompt it names.  Pure.
 */


#ifndef _MCP_RPC_SUBJECT_H_INCLUDED_
#define _MCP_RPC_SUBJECT_H_INCLUDED_


#include <stddef.h>

#include "mcp_rpc.h"


#define MCP_RPC_WORD_MAX  128


/* Each 1 to MCP_RPC_WORD_MAX visible ASCII bytes and a NUL, or empty. */

typedef struct {
    char                        method[MCP_RPC_WORD_MAX + 1];
    char                        name[MCP_RPC_WORD_MAX + 1];
} mcp_rpc_subject_t;


/*
 * Reads them from the "len" bytes of a body; "cut" says that it goes on after
 * them: then what came whole counts.  An array of messages has no subject.  The
 * name is "params.name" of tools/call and prompts/get and "params.uri" of
 * resources/read, as the Mcp-Name header has it (2026-07-28).
 */
void mcp_rpc_subject(mcp_rpc_subject_t *s, const unsigned char *data,
    size_t len, int cut);

/*
 * Copies a word to "to", of MCP_RPC_WORD_MAX + 1 bytes, with a NUL; returns its
 * length, 0 if it is none, and "to" is empty then.
 */
size_t mcp_rpc_word(char *to, const char *from, size_t len);


#endif /* _MCP_RPC_SUBJECT_H_INCLUDED_ */
