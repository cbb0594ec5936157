// SQLite alone: inserts a table's rows into a new database with the same table and indices, several per transaction,
// each synced before the next starts (WAL, synchronous=FULL), and prints the rate.
//
//   cc -O2 -o inserts Benchmarks/sqlite/inserts.c -lsqlite3
//   ./inserts rows.sqlite jobs.sqlite jobs 100
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void fail(sqlite3 *database) {
    fprintf(stderr, "inserts: %s\n", sqlite3_errmsg(database));
    exit(1);
}

static void run(sqlite3 *database, const char *sql) {
    if (sqlite3_exec(database, sql, NULL, NULL, NULL) != SQLITE_OK) fail(database);
}

static sqlite3_stmt *prepare(sqlite3 *database, const char *sql) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK) fail(database);
    return statement;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

// The table and its indices.
static void copy_schema(sqlite3 *from, sqlite3 *to, const char *table) {
    sqlite3_stmt *parts = prepare(
        from, "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC");
    sqlite3_bind_text(parts, 1, table, -1, SQLITE_STATIC);
    while (sqlite3_step(parts) == SQLITE_ROW) run(to, (const char *)sqlite3_column_text(parts, 0));
    sqlite3_finalize(parts);
}

int main(int count, char **arguments) {
    int batch = count > 4 ? atoi(arguments[4]) : 0;
    sqlite3 *from, *to;
    if (batch < 1 || sqlite3_open(arguments[1], &to) != SQLITE_OK
        || sqlite3_open_v2(arguments[2], &from, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        fprintf(stderr, "usage: inserts FILE SOURCE TABLE BATCH\n");
        return 2;
    }
    run(to, "PRAGMA journal_mode = WAL");
    run(to, "PRAGMA synchronous = FULL");
    run(to, "PRAGMA wal_autocheckpoint = 4000");
    copy_schema(from, to, arguments[3]);

    char sql[1024];
    snprintf(sql, sizeof sql, "SELECT * FROM %s", arguments[3]);
    sqlite3_stmt *select = prepare(from, sql);
    int columns = sqlite3_column_count(select), rows = 0;
    sqlite3_value **values = NULL;
    while (sqlite3_step(select) == SQLITE_ROW) {
        values = realloc(values, sizeof *values * (size_t)(rows + 1) * (size_t)columns);
        if (!values) return 1;
        for (int column = 0; column < columns; column++)
            values[rows * columns + column] = sqlite3_value_dup(sqlite3_column_value(select, column));
        rows++;
    }
    int length = snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (?", arguments[3]);
    for (int column = 1; column < columns && length < 1000; column++)
        length += snprintf(sql + length, sizeof sql - (size_t)length, ", ?");
    snprintf(sql + length, sizeof sql - (size_t)length, ")");
    sqlite3_stmt *insert = prepare(to, sql);

    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int row = 0; row < rows; row++) {
        if (row % batch == 0) run(to, "BEGIN IMMEDIATE");
        for (int column = 0; column < columns; column++)
            sqlite3_bind_value(insert, column + 1, values[row * columns + column]);
        if (sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert) != SQLITE_OK) fail(to);
        if (row % batch == batch - 1 || row == rows - 1) run(to, "COMMIT");
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%.1f rows/s, %.4f CPU ms a row\n", rows / wall, cpu * 1e3 / rows);
    sqlite3_finalize(insert);
    sqlite3_finalize(select);
    sqlite3_close(from);
    sqlite3_close(to);
    return 0;
}
