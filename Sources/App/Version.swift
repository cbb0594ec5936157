internal import CBuild

/// The version of imagefetch, as shown by `imagefetch version`, the logs and the default user agent.
package let version = "0.1.0"

/// The version with the commit, if the build was given one: `0.1.0 (43db095c01d2)`.
package let buildVersion =
  CBuild_commit.map { "\(version) (\(String(cString: $0)))" } ?? version
