/*
 * hash - uthash as the daemon uses it
 *
 * A daemon does not end because one client's table is full: HASH_ADD that finds no
 * host memory leaves the table as it was, and the item's hh.tbl NULL. Keys are small
 * numbers that the daemon gave out itself; uthash's default function falls through
 * its cases in a way that clang warns of where the macro is used.
 */
#ifndef DAEMON_HASH_H
#define DAEMON_HASH_H

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, size, hash) HASH_FNV(key, size, hash)
#include <uthash.h>

#endif
