
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The families of words by which servers tell what is wrong, as collected in
 * the field.  Only for texts that are errors; mcp_classify.c sees to that.
 * Pure.
 */


#ifndef _MCP_PHRASES_H_INCLUDED_
#define _MCP_PHRASES_H_INCLUDED_


#include <stddef.h>


#define T_NOMETHOD  0x00100000          /* no such method */
#define T_LOST      0x00200000          /* the session is not known any more */
#define T_NOTINIT   0x00400000          /* ... was never initialized */
#define T_EXISTS    0x00800000          /* there is one already: no loss */
#define T_ROUTE     0x01000000          /* Host, Origin, a header, a version */
#define T_SESSION   0x02000000          /* a session is spoken of at all */


/* Which families occur in the text. */
unsigned mcp_phrases_find(const char *text, size_t len);


#endif /* _MCP_PHRASES_H_INCLUDED_ */
