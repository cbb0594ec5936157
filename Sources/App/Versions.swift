internal import Codec
internal import Fetch
internal import HTTP
internal import PostgreSQL
internal import Store
internal import YAML

/// The versions of ours and of every library that is linked: what `imagefetch version` prints.
public enum Versions {
  /// A name and a version each, ours first.
  public static var all: [(name: String, version: String)] {
    [
      ("imagefetch", App.buildVersion),
      ("libavif", CodecLibraries.avifVersion),
      ("libbrotli", CodingLibraries.brotliVersion),
      ("libcurl", CurlLibrary.version),
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
}
