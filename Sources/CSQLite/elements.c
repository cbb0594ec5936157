#include "CSQLite.h"

#include <stdint.h>
#include <string.h>

// The table-valued function `elements(a, b, ...)`. Each argument is an array in PostgreSQL's binary format
// (`SQLValue.encoded`): the number of dimensions, a flag, the type of the elements, their number and the lower bound, 4
// bytes each; then each element, after its length (-1 for NULL). Row n has the n-th element of each array, as the columns
// c1, c2 and so on. All numbers are big-endian.
//
// SQLite documents the interface at https://www.sqlite.org/vtab.html.

enum { MOST = 16, HEADER = 20, TYPE_BOOL = 16, TYPE_BIGINT = 20 };

typedef struct {
    sqlite3_vtab_cursor base;
    sqlite3_int64 row, count;
    struct {
        const unsigned char *bytes;  // owned by `value`
        sqlite3_value *value;
        int size, offset, type;
        // The current element: -1 for NULL.
        int length;
    } arrays[MOST];
    int used;
} Elements;

static int32_t number(const unsigned char *bytes) {
    return (int32_t)((uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3]);
}

/// Reads the length of each array's current element.
static int read_row(Elements *self) {
    for (int i = 0; i < self->used; i++) {
        if (self->row >= self->count) break;
        if (self->arrays[i].offset + 4 > self->arrays[i].size) return SQLITE_CORRUPT;
        int length = number(self->arrays[i].bytes + self->arrays[i].offset);
        if (length > self->arrays[i].size - self->arrays[i].offset - 4) return SQLITE_CORRUPT;
        self->arrays[i].length = length;
    }
    return SQLITE_OK;
}

static int connect(
    sqlite3 *database, void *context, int count, const char *const *arguments, sqlite3_vtab **table, char **error) {
    (void)context, (void)count, (void)arguments, (void)error;
    int code = sqlite3_declare_vtab(
        database,
        "CREATE TABLE x(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, "
        "a1 HIDDEN, a2 HIDDEN, a3 HIDDEN, a4 HIDDEN, a5 HIDDEN, a6 HIDDEN, a7 HIDDEN, a8 HIDDEN, "
        "a9 HIDDEN, a10 HIDDEN, a11 HIDDEN, a12 HIDDEN, a13 HIDDEN, a14 HIDDEN, a15 HIDDEN, a16 HIDDEN)");
    if (code != SQLITE_OK) return code;
    *table = sqlite3_malloc(sizeof(sqlite3_vtab));
    if (!*table) return SQLITE_NOMEM;
    memset(*table, 0, sizeof(sqlite3_vtab));
    return SQLITE_OK;
}

static int disconnect(sqlite3_vtab *table) {
    sqlite3_free(table);
    return SQLITE_OK;
}

/// Passes the arguments to `filter` in their order. Few rows are expected, so that the planner begins with this table.
static int best_index(sqlite3_vtab *table, sqlite3_index_info *info) {
    (void)table;
    int used = 0;
    for (int i = 0; i < info->nConstraint; i++) {
        int argument = info->aConstraint[i].iColumn - MOST;
        if (argument < 0 || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
        if (!info->aConstraint[i].usable) return SQLITE_CONSTRAINT;
        info->aConstraintUsage[i].argvIndex = argument + 1;
        info->aConstraintUsage[i].omit = 1;
        used++;
    }
    info->idxNum = used;
    info->estimatedCost = 8;
    info->estimatedRows = 8;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor) {
    (void)table;
    Elements *self = sqlite3_malloc(sizeof(Elements));
    if (!self) return SQLITE_NOMEM;
    memset(self, 0, sizeof(Elements));
    *cursor = &self->base;
    return SQLITE_OK;
}

static void clear(Elements *self) {
    for (int i = 0; i < self->used; i++) sqlite3_value_free(self->arrays[i].value);
    self->used = 0;
}

static int close_cursor(sqlite3_vtab_cursor *cursor) {
    clear((Elements *)cursor);
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *cursor, int used, const char *name, int count, sqlite3_value **arguments) {
    (void)used, (void)name;
    Elements *self = (Elements *)cursor;
    clear(self);
    self->row = 0;
    self->count = 0;
    for (int i = 0; i < count && i < MOST; i++) {
        sqlite3_value *value = sqlite3_value_dup(arguments[i]);
        if (!value) return SQLITE_NOMEM;
        self->arrays[self->used].value = value;
        self->used++;
        const unsigned char *bytes = sqlite3_value_blob(value);
        int size = sqlite3_value_bytes(value);
        self->arrays[i].bytes = bytes;
        self->arrays[i].size = size;
        // An empty array has no dimensions.
        if (size < HEADER) continue;
        self->arrays[i].type = number(bytes + 8);
        self->arrays[i].offset = HEADER;
        int length = number(bytes + 12);
        if (length > self->count) self->count = length;
    }
    return read_row(self);
}

static int next(sqlite3_vtab_cursor *cursor) {
    Elements *self = (Elements *)cursor;
    for (int i = 0; i < self->used; i++) {
        int length = self->arrays[i].length;
        self->arrays[i].offset += 4 + (length > 0 ? length : 0);
    }
    self->row++;
    return read_row(self);
}

static int is_at_end(sqlite3_vtab_cursor *cursor) {
    Elements *self = (Elements *)cursor;
    return self->row >= self->count;
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column) {
    Elements *self = (Elements *)cursor;
    if (column >= self->used) return SQLITE_OK;
    int length = self->arrays[column].length;
    const unsigned char *bytes = self->arrays[column].bytes + self->arrays[column].offset + 4;
    if (length < 0) return SQLITE_OK;
    switch (self->arrays[column].type) {
    case TYPE_BOOL: sqlite3_result_int(context, length > 0 && bytes[0]); break;
    case TYPE_BIGINT:
        if (length != 8) return SQLITE_CORRUPT;
        sqlite3_result_int64(
            context, (sqlite3_int64)((uint64_t)(uint32_t)number(bytes) << 32 | (uint32_t)number(bytes + 4)));
        break;
    default: sqlite3_result_blob(context, bytes, length, SQLITE_TRANSIENT);
    }
    return SQLITE_OK;
}

static int row_number(sqlite3_vtab_cursor *cursor, sqlite3_int64 *row) {
    *row = ((Elements *)cursor)->row;
    return SQLITE_OK;
}

static const sqlite3_module module = {
    .xConnect = connect,
    .xBestIndex = best_index,
    .xDisconnect = disconnect,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next,
    .xEof = is_at_end,
    .xColumn = column,
    .xRowid = row_number,
};

int csqlite_add_elements(sqlite3 *database) { return sqlite3_create_module(database, "elements", &module, 0); }
