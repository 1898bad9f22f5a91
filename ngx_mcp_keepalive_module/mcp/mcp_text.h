
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Texts that come from elsewhere: made safe to log, and searched for phrases.
 * Pure, no allocation.
 */


#ifndef _MCP_TEXT_H_INCLUDED_
#define _MCP_TEXT_H_INCLUDED_


#include <stddef.h>


/*
 * Copies "len" bytes of text to "dst" of "size" bytes, cut to fit, NUL-ended.
 * Control characters, DEL, non-ASCII bytes and backslashes become '?', a double
 * quote a single one.  Returns the length without the NUL.
 */
size_t mcp_text_clean(char *dst, size_t size, const char *text, size_t len);

/*
 * The same, and what may be an id or a credential becomes "***": a word of 16
 * or more characters with a digit in it, and the word after "Bearer".
 */
size_t mcp_text_redact(char *dst, size_t size, const char *text, size_t len);

/*
 * True if "phrase" (lower case, NUL-ended) occurs in the text, in any case.
 * A space stands for any run of non-alphanumeric characters or, first and last
 * in a phrase, for the edge of a word; '*' is up to four small or id-like words
 * ("session*not found" also finds "Session with ID 'a-7' was not found").
 */
int mcp_text_find(const char *text, size_t len, const char *phrase);

/* True if one of the phrases, up to a NULL, occurs in the text. */
int mcp_text_find_any(const char *text, size_t len,
    const char *const *phrases);


#endif /* _MCP_TEXT_H_INCLUDED_ */
