// CPQ: libpq, PostgreSQL's client library, for the module PostgreSQL.
#pragma once
#include <libpq-fe.h>
