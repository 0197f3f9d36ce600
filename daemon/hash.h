/*
 * hash - uthash, as we use it
 *
 * Keys are small numbers that the daemon has given out itself. uthash's own function
 * for them falls through its cases in a way that clang warns of where the macro is used.
 */
#ifndef HASH_H
#define HASH_H

#define HASH_FUNCTION(key, size, hash) HASH_FNV(key, size, hash)

#include <uthash.h>

#endif
