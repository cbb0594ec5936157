#pragma once

/// The commit that was built, from the macro `SOURCE_COMMIT`; NULL if the macro is not defined. It has its own module, so
/// that a new commit recompiles only this file.
extern const char *_Nullable const CBuild_commit;
