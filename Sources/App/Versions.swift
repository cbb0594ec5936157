internal import Codec
internal import Fetch
internal import HTTP
internal import Logging
internal import Metrics
internal import PostgreSQL
internal import Store
internal import YAML

/// The versions of imagefetch and of every linked library, as printed by `imagefetch version`.
package enum Versions {
  /// Names and versions, imagefetch first.
  package static var all: [(name: String, version: String)] {
    [
      ("imagefetch", App.buildVersion),
      ("libavif", CodecLibraries.avifVersion),
      ("libbrotli", CodingLibraries.brotliVersion),
      ("libcurl", CurlLibrary.version),
      ("libde265", CodecLibraries.de265Version),
      ("libjpeg-turbo", CodecLibraries.jpegVersion),
      ("libjxl", CodecLibraries.jxlVersion),
      ("liblcms2", CodecLibraries.lcmsVersion),
      ("libmicrohttpd", MicroHTTPDLibrary.version),
      ("libpng", CodecLibraries.pngVersion),
      ("libpq", PostgresJobStore.libraryVersion),
      ("libwebp", CodecLibraries.webpVersion),
      ("libyaml", YAMLLibrary.version),
      ("SQLite", SQLiteLibrary.version),
      ("zlib", CodingLibraries.zlibVersion),
    ]
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
