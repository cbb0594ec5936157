internal import CBuild

/// Ours; what `imagefetch version`, the logs and the default user agent say.
public let version = "0.1.0"

/// The same with the commit that was built, where the build was told: `0.1.0 (43db095c01d2)`.
public let buildVersion =
  CBuild_commit.map { "\(version) (\(String(cString: $0)))" } ?? version
