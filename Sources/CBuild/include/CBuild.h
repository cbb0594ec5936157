#pragma once

/// The commit that was built, as `SOURCE_COMMIT` named it; NULL where nothing did. A file of its own, so that another
/// commit compiles nothing else.
extern const char *_Nullable const CBuild_commit;
