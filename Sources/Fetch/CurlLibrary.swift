internal import CCurl

/// The libcurl that is linked.
public enum CurlLibrary {
  /// Its version and those of what it uses, such as `7.88.1 OpenSSL/3.0.17 nghttp2/1.52.0`.
  public static var version: String {
    String(String(cString: curl_version()).trimmingPrefix("libcurl/"))
  }
}
