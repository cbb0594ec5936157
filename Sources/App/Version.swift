internal import CBuild
internal import Codec
internal import Fetch
internal import HTTP
internal import Logging
internal import Metrics
internal import PostgreSQL
internal import SQLite
internal import YAML

/// The version of imagefetch, as shown by `imagefetch version`, the logs and the default user agent.
package let version = "0.1.0"

/// The version with the commit, if the build was given one: `0.1.0 (43db095c01d2)`.
package let buildVersion =
  CBuild_commit.map { "\(version) (\(String(cString: $0)))" } ?? version

/// The versions of imagefetch and of every linked library, as printed by `imagefetch version`.
package enum Versions {
  /// Names and versions, imagefetch first.
  package static var all: [(name: String, version: String)] {
    let libraries: [(name: String, version: String)] =
      CodecLibrary.all.map { ($0.name, $0.version) } + [
        ("libbrotli", CodingLibraries.brotliVersion), ("libcurl", CurlLibrary.version),
        ("libmicrohttpd", MicroHTTPDLibrary.version), ("libpq", PostgresDatabase.libraryVersion),
        ("libyaml", YAMLLibrary.version), ("SQLite", SQLiteLibrary.version),
        ("zlib", CodingLibraries.zlibVersion),
      ]
    return [("imagefetch", App.buildVersion)]
      + libraries.sorted { $0.name.lowercased() < $1.name.lowercased() }
  }

  /// Logs and exports the versions, so that an operator can see which instances a security advisory concerns.
  static func report(to log: Logger) {
    let told = all
    log.info(
      "libraries",
      metadata: Dictionary(told.map { ($0.name, "\($0.version)") }, uniquingKeysWith: { $1 }))
    for (name, version) in told {
      Gauge(
        label: "imagefetch_library_info", dimensions: [("library", name), ("version", version)]
      )
      .record(1)
    }
  }
}
