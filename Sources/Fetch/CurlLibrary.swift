internal import CCodings
internal import CCurl

/// The libcurl that the process uses.
package enum CurlLibrary {
  /// The versions of libcurl and of the libraries it uses, such as `7.88.1 OpenSSL/3.0.17 nghttp2/1.52.0`.
  package static var version: String {
    String(String(cString: curl_version()).trimmingPrefix("libcurl/"))
  }
}

/// The libraries that decode content codings.
package enum CodingLibraries {
  /// zlib's version, such as `1.2.13`.
  package static var zlibVersion: String { String(cString: CCodings.zlibVersion()) }
  /// libbrotli's version, such as `1.0.9`.
  package static var brotliVersion: String {
    let version = BrotliDecoderVersion()
    return "\(version >> 24).\(version >> 12 & 0xFFF).\(version & 0xFFF)"
  }
}
