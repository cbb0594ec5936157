// CSQLite: SQLite's C interface, for the module SQLite, and what Swift can't call or write itself.
#pragma once
#include <sqlite3.h>

/// Adds the table-valued function `elements(a, b, ...)`: the elements of arrays, as the columns c1, c2 and so on.
/// - Returns: SQLITE_OK or an error.
int csqlite_add_elements(sqlite3 *database);

/// Calls a function for each message of SQLite's error log, and switches off the statistics of allocations, which would take a
/// lock each time. Call it before any other function of SQLite.
static inline int csqlite_configure(void (*function)(void *, int, const char *)) {
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    return sqlite3_config(SQLITE_CONFIG_LOG, function, (void *)0);
}

/// Plans do not depend on arguments. Otherwise SQLite parses most statements again after each change of an argument, because
/// it compares the arguments with the conditions of partial indexes (https://www.sqlite.org/queryplanner-ng.html#qpsg).
static inline int csqlite_keep_plans(sqlite3 *database) {
    return sqlite3_db_config(database, SQLITE_DBCONFIG_ENABLE_QPSG, 1, (int *)0);
}

/// SQLite copies the bytes of an argument. (The macro SQLITE_TRANSIENT can't be imported.)
static inline int csqlite_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, int count) {
    return sqlite3_bind_blob(statement, index, bytes ? bytes : "", count, SQLITE_TRANSIENT);
}
