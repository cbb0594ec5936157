// SQLite alone: inserts rows of one size, so many a transaction, each transaction on the disk before
// the next begins (WAL, synchronous=FULL), and tells how fast that went.
//
//   cc -O2 -o inserts Benchmarks/sqlite/inserts.c -lsqlite3
//   ./inserts rows.sqlite 1000 100000 100
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static sqlite3 *database;

static void run(const char *sql) {
    char *error = NULL;
    if (sqlite3_exec(database, sql, NULL, NULL, &error) == SQLITE_OK) return;
    fprintf(stderr, "%s: %s\n", sql, error);
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
    int size = count > 2 ? atoi(arguments[2]) : 0, rows = count > 3 ? atoi(arguments[3]) : 0;
    int batch = count > 4 ? atoi(arguments[4]) : 0;
    char *row = size > 0 ? malloc((size_t)size) : NULL;
    if (!row || rows < 1 || batch < 1 || sqlite3_open(arguments[1], &database) != SQLITE_OK) {
        fprintf(stderr, "usage: inserts FILE BYTES ROWS BATCH\n");
        return 2;
    }
    for (int index = 0; index < size; index++) row[index] = (char)('a' + index % 26);
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = FULL");
    run("PRAGMA wal_autocheckpoint = 4000");
    run("CREATE TABLE rows (number INTEGER PRIMARY KEY, row BLOB NOT NULL) STRICT");
    sqlite3_stmt *insert;
    const char *sql = "INSERT INTO rows (row) VALUES (?)";
    if (sqlite3_prepare_v2(database, sql, -1, &insert, NULL) != SQLITE_OK) return 1;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int number = 0; number < rows; number++) {
        if (number % batch == 0) run("BEGIN IMMEDIATE");
        sqlite3_bind_blob(insert, 1, row, size, SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert) != SQLITE_OK) return 1;
        if (number % batch == batch - 1 || number == rows - 1) run("COMMIT");
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%.1f rows/s, %.4f CPU ms a row\n", rows / wall, cpu * 1e3 / rows);
    sqlite3_finalize(insert);
    sqlite3_close(database);
    return 0;
}
