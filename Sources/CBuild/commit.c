#include "CBuild.h"

#include <stddef.h>

#define TEXT_OF(tokens) #tokens
#define TEXT(macro) TEXT_OF(macro)

#ifdef SOURCE_COMMIT
const char *const CBuild_commit = TEXT(SOURCE_COMMIT);
#else
const char *const CBuild_commit = NULL;
#endif
